//! A guest that speaks on the control channel itself. It harms its own session and nobody else.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use belljar::{Execution, SandboxStatus, Session, Value};

use super::{good, value, with};
use crate::again::{alone, test_name};
use crate::harness::own_memory;

/// Python that sends frames of its own on descriptor 3.
pub(super) const FORGE: &str = "import os, json, struct, time
def raw(data):
    while data:
        data = data[os.write(3, data):]
def send(message):
    text = json.dumps(message).encode()
    raw(struct.pack('<I', len(text)) + text)
";

async fn forge(session: &Session, code: &str) -> Execution {
    session
        .execute(format!("{FORGE}{code}"))
        .await
        .expect("an execution")
}

/// S3: replayed and unknown numbers are refused and flagged, and the tool does not run again. Seen failing
/// without the comparison with the highest number in `session/calls.rs`.
#[test]
fn s3_replayed_tool_calls_are_refused() {
    alone(test_name!(), || {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let builder = Session::builder().tool("tick", move || counted.fetch_add(1, Ordering::SeqCst) as u64);
        with(builder, async |session| {
            let code = "tick()\nfor call in (0, 1, 1, 1):\n    send({'event': 'tool_call', 'id': 1, 'call': call, 'name': 'tick', 'args': [], 'kwargs': {}})\ntime.sleep(0.2)\ntick()";
            let run = forge(session, code).await;
            assert!(
                run.outcome.flags.iter().any(|flag| flag.contains("used again (")),
                "{:?}",
                run.outcome
            );
            assert_eq!(count.load(Ordering::SeqCst), 2, "only the honest two");
            // Another execution's id, whether over or to come, is none of this one's.
            let code = "for id in (1, 3, 99):\n    send({'event': 'tool_call', 'id': id, 'call': 500 + id, 'name': 'tick', 'args': [], 'kwargs': {}})\ntime.sleep(0.2)";
            let run = forge(session, code).await;
            assert_eq!(run.outcome.flags, ["a tool call of another execution (3)"]);
            assert_eq!(count.load(Ordering::SeqCst), 2);
            assert_eq!(value(session, "1").await, Value::Int(1));
        });
    });
}

/// P49: a forged `done` says no more than the code itself could; limits are not lifted by it.
#[test]
fn p49_a_forged_end_is_only_the_guests_word() {
    alone(test_name!(), || {
        with(
            Session::builder().timeout(Duration::from_secs(2)),
            async |session| {
                // A cell that lies about itself is believed about itself. What it still does is for nobody.
                let run = forge(
                    session,
                    "send({'event': 'done', 'id': 1, 'status': 'ok', 'value': 'forged'})",
                )
                .await;
                assert_eq!(run.outcome.value, Some("forged".into()));
                // Its runner's own `done` comes later and belongs to no execution.
                let run = good(session.execute("'honest'").await);
                assert_eq!(run.outcome.value, Some("honest".into()), "{:?}", run.outcome);
                // What is not known, or of another execution, ends nothing.
                let code = "for m in ({'event': 'done', 'id': 77, 'status': 'ok'}, {'event': 'done', 'id': 3}, {'event': 'launch'}, {'event': 'ready'}, [], 1, {}):\n    send(m)\n'mine'";
                let run = forge(session, code).await;
                assert_eq!(run.outcome.value, Some("mine".into()), "{:?}", run.outcome);
                assert_eq!(
                    run.outcome.flags,
                    [
                        "a message about another execution (1)",
                        "a message that is not known (6)"
                    ]
                );
                // An exit code and a usage of its own are no fields that anybody reads.
                let code = "send({'event': 'done', 'id': 4, 'status': 'ok', 'exit_code': 7, 'usage': {'cpu_seconds': -1}, 'state_lost': 'all'})";
                let run = forge(session, code).await;
                assert_eq!((run.outcome.exit_code, run.outcome.state_lost), (Some(0), None));
                assert!(run.outcome.usage.cpu_seconds >= 0.0);
                // The clock is the engine's.
                let run = session.execute("while True: pass").await.expect("an execution");
                assert_eq!(run.outcome.status, SandboxStatus::Timeout);
                assert_eq!(value(session, "1").await, Value::Int(1));
            },
        );
    });
}

