//! All of standard input as one cell.

use crate::cli::expect_one_problem;
use crate::harness::{TempDir, belljar, everyone};

#[test]
fn a_piped_cell_prints_its_value() {
    for who in everyone() {
        let code = "def f(x):\n    return x\n\nprint('out')\nf({'a': True})";
        let done = belljar(who, ["session"]).stdin(code).go().expect_code(0);
        assert_eq!(
            (done.stdout.as_str(), done.stderr.as_str()),
            ("out\n{\"a\": True}\n", "")
        );
        let done = belljar(who, ["session", "--lang", "javascript"]).stdin("const x = {a: [true, null]}; x");
        done.go().expect_code(0).expect_stdout("{\"a\": [true, null]}\n");
        // A line that the code left open does not swallow the value.
        let done = belljar(who, ["session"])
            .stdin("print('a', end='')\n7")
            .go()
            .expect_code(0);
        assert_eq!(done.stdout, "a\n7\n");
        belljar(who, ["session"]).go().expect_code(0).expect_stdout("");
    }
}

#[test]
fn the_exit_code_is_the_cells() {
    for who in everyone() {
        let done = belljar(who, ["session"])
            .stdin("x = 1\nx / 0")
            .go()
            .expect_code(1);
        assert!(done.stderr.starts_with("Traceback"), "{done:#?}");
        assert!(done.stderr.contains("line 2"), "{done:#?}");
        assert!(
            done.stderr.ends_with("ZeroDivisionError: division by zero\n"),
            "{done:#?}"
        );
        let done = belljar(who, ["session"])
            .stdin("raise SystemExit(7)")
            .go()
            .expect_code(7);
        assert_eq!(done.stderr, "belljar: the code asked to exit with 7\n");
        let done = belljar(who, ["session", "--timeout", "500ms"])
            .stdin("while True: pass")
            .go();
        let done = done.expect_code(124);
        assert!(
            done.stderr
                .contains("the cell did not end within 0.5 s\nhint: give it longer with --timeout\n"),
            "{done:#?}"
        );
        let done = belljar(who, ["session", "--memory", "64M"])
            .stdin("x = bytearray(10**9)")
            .go();
        assert!(matches!(done.code, Some(1 | 137)), "{done:#?}");
        let done = belljar(who, ["session", "--allow-import", "math,json"])
            .stdin("import math\nimport os")
            .go();
        assert!(done.expect_code(1).stderr.contains("not allowed"));
    }
}

#[test]
fn what_cannot_be_understood_is_told() {
    for who in everyone() {
        let dir = TempDir::new();
        for (args, input, code) in [
            (&["session"][..], &b"\xff\xfe"[..], 2),
            (&["session", "--lang", "klingon"], b"", 2),
            (&["session", "--lang", "ruby"], b"", 126),
            (&["session", "--pictures", "/nonexistent"], b"", 2),
            (&["session", "--allow-import", "a,,b"], b"", 2),
            (&["session", "--memory", "lots"], b"", 2),
            (&["session", "-E", "nosuch"], b"", 2),
        ] {
            let run = belljar(who, args.iter().copied()).cwd(dir.path()).stdin(input);
            let done = run
                .env("BELLJAR_HOME", &dir.path().join("home").to_string_lossy())
                .go()
                .expect_code(code);
            expect_one_problem(&done);
        }
        // NUL bytes are for the interpreter to judge.
        let done = belljar(who, ["session"]).stdin(b"x = 1\0").go().expect_code(1);
        assert!(done.stderr.contains("null bytes"), "{done:#?}");
        // More than an execution takes, as a whole and in one line.
        let long = "x = 1 #".to_owned() + &"x".repeat(10 << 20);
        let done = belljar(who, ["session"]).stdin(long).go().expect_code(2);
        expect_one_problem(&done);
        assert!(done.stderr.contains("more than the 8 MiB"), "{done:#?}");
    }
}

#[test]
fn pictures_are_saved_under_free_names() {
    const CODE: &str =
        "class P:\n    def _repr_png_(self):\n        return b'\\x89PNG not really'\ndisplay(P())\nP()";
    for who in everyone() {
        let dir = TempDir::new();
        dir.file("belljar-1-1.png", "mine");
        let run = belljar(who, ["session", "--pictures", "."])
            .cwd(dir.path())
            .stdin(CODE);
        let done = run.go().expect_code(0).expect_stdout("");
        assert_eq!(
            done.stderr,
            "belljar: saved belljar-1-2.png (15 B)\nbelljar: saved belljar-1-3.png (15 B)\n"
        );
        let content = std::fs::read(dir.path().join("belljar-1-2.png")).expect("a picture");
        assert_eq!(content, b"\x89PNG not really");
        assert_eq!(
            std::fs::read(dir.path().join("belljar-1-1.png")).expect("mine"),
            b"mine"
        );
    }
}
