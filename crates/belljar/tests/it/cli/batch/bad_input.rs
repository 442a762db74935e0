//! Bad input: a broken line is an answer with an error; what no line could run with is told at once.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use super::super::expect_one_problem;
use super::{answers_of, batch, out_name};
use crate::harness::{TempDir, Who, belljar, everyone, is_root};

#[test]
fn what_cannot_be_used_is_told_before_anything_runs() {
    let dir = TempDir::new();
    dir.file("in.jsonl", "{\"code\": \"1\"}\n");
    fs::create_dir(dir.path().join("dir")).expect("a directory");
    for who in everyone() {
        for (args, shown) in [
            (
                &["absent.jsonl", "-o", "x"][..],
                "cannot read absent.jsonl: No such file",
            ),
            (&["dir", "-o", "x"], "cannot read dir: it is a directory"),
            (
                &["in.jsonl", "-o", "dir"],
                "-o: cannot write dir: it is a directory",
            ),
            (
                &["in.jsonl", "-o", "nowhere/x"],
                "-o: cannot write nowhere/x: No such file",
            ),
            (
                &["in.jsonl", "-o", "./in.jsonl"],
                "./in.jsonl is both the input and the output",
            ),
            (
                &["in.jsonl", "-o", "x", "--jobs", "0"],
                "--jobs: `0` is not a number from 1 to 1024",
            ),
            (&["in.jsonl", "-o", "x", "--jobs", "-1"], "--jobs: `-1`"),
            (&["in.jsonl", "-o", "x", "--jobs", "many"], "--jobs: `many`"),
            (
                &["in.jsonl", "-o", "x", "--jobs", "99999999999999999999"],
                "--jobs: `9999",
            ),
            (
                &["in.jsonl", "-o", "x", "--policy", "none"],
                "there is no policy `none`",
            ),
            (
                &["in.jsonl", "-o", "x", "--memory", "lots"],
                "--memory: `lots` is not a size",
            ),
            (
                &["in.jsonl", "-o", "x", "--memory", "900000G"],
                "--memory: max_memory_mb",
            ),
            (&["in.jsonl", "-o", "x", "--env", "=1"], "--env: `=1` has no name"),
            (
                &["in.jsonl", "-o", "x", "--mount", "/nowhere:/a"],
                "--mount: cannot show /nowhere",
            ),
            (
                &["in.jsonl", "-o", "x", "--network", "wifi"],
                "--network: `wifi` is not known",
            ),
            (
                &["in.jsonl", "-o", "x", "--require", "luck"],
                "--require: `luck` is not known",
            ),
        ] {
            let done = belljar(who, ["batch"].iter().chain(args).copied())
                .cwd(dir.path())
                .go()
                .expect_code(2);
            expect_one_problem(&done);
            assert!(
                done.stderr.starts_with(&format!("belljar: {shown}")),
                "{args:?}: {}",
                done.stderr
            );
        }
        assert_eq!(
            fs::read(dir.path().join("in.jsonl")).expect("the input"),
            b"{\"code\": \"1\"}\n"
        );
        assert!(!dir.path().join("x").exists());
    }
}

#[test]
fn an_output_that_takes_nothing_stops_the_batch() {
    let dir = TempDir::new();
    dir.file("in.jsonl", "{\"command\": [\"true\"]}\n".repeat(50));
    for who in everyone() {
        let done = belljar(who, ["batch", "in.jsonl", "-o", "/dev/full", "--quiet"])
            .cwd(dir.path())
            .go()
            .expect_code(125);
        assert_eq!(
            done.stderr,
            "belljar: cannot write /dev/full: No space left on device (os error 28)\n"
        );
    }
    if is_root() {
        let file = dir.file("locked.jsonl", "");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).expect("read-only");
        let done = belljar(Who::User, ["batch", "in.jsonl", "-o", "locked.jsonl"])
            .cwd(dir.path())
            .go()
            .expect_code(2);
        expect_one_problem(&done);
    }
}

#[test]
fn nothing_in_nothing_out() {
    let dir = TempDir::new();
    for who in everyone() {
        for input in ["", "\n", " \n\t\n\n"] {
            dir.file("in.jsonl", input);
            let done = batch(who, &dir, &[]).go().expect_code(0);
            assert_eq!(done.stderr, format!("belljar: 0 lines in {}\n", out_name(who)));
            assert!(answers_of(who, &dir).is_empty());
        }
    }
}

