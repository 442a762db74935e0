//! A session that a program drives.

use std::io::{BufRead, BufReader, Write};

use serde_json::{Value, json};

use crate::harness::{Done, belljar, everyone, finish, spawn};

fn answers(done: &Done) -> Vec<Value> {
    let lines = done.stdout.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line:?}")))
        .collect()
}

#[test]
fn each_line_has_its_answers_in_order() {
    for who in everyone() {
        let lines = [
            json!({"id": "a", "code": "import sys\nx = 20\nn = sys.stdout.write('hi')\nsys.stdout.flush()"})
                .to_string(),
            String::new(),
            json!({"id": 2, "code": "n = sys.stderr.write(input())\nx + 1", "stdin": "typed"}).to_string(),
            json!({"code": "display('shown')"}).to_string(),
            json!({"id": 3, "reset": true}).to_string(),
            json!({"id": 4, "code": "x"}).to_string(),
        ];
        let done = belljar(who, ["session", "--json"])
            .stdin(lines.join("\n"))
            .go()
            .expect_code(0);
        assert_eq!(done.stderr, "");
        let answers = answers(&done);
        let kinds: Vec<_> = answers
            .iter()
            .map(|answer| (&answer["id"], answer["event"].as_str().expect("an event")))
            .collect();
        assert_eq!(
            kinds,
            [
                (&json!("a"), "output"),
                (&json!("a"), "done"),
                (&json!(2), "output"),
                (&json!(2), "done"),
                (&Value::Null, "display"),
                (&Value::Null, "done"),
                (&json!(3), "reset"),
                (&json!(4), "done"),
            ],
            "{done:#?}"
        );
        assert_eq!(answers[0]["text"], "hi");
        assert_eq!(answers[2]["stream"], "stderr");
        assert_eq!(answers[3]["outcome"]["value"], 21);
        assert_eq!(answers[3]["success"], true);
        assert_eq!(answers[4]["data"]["text/plain"], "'shown'");
        assert_eq!(answers[7]["outcome"]["exception"]["type"], "NameError");
        assert!(answers[7]["record"]["code_hash"].is_string());
    }
}

#[test]
fn bad_lines_are_answered_and_the_session_goes_on() {
    for who in everyone() {
        let mut input = b"{\n[]\n{\"id\": 9, \"cod\": 1}\n\xff\xfe\n{\"code\": \"\\u0000\"}\n".to_vec();
        input.extend(format!("{{\"id\": 10, \"code\": \"{}\"}}\n", "x".repeat(10 << 20)).bytes());
        input.extend(vec![b' '; 33 << 20]);
        input.extend(b"x\n{\"code\": \"1 + 1\"}");
        let done = belljar(who, ["session", "--json"])
            .stdin(input)
            .go()
            .expect_code(1);
        let answers = answers(&done);
        let events: Vec<_> = answers
            .iter()
            .map(|answer| answer["event"].as_str().expect("an event"))
            .collect();
        assert_eq!(
            events,
            [
                "error", "error", "error", "error", "done", "error", "error", "done"
            ]
        );
        let wrong: Vec<_> = answers
            .iter()
            .filter(|answer| answer["event"] == "error")
            .collect();
        assert_eq!(
            wrong
                .iter()
                .map(|answer| answer["line"].as_u64())
                .collect::<Vec<_>>(),
            [Some(1), Some(2), Some(3), Some(4), None, Some(7)]
        );
        assert!(
            wrong.iter().all(|answer| answer["error"]["hint"].is_string()),
            "{wrong:#?}"
        );
        assert_eq!((&answers[2]["id"], &answers[5]["id"]), (&json!(9), &json!(10)));
        assert_eq!(answers[7]["outcome"]["value"], 2);
    }
}

#[test]
fn what_stops_it_is_a_line_too() {
    for who in everyone() {
        for (args, event, code) in [
            (&["--lang", "ruby"][..], "denied", 126),
            (&["--lang", "klingon"], "error", 2),
            (&["--memory", "lots"], "error", 2),
        ] {
            let done = belljar(who, ["session", "--json"].iter().chain(args).copied())
                .go()
                .expect_code(code);
            let answers = answers(&done);
            assert_eq!(answers.len(), 1, "{done:#?}");
            assert_eq!(answers[0]["event"], event);
        }
    }
}

#[test]
fn an_interrupt_is_heard_while_a_cell_runs() {
    for who in everyone() {
        let mut child = spawn(&mut belljar(who, ["session", "--json"]).command());
        let mut input = child.stdin.take().expect("stdin");
        let mut output = BufReader::new(child.stdout.take().expect("stdout")).lines();
        let mut next = || -> Value {
            let line = output.next().expect("an answer").expect("a line");
            serde_json::from_str(&line).expect("JSON")
        };
        writeln!(
            input,
            r#"{{"code": "x = 5\nimport sys\nn = sys.stdout.write('on')\nsys.stdout.flush()\nwhile True: pass"}}"#
        )
        .expect("write");
        assert_eq!(next()["text"], "on");
        writeln!(input, r#"{{"id": "stop", "interrupt": true}}"#).expect("write");
        let answer = next();
        assert_eq!(
            (&answer["id"], &answer["interrupted"]),
            (&json!("stop"), &json!(true))
        );
        let done = next();
        assert_eq!(done["outcome"]["error"]["type"], "interrupted", "{done:#}");
        writeln!(input, r#"{{"code": "x"}}"#).expect("write");
        assert_eq!(next()["outcome"]["value"], 5);
        drop(input);
        assert_eq!(finish(child).status.code(), Some(0));
    }
}
