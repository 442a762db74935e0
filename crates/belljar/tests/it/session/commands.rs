//! Commands beside an interpreter, and what one execution brings with it.

use std::time::{Duration, Instant};

use belljar::{
    Cell, ErrorKind, FailureKind, FileState, GuestPath, Language, LimitOverrides, Policy, SandboxStatus,
    Seconds, Session, Tools, Value, Work,
};

use super::{good, raised, value, with};
use crate::again::{alone, test_name};

fn command(words: &[&str]) -> Cell {
    Cell {
        work: Work::Command(words.iter().map(|word| (*word).to_owned()).collect()),
        ..Cell::default()
    }
}

/// A command runs among the files of the interpreter, which keeps its variables.
#[test]
fn a_command_runs_beside_an_interpreter() {
    alone(test_name!(), || {
        for language in [Language::Python, Language::Javascript] {
            let builder = Session::builder().language(language).file("a.txt", "one two");
            with(builder, async |session| {
                good(session.execute("var_x = 5").await);
                let run = good(session.execute(command(&["cat", "a.txt"])).await);
                assert_eq!(run.outcome.stdout.text(), "one two");
                let run = session.execute(command(&["sh", "-c", "exit 3"])).await.unwrap();
                assert_eq!(run.outcome.exit_code, Some(3));
                assert_eq!(run.outcome.error.unwrap().kind, FailureKind::ExitCode);
                let run = session
                    .execute(command(&["sh", "-c", "kill -9 $$"]))
                    .await
                    .unwrap();
                assert_eq!((run.outcome.exit_code, run.outcome.signal), (None, Some(9)));
                let run = session.execute(command(&["no-such-program"])).await.unwrap();
                assert_eq!(run.outcome.status, SandboxStatus::Failed);
                assert!(run.outcome.error.unwrap().message.contains("no-such-program"));
                let typed = Cell {
                    stdin: Some("typed".to_owned()),
                    ..command(&["cat"])
                };
                assert_eq!(good(session.execute(typed).await).outcome.stdout.text(), "typed");
                assert_eq!(value(session, "var_x").await, Value::Int(5));
            });
        }
    });
}

/// Its limits come from the kernel, as those of code do.
#[test]
fn a_command_that_takes_too_long_is_ended() {
    alone(test_name!(), || {
        with(Session::builder(), async |session| {
            let late = Cell {
                limits: LimitOverrides {
                    wall_time: Some(Seconds::new(0.5).unwrap()),
                    ..LimitOverrides::default()
                },
                ..command(&["sleep", "60"])
            };
            let began = Instant::now();
            let run = session.execute(late).await.unwrap();
            assert_eq!(run.outcome.status, SandboxStatus::Timeout);
            assert!(began.elapsed() < Duration::from_secs(20));
            assert_eq!(value(session, "1 + 1").await, Value::Int(2));
        });
    });
}

#[test]
fn an_interrupt_reaches_a_command() {
    alone(test_name!(), || {
        with(Session::builder(), async |session| {
            good(session.execute("x = 1").await);
            let interrupter = session.interrupter();
            let (run, ()) = tokio::join!(session.execute(command(&["sleep", "60"])), async {
                tokio::time::sleep(Duration::from_millis(500)).await;
                interrupter.interrupt();
            });
            assert_eq!(run.unwrap().outcome.signal, Some(2));
            assert_eq!(value(session, "x").await, Value::Int(1));
        });
    });
}

/// R57: the policy's list and the dangerous patterns hold for these as well.
#[test]
fn r57_a_command_is_held_against_the_policy() {
    alone(test_name!(), || {
        let mut policy = Policy::builtin("standard").unwrap();
        policy.allowed_commands = vec!["ls".to_owned(), "rm".to_owned()];
        with(Session::builder().policy(policy), async |session| {
            good(session.execute(command(&["ls"])).await);
            for words in [&["cat", "x"][..], &["rm", "-rf", "/"], &[], &["ls", "a\0b"]] {
                let error = session.execute(command(words)).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Denied, "{words:?}: {error}");
            }
        });
    });
}

/// Globals and tools of one execution are there for it and for those after it, until a reset.
#[test]
fn an_execution_brings_globals_and_tools() {
    alone(test_name!(), || {
        with(Session::builder().global("base", 1), async |session| {
            let mut tools = Tools::new();
            tools.add("double", |x: i64| x * 2);
            let cell = Cell {
                globals: [("given".to_owned(), Value::Int(20))].into(),
                tools,
                ..Cell::from("double(given) + base")
            };
            let run = good(session.execute(cell).await);
            assert_eq!(run.outcome.value, Some(Value::Int(41)));
            assert_eq!(value(session, "double(given)").await, Value::Int(40));
            session.reset().await.unwrap();
            assert_eq!(raised(session, "double(1)").await.kind, "NameError");
            assert_eq!(value(session, "base").await, Value::Int(1));
            let bad = Cell {
                globals: [("not a name".to_owned(), Value::None)].into(),
                ..Cell::from("1")
            };
            assert_eq!(session.execute(bad).await.unwrap_err().kind(), ErrorKind::Usage);
        });
    });
}

#[test]
fn an_execution_gives_files_back() {
    alone(test_name!(), || {
        with(Session::builder(), async |session| {
            let cell = Cell {
                outputs: vec![GuestPath::new("out").unwrap(), GuestPath::new("link").unwrap()],
                ..Cell::from("import os\nopen('out', 'w').write('x')\nos.symlink('/etc/passwd', 'link')")
            };
            let files = good(session.execute(cell).await).outcome.files;
            assert!(matches!(&files[0].state, FileState::Collected { bytes, .. } if bytes == b"x"));
            assert!(matches!(&files[1].state, FileState::Refused { .. }));
        });
    });
}
