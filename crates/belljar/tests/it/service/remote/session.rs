//! `belljar session` by a service.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use serde_json::{Value, json};

use super::Remote;
use crate::cli::session::terminal::Terminal;
use crate::harness::{TempDir, Who, belljar, finish, spawn};

impl Remote {
    #[track_caller]
    fn expect_no_sessions(&self) {
        let (_, page) = self
            .server
            .ask("GET", "/v1/sessions", Some(&self.key), "")
            .expect("an answer");
        assert_eq!(page["sessions"], json!([]));
    }
}

#[test]
fn a_cell_of_a_pipe_looks_the_same_as_here() {
    let remote = Remote::start();
    for (cell, code) in [
        ("x = [1, 'a']\nx", 0),
        (
            "print('out')\nimport sys\nprint('err', file=sys.stderr)\n6 * 7",
            0,
        ),
        ("1 / 0", 1),
        ("import sys\nsys.exit(5)", 5),
        ("import os\nos.kill(os.getpid(), 9)", 137),
    ] {
        let there = remote.run(&["session", "--policy", "open"]).stdin(cell).go();
        let here = belljar(Who::User, ["session"]).stdin(cell).go();
        assert_eq!(there.code, Some(code), "{there:#?}");
        assert_eq!((there.code, &there.stdout), (here.code, &here.stdout), "{cell}");
        assert_eq!(there.stderr, here.stderr, "{cell}");
    }
    remote.expect_no_sessions();
    remote.server.end();
}

#[test]
fn a_program_drives_it_and_interrupts() {
    let remote = Remote::start();
    let mut command = remote.run(&["session", "--json", "--policy", "open"]).command();
    let mut child = spawn(
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null()),
    );
    let mut input = child.stdin.take().expect("its input");
    let mut output = BufReader::new(child.stdout.take().expect("its output")).lines();
    let mut say = |line: Value| writeln!(input, "{line}").expect("a line is taken");
    let mut hear = || -> Value {
        let line = output.next().expect("an answer").expect("a line");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    };
    say(json!({ "id": 1, "code": "x = 20; display('shown'); x + int(input())", "stdin": "1" }));
    assert_eq!(hear()["data"]["text/plain"], "'shown'");
    let done = hear();
    assert_eq!((&done["id"], &done["success"]), (&json!(1), &json!(true)));
    assert_eq!(done["outcome"]["value"], 21);
    assert_eq!(done["record"]["policy_id"], "open");
    say(json!({ "id": 2, "code": "print('up', flush=True)\nwhile True: pass" }));
    // It may come in pieces.
    let mut printed = String::new();
    while printed != "up\n" {
        printed += hear()["text"].as_str().expect("what was printed");
    }
    say(json!({ "id": 3, "interrupt": true }));
    let heard = [hear(), hear()];
    let of = |id: u64| heard.iter().find(|answer| answer["id"] == id).expect("both");
    assert_eq!(of(3)["interrupted"], true);
    assert_eq!(of(2)["outcome"]["exception"]["type"], "KeyboardInterrupt");
    say(json!({ "id": 4, "code": "x" }));
    assert_eq!(hear()["outcome"]["value"], 20);
    say(json!({ "id": 5, "reset": true }));
    assert_eq!(hear()["event"], "reset");
    say(json!({ "id": 6, "code": "x" }));
    assert_eq!(hear()["outcome"]["exception"]["type"], "NameError");
    drop(input);
    assert_eq!(finish(child).status.code(), Some(0));
    remote.expect_no_sessions();
    remote.server.end();
}

#[test]
fn a_person_has_the_same_commands() {
    let remote = Remote::start();
    let place = TempDir::new();
    place.file("in.txt", "from here");
    let run = remote
        .run(&["session", "--policy", "open", "--no-history", "--env", "A=b"])
        .cwd(place.path());
    let mut terminal = Terminal::start(run);
    assert_eq!(terminal.cell("import os; os.environ['A']"), "\"b\"\n");
    assert!(
        terminal
            .cell(":put in.txt 'a dir/in.txt'")
            .contains("put `a dir/in.txt`")
    );
    assert_eq!(terminal.cell("open('a dir/in.txt').read()"), "\"from here\"\n");
    assert!(terminal.cell(":files").contains("a dir/in.txt"));
    assert!(
        terminal
            .cell("n = open('out.txt', 'w').write('from there')")
            .is_empty()
    );
    assert!(terminal.cell(":get out.txt").contains("got out.txt"));
    let got = std::fs::read_to_string(place.path().join("out.txt")).expect("the file");
    assert_eq!(got, "from there");
    terminal.cell("print('printed')");
    assert!(terminal.cell(":logs").contains("printed"));
    assert!(terminal.cell(":get nope").contains("belljar:"));
    assert!(terminal.cell(":limits").contains("the policy of the service"));
    assert!(terminal.cell(":receipt").contains("enforced"));
    assert!(terminal.cell(":reset").contains("a new interpreter is ready"));
    assert!(terminal.cell("os").contains("NameError"));
    // Ctrl-C is for the code there.
    terminal.type_in("while True: pass\r\r");
    std::thread::sleep(std::time::Duration::from_millis(700));
    terminal.type_in(crate::cli::session::terminal::CTRL_C);
    terminal.expect("KeyboardInterrupt");
    terminal.expect(crate::cli::session::terminal::PROMPT);
    terminal.leave();
    remote.expect_no_sessions();
    remote.server.end();
}

#[test]
fn what_the_service_refuses_is_said() {
    let remote = Remote::start();
    let denied = remote
        .run(&["session", "--policy", "open", "--memory", "900G"])
        .stdin("1")
        .go();
    assert_eq!(denied.code, Some(126), "{denied:#?}");
    let line = remote
        .run(&["session", "--json", "--policy", "open", "--memory", "900G"])
        .stdin("{}")
        .go()
        .expect_code(126)
        .json();
    assert_eq!(line["event"], "denied");
    // One that ends while it is used says so, and so does a service that is gone.
    let remote_session = remote.run(&["session", "--policy", "open", "--url", "http://127.0.0.1:9"]);
    let gone = remote_session.stdin("1").go().expect_code(125);
    assert!(gone.stderr.contains("cannot reach"), "{gone:#?}");
    remote.server.end();
}