#[test]
fn a_broken_line_stops_no_other() {
    let dir = TempDir::new();
    let bad: &[(&[u8], &str)] = &[
        (b"{", "it is not JSON: EOF while parsing"),
        (b"hello", "it is not JSON: expected value at column 1"),
        (b"{\"code\": \"1\"", "it is not JSON"),
        (
            b"{\"code\": \"1\"} {\"code\": \"1\"}",
            "it is not JSON: trailing characters",
        ),
        (b"\0\0\0", "it is not JSON"),
        (b"{\"code\": \"a\0b\"}", "it is not JSON: control character"),
        (b"\xff\xfe", "it is not text in UTF-8"),
        (b"null", "a request must be an object, not null"),
        (b"\"text\"", "a request must be an object, not text"),
        (b"[[[[[[[[", "it is not JSON"),
        (b"{}", "there is nothing to run"),
        (
            b"{\"code\": \"1\", \"tiemout\": 1}",
            "`tiemout` is not a known field",
        ),
        (
            b"{\"code\": \"1\", \"code\": \"2\"}",
            "it is not JSON: `code` stands there twice",
        ),
        (b"{\"code\": 1}", "`code` must be text, not a number"),
        (b"{\"code\": \"1\", \"cases\": []}", "`cases` is empty"),
        (
            b"{\"code\": \"1\", \"cases\": [{\"stdin\": 1}]}",
            "`cases[0].stdin` must be text, not a number",
        ),
        (
            b"{\"code\": \"1\", \"limits\": {\"memory\": \"lots\"}}",
            "`limits.memory`: `lots`",
        ),
        (
            b"{\"code\": \"1\", \"language\": \"cobol\"}",
            "`language`: `cobol` is not a language",
        ),
    ];
    let mut input = Vec::new();
    for (line, _) in bad {
        input.extend_from_slice(line);
        input.extend_from_slice(b"\n{\"id\": \"same\", \"command\": [\"echo\", \"ok\"]}\n");
    }
    // Deeper than any parser should follow.
    input.extend(std::iter::repeat_n(b'[', 100_000));
    input.push(b'\n');
    dir.file("in.jsonl", input);
    for who in everyone() {
        let done = batch(who, &dir, &[]).go().expect_code(1);
        assert!(!done.stderr.chars().any(|c| c.is_control() && c != '\n'));
        let answers = answers_of(who, &dir);
        assert_eq!(answers.len(), bad.len() * 2 + 1);
        for (number, (pair, (_, shown))) in answers.chunks(2).zip(bad).enumerate() {
            let line = number * 2 + 1;
            assert_eq!(pair[0]["line"], line);
            let error = &pair[0]["error"];
            assert_eq!(error["kind"], "usage");
            let message = error["message"].as_str().expect("a message");
            assert!(message.starts_with(&format!("line {line}: {shown}")), "{message}");
            assert!(
                error["hint"].as_str().is_some_and(|hint| !hint.is_empty()),
                "{error}"
            );
            // The same id twice is the caller's business.
            assert_eq!(
                (&pair[1]["id"], &pair[1]["outcome"]["stdout"]),
                (&"same".into(), &"ok\n".into())
            );
        }
    }
}

/// What only shows when it is run: a file that is not there, a wish that no policy could grant.
#[test]
fn a_line_that_cannot_run_says_why() {
    let dir = TempDir::new();
    dir.file("hello.py", "print('hello')");
    dir.file("unknown.xyz", "?");
    let input = "{\"file\": \"hello.py\"}\n{\"file\": \"absent.py\"}\n{\"file\": \"unknown.xyz\"}\n\
                 {\"file\": \"unknown.xyz\", \"language\": \"bash\"}\n{\"file\": \"/\"}\n\
                 {\"code\": \"1\", \"limits\": {\"memory\": \"900000G\"}}\n{\"code\": \"1\", \"args\": [\"\\u0000\"]}\n\
                 {\"command\": []}\n{\"command\": [\"nosuch\"]}\n";
    dir.file("in.jsonl", input);
    for who in everyone() {
        batch(who, &dir, &[]).go().expect_code(1);
        let answers = answers_of(who, &dir);
        let message = |line: usize| {
            answers[line]["error"]["message"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        assert_eq!(answers[0]["outcome"]["stdout"], "hello\n");
        assert!(
            message(1).starts_with("line 2: `file`: cannot read absent.py"),
            "{}",
            message(1)
        );
        assert!(
            message(2).starts_with("line 3: `file`: cannot tell which language"),
            "{}",
            message(2)
        );
        assert_eq!(answers[3]["outcome"]["status"], "failed");
        assert!(
            message(4).starts_with("line 5: `file`: / is not a plain file"),
            "{}",
            message(4)
        );
        assert!(message(5).starts_with("max_memory_mb must be"), "{}", message(5));
        assert_eq!(answers[6]["denial"]["code"], "argument_invalid");
        assert_eq!(answers[7]["denial"]["code"], "command_malformed");
        assert_eq!(answers[8]["outcome"]["error"]["type"], "cannot_start");
        assert!(
            answers
                .iter()
                .all(|answer| answer["error"]["hint"] != Value::String(String::new()))
        );
    }
}

#[test]
fn long_lines_are_read_and_endless_ones_are_not() {
    let dir = TempDir::new();
    let line = |size: usize| {
        format!(
            "{{\"command\": [\"wc\", \"-c\"], \"stdin\": \"{}\"}}\n",
            "x".repeat(size)
        )
    };
    dir.file("in.jsonl", [line(10_000_000), line(34_000_000), line(5)].concat());
    for who in everyone() {
        batch(who, &dir, &["--jobs", "1"]).go().expect_code(1);
        let answers = answers_of(who, &dir);
        assert_eq!(answers[0]["outcome"]["stdout"], "10000000\n");
        let message = answers[1]["error"]["message"].as_str().expect("a message");
        assert_eq!(
            message,
            "line 2: it is longer than 32 MiB, the longest that is read"
        );
        assert_eq!(answers[2]["outcome"]["stdout"], "5\n");
    }
}
