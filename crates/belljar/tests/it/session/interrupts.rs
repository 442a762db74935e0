//! Interrupts: as Ctrl-C would, and the state is kept.

use std::time::{Duration, Instant};

use belljar::{Language, SandboxStatus, Session, Value};

use super::{good, run, value, with};
use crate::again::{alone, test_name};

/// Not even the session's own deadline comes so early.
const LONG_BEFORE_ITS_END: Duration = Duration::from_secs(20);

/// Executes `code` and interrupts it after a moment.
async fn interrupted(session: &Session, code: &str) -> (belljar::Execution, Duration) {
    let interrupter = session.interrupter();
    let mut at = None;
    let (run, ()) = tokio::join!(session.execute(code), async {
        tokio::time::sleep(Duration::from_millis(400)).await;
        assert!(interrupter.interrupt());
        at = Some(Instant::now());
    });
    (run.expect("an execution"), at.expect("an interrupt").elapsed())
}

#[test]
fn a_busy_loop_a_sleep_and_a_tool_are_interrupted_and_the_state_kept() {
    alone(test_name!(), || {
        let builder = Session::builder().async_tool("hang", || async {
            tokio::time::sleep(Duration::from_secs(600)).await;
        });
        with(builder, async |session| {
            good(session.execute("x = [1]").await);
            for code in [
                "x.append(2)\nwhile True: pass",
                "import time; time.sleep(600)",
                "import asyncio; await asyncio.sleep(600)",
                "hang()",
                "await hang()",
            ] {
                let (run, took) = interrupted(session, code).await;
                assert_eq!(
                    run.outcome.status,
                    SandboxStatus::Killed,
                    "{code}: {:?}",
                    run.outcome
                );
                assert_eq!(run.outcome.error.expect("a reason").kind.word(), "interrupted");
                assert_eq!(
                    run.outcome.exception.expect("what it saw").kind,
                    "KeyboardInterrupt"
                );
                assert_eq!(run.outcome.state_lost, None, "{code}");
                assert!(took < LONG_BEFORE_ITS_END, "{code} took {took:?}");
            }
            assert_eq!(value(session, "x").await, Value::from(vec![1, 2]));
            assert!(!session.interrupter().interrupt(), "nothing is executed");
            assert_eq!(
                value(session, "len(x)").await,
                Value::Int(2),
                "a late interrupt is for nobody"
            );
        });
    });
}

/// Code may catch an interrupt, as it may at a prompt; another one comes two seconds later.
#[test]
fn a_guest_that_ignores_one_interrupt_gets_another() {
    alone(test_name!(), || {
        with(Session::builder(), async |session| {
            let code = "import time\ntry:\n    time.sleep(600)\nexcept KeyboardInterrupt:\n    print('not yet')\ntime.sleep(600)";
            let (run, took) = interrupted(session, code).await;
            assert_eq!(run.outcome.stdout.text(), "not yet\n");
            assert_eq!(run.outcome.error.expect("a reason").kind.word(), "interrupted");
            assert!(
                (Duration::from_secs(1)..LONG_BEFORE_ITS_END).contains(&took),
                "{took:?}"
            );
        });
    });
}

#[test]
fn javascript_is_interrupted_as_well() {
    alone(test_name!(), || {
        with(
            Session::builder().language(Language::Javascript),
            async |session| {
                good(session.execute("let x = 1").await);
                for code in [
                    "while (true) {}",
                    "await new Promise(() => setTimeout(() => {}, 600000))",
                ] {
                    let (run, took) = interrupted(session, code).await;
                    assert_eq!(
                        run.outcome.error.expect("a reason").kind.word(),
                        "interrupted",
                        "{code}"
                    );
                    assert!(took < LONG_BEFORE_ITS_END, "{code} took {took:?}");
                }
                assert_eq!(value(session, "x").await, Value::Int(1));
            },
        );
    });
}

/// Whoever gives up waiting has the code interrupted, and what was waiting behind it gets its turn.
#[test]
fn an_execution_that_nobody_waits_for_is_ended() {
    alone(test_name!(), || {
        run(async {
            let session = Session::builder().build().await.expect("a session");
            good(session.execute("x = 1").await);
            let given_up = tokio::time::timeout(
                Duration::from_millis(300),
                session.execute("import time; time.sleep(600)"),
            );
            assert!(given_up.await.is_err());
            let started = Instant::now();
            assert_eq!(value(&session, "x").await, Value::Int(1));
            assert!(started.elapsed() < LONG_BEFORE_ITS_END);
            // Even where it does not mind.
            let code =
                "import time\nwhile True:\n    try:\n        time.sleep(1)\n    except BaseException: pass";
            let given_up = tokio::time::timeout(Duration::from_millis(300), session.execute(code));
            assert!(given_up.await.is_err());
            let run = session.execute("1").await.expect("an execution");
            assert!(run.outcome.state_lost.is_some());
            session.close().await.expect("a close");
        });
    });
}

#[test]
fn executions_at_the_same_time_are_queued() {
    alone(test_name!(), || {
        with(Session::builder(), async |session| {
            good(session.execute("order = []").await);
            let slow = "import time; time.sleep(0.2); order.append('slow')";
            let (one, two, three) = tokio::join!(
                session.execute(slow),
                session.execute("order.append('quick')"),
                session.execute("order")
            );
            good(one);
            good(two);
            assert_eq!(good(three).outcome.value, Some(vec!["slow", "quick"].into()));
        });
    });
}