/// P50: what is no message ends the channel, says so, and the next execution finds a new interpreter.
#[test]
fn p50_what_is_no_message_ends_the_channel_and_says_so() {
    alone(test_name!(), || {
        with(
            Session::builder().timeout(Duration::from_secs(5)),
            async |session| {
                for (code, why) in [
                    ("raw(b'\\xff' * 64)\ntime.sleep(60)", "bytes was announced"),
                    ("raw(struct.pack('<I', 4) + b'oops')\ntime.sleep(60)", "not JSON"),
                    ("raw(struct.pack('<I', 3) + b'NaN')\ntime.sleep(60)", "not JSON"),
                    (
                        "raw(struct.pack('<I', 1000000) + b'[' * 1000000)\ntime.sleep(60)",
                        "nested deeper",
                    ),
                    ("raw(struct.pack('<I', 0))\ntime.sleep(60)", "not JSON"),
                    ("os.close(3)\ntime.sleep(60)", "closed its channel"),
                    (
                        "text = b'{\"event\":\"display\",\"id\":1,\"data\":{},\"value\":[' + b'0,' * 20000000 + b'0]}'\nraw(struct.pack('<I', len(text)) + text)\ntime.sleep(60)",
                        "holds more than",
                    ),
                ] {
                    let started = Instant::now();
                    let run = forge(session, code).await;
                    let error = run.outcome.error.expect("a reason");
                    assert_eq!(error.kind.word(), "protocol", "{code}: {error:?}");
                    assert!(error.message.contains(why), "{code}: {error:?}");
                    assert_eq!(
                        run.outcome.state_lost.expect("lost").word(),
                        "variables",
                        "{code}"
                    );
                    assert!(
                        started.elapsed() < Duration::from_secs(40),
                        "{code}: {:?}",
                        started.elapsed()
                    );
                    assert_eq!(value(session, "6 * 7").await, Value::Int(42));
                }
            },
        );
    });
}

/// Half a frame, or one byte a second, holds up this session until its deadline, and a neighbour not at all.
#[test]
fn half_frames_and_single_bytes_hold_up_nobody_else() {
    alone(test_name!(), || {
        with(
            Session::builder().timeout(Duration::from_secs(5)),
            async |session| {
                let neighbour = Session::builder().build().await.expect("a neighbour");
                for code in [
                    "raw(struct.pack('<I', 60 << 20) + b'{')\ntime.sleep(60)",
                    "for byte in struct.pack('<I', 100) + b'x' * 100:\n    raw(bytes([byte]))\n    time.sleep(1)",
                ] {
                    let answered = Cell::new(false);
                    let held_up = async {
                        let run = forge(session, code).await;
                        assert_eq!(run.outcome.status, SandboxStatus::Timeout, "{:?}", run.outcome);
                        assert!(answered.get(), "the neighbour had to wait");
                    };
                    let meanwhile = async {
                        tokio::time::sleep(Duration::from_millis(500)).await;
                        assert_eq!(value(&neighbour, "1").await, Value::Int(1));
                        answered.set(true);
                    };
                    tokio::join!(held_up, meanwhile);
                    assert_eq!(value(session, "1").await, Value::Int(1));
                }
                neighbour.close().await.expect("a close");
            },
        );
    });
}

