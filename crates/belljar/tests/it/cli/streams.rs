//! Streams: live output, piped input, an early end by signal or by a reader that leaves.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Done, TempDir, Who, belljar, everyone, expect_nothing_left, finish, spawn};

fn start(who: Who, args: &[&str]) -> Child {
    spawn(&mut belljar(who, args.iter().copied()).command())
}

/// Waits for the end of a child and looks for what it left.
fn end(child: Child) -> Done {
    let pid = child.id();
    let started = Instant::now();
    let output = finish(child);
    let done = Done {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        took: started.elapsed(),
    };
    expect_nothing_left(pid, &done);
    done
}

#[test]
fn output_comes_as_it_is_printed_and_input_as_it_is_typed() {
    let code = "import sys\nprint('ready', flush=True)\nfor line in sys.stdin: print('heard', line.strip(), flush=True)";
    for who in everyone() {
        let mut child = start(who, &["run", "-c", code]);
        let mut input = child.stdin.take().expect("stdin");
        let mut output = BufReader::new(child.stdout.take().expect("stdout"));
        let mut next = || {
            let mut line = String::new();
            output.read_line(&mut line).expect("a line");
            line
        };
        // Each answer can only come while the program is still running.
        assert_eq!(next(), "ready\n");
        for word in ["one", "two"] {
            writeln!(input, "{word}").expect("typed");
            assert_eq!(next(), format!("heard {word}\n"));
        }
        drop(input);
        assert_eq!(next(), "");
        end(child).expect_code(0);
    }
}

#[test]
fn input_is_piped_whole_and_may_be_left_unread() {
    let megabytes = vec![b'x'; 8 << 20];
    let dir = TempDir::new();
    let file = dir.file("input", "from a file");
    for who in everyone() {
        let count = "import sys; print(len(sys.stdin.buffer.read()))";
        belljar(who, ["run", "-c", count])
            .stdin(&megabytes)
            .go()
            .expect_code(0)
            .expect_stdout("8388608\n");
        belljar(who, ["run", "-c", "print('did not look')"])
            .stdin(&megabytes)
            .go()
            .expect_code(0)
            .expect_stdout("did not look\n");
        let file = file.to_str().expect("plain");
        belljar(who, ["exec", "--stdin", file, "--", "cat"])
            .stdin("ours")
            .go()
            .expect_code(0)
            .expect_stdout("from a file");
        belljar(who, ["exec", "--stdin", "-", "--", "cat"])
            .stdin("ours")
            .go()
            .expect_code(0)
            .expect_stdout("ours");
        // The code itself may come from there; then nothing is left of it for the program.
        let code = "import sys; print(sys.argv[1:], repr(sys.stdin.read()))";
        belljar(who, ["run", "-", "--lang", "python", "--", "-x", "--json"])
            .stdin(code)
            .go()
            .expect_code(0)
            .expect_stdout("['-x', '--json'] ''\n");
        belljar(who, ["run", "-"])
            .stdin("#!/bin/bash\necho by its first line")
            .go()
            .expect_code(0)
            .expect_stdout("by its first line\n");
    }
}

#[test]
fn bytes_pass_unchanged() {
    for who in everyone() {
        let mut child = start(who, &["exec", "--", "cat"]);
        let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        let mut input = child.stdin.take().expect("stdin");
        let sent = bytes.clone();
        let writer = std::thread::spawn(move || input.write_all(&sent).expect("written"));
        let mut got = Vec::new();
        child
            .stdout
            .take()
            .expect("stdout")
            .read_to_end(&mut got)
            .expect("read");
        writer.join().expect("writer");
        assert_eq!(got, bytes);
        end(child).expect_code(0);
    }
}

#[test]
fn an_interrupt_ends_the_run_with_137_and_leaves_nothing() {
    let code = "trap '' INT TERM; (setsid sleep 600 &) ; echo started; while :; do sleep 1; done";
    for who in everyone() {
        for signal in [Signal::INT, Signal::TERM] {
            for json in [false, true] {
                let mut args = vec!["run", "--lang", "bash", "-c", code];
                args.extend(json.then_some("--json"));
                let mut child = start(who, &args);
                let input = child.stdin.take();
                if json {
                    std::thread::sleep(Duration::from_millis(500));
                } else {
                    let mut line = [0; 8];
                    child
                        .stdout
                        .as_mut()
                        .expect("stdout")
                        .read_exact(&mut line)
                        .expect("a line");
                }
                let pid = Pid::from_raw(child.id().cast_signed()).expect("a pid");
                kill_process(pid, signal).expect("interrupted");
                let done = end(child).expect_code(137);
                drop(input);
                if json {
                    assert_eq!(done.json()["outcome"]["status"], "killed");
                    assert_eq!(done.json()["outcome"]["error"]["type"], "cancelled");
                } else {
                    assert_eq!(done.stderr, "belljar: the program was stopped by its caller\n");
                }
                assert!(done.took < Duration::from_secs(10), "{:?}", done.took);
            }
        }
    }
}

/// As in `belljar run … | head -1`: there is nothing to run for when nobody reads.
#[test]
fn a_reader_that_leaves_ends_the_run() {
    for who in everyone() {
        let mut child = start(who, &["exec", "--", "yes"]);
        let mut output = child.stdout.take().expect("stdout");
        output.read_exact(&mut [0; 2]).expect("a line");
        drop(output);
        let done = end(child);
        assert_eq!((done.code, done.stderr.as_str()), (Some(137), ""));
        assert!(done.took < Duration::from_secs(10), "{:?}", done.took);
    }
}

/// What a guest prints is its own; our lines stand apart from it and hold nothing of it unescaped.
#[test]
fn a_guests_bytes_never_act_within_our_own_lines() {
    let loud = "import sys, time\nsys.stderr.write('\\x1b]0;title\\x07\\rbelljar: all is well')\nsys.stderr.flush()\ntime.sleep(60)";
    for who in everyone() {
        let done = belljar(who, ["run", "--timeout", "1s", "-c", loud])
            .go()
            .expect_code(124);
        let ours: Vec<_> = done.stderr.split('\n').skip(1).collect();
        assert_eq!(
            ours,
            [
                "belljar: the program did not end within 1 s",
                "hint: give it longer with --timeout",
                ""
            ],
            "{done:#?}"
        );

        let done = belljar(who, ["exec", "--", "\u{1b}[2J\r\nbelljar: fake"])
            .go()
            .expect_code(125);
        assert_eq!(
            done.stderr,
            "belljar: the program cannot start: `\\u{1b}[2J\\r\\nbelljar: fake` is not there\n"
        );

        let dir = TempDir::new();
        let names =
            "import os\nos.mkdir('d')\nos.symlink('/etc/passwd', 'd/\\x1b[31m\\r\\nbelljar: fake\\u202e')";
        let done = belljar(who, ["run", "--out", "d", "-c", names])
            .cwd(dir.path())
            .go()
            .expect_code(1);
        assert_eq!(
            done.stderr,
            "belljar: `d/\\x1b[31m\\x0d\\x0abelljar: fake\\xe2\\x80\\xae` was not taken: a symbolic link, not a regular file\n"
        );
    }
}