/// A guest that sends without end, and one that never reads its answers: bounded, and over at the deadline.
#[test]
fn a_flood_of_messages_is_over_at_the_deadline() {
    alone(test_name!(), || {
        let builder = Session::builder()
            .timeout(Duration::from_secs(2))
            .tool("tick", || 1);
        with(builder, async |session| {
            let before = own_memory("VmRSS");
            for code in [
                "while True: send({'event': 'display', 'id': 1, 'data': {'text/plain': 'x' * 1000}})",
                "while True: send({'event': 'nonsense', 'data': 'x' * 100000})",
                "one = b''.join(struct.pack('<I', len(t)) + t for t in [json.dumps({'event': 'tool_call', 'id': 3, 'call': n, 'name': 'tick', 'args': [], 'kwargs': {}}).encode() for n in range(1000)])\nwhile True: raw(one)",
            ] {
                let started = Instant::now();
                let run = forge(session, code).await;
                assert_eq!(
                    run.outcome.status,
                    SandboxStatus::Timeout,
                    "{code}: {:?}",
                    run.outcome.error
                );
                assert!(!run.outcome.flags.is_empty(), "{code}");
                assert!(run.outcome.displays.len() <= 1000);
                assert!(run.outcome.tool_calls.len() <= 100);
                assert!(
                    started.elapsed() < Duration::from_secs(30),
                    "{code}: {:?}",
                    started.elapsed()
                );
            }
            let grown = own_memory("VmRSS").saturating_sub(before);
            assert!(grown < 200 << 20, "the engine grew by {grown} bytes");
            assert_eq!(value(session, "1").await, Value::Int(1));
        });
    });
}

/// A guest that asks for large answers and never reads them: they do not pile up in the engine.
#[test]
fn answers_that_nobody_reads_do_not_pile_up() {
    alone(test_name!(), || {
        let builder = Session::builder()
            .timeout(Duration::from_secs(3))
            .async_tool("large", || async { "x".repeat(8 << 20) });
        with(builder, async |session| {
            let before = own_memory("VmRSS");
            let code = "for n in range(100):\n    send({'event': 'tool_call', 'id': 1, 'call': n + 1, 'name': 'large', 'args': [], 'kwargs': {}})\ntime.sleep(60)";
            let run = forge(session, code).await;
            assert_eq!(run.outcome.status, SandboxStatus::Timeout);
            let done = run
                .outcome
                .tool_calls
                .iter()
                .filter(|call| call.error.is_none())
                .count();
            assert!((1..20).contains(&done), "{done} answers were made");
            let grown = own_memory("VmRSS").saturating_sub(before);
            assert!(grown < 250 << 20, "the engine grew by {grown} bytes");
            assert_eq!(value(session, "len(large())").await, Value::Int(8 << 20));
        });
    });
}

/// What a guest does between executions is for nobody, and does not hold up the next one.
#[test]
fn a_guest_that_talks_between_executions_is_not_heard() {
    alone(test_name!(), || {
        with(Session::builder(), async |session| {
            let code = "import threading\nstop = False\ndef talk():\n    n = 1000\n    while not stop:\n        n += 1\n        send({'event': 'display', 'id': 2, 'data': {'text/plain': 'early'}})\n        print('x' * 100)\nthreading.Thread(target=talk, daemon=True).start()";
            forge(session, code).await;
            tokio::time::sleep(Duration::from_millis(500)).await;
            let started = Instant::now();
            let run = session
                .execute("stop = True\n'next'")
                .await
                .expect("an execution");
            assert_eq!(run.outcome.value, Some("next".into()), "{:?}", run.outcome.error);
            assert!(
                started.elapsed() < Duration::from_secs(30),
                "{:?}",
                started.elapsed()
            );
        });
    });
}

/// An interpreter that died between executions is replaced, and that is said.
#[test]
fn an_interpreter_that_ends_between_executions_is_missed() {
    alone(test_name!(), || {
        with(Session::builder(), async |session| {
            good(session.execute("import os, threading\nx = 1\nopen('f', 'w').write('x')\nthreading.Timer(0.2, lambda: os._exit(0)).start()").await);
            tokio::time::sleep(Duration::from_millis(800)).await;
            let run = session.execute("open('f').read()").await.expect("an execution");
            assert_eq!(run.outcome.state_lost.expect("lost").word(), "variables");
            assert_eq!(run.outcome.value, Some("x".into()));
            assert_eq!(good(session.execute("2").await).outcome.value, Some(2.into()));
        });
    });
}
