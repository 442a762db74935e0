//! P64: what a guest sends on its channel does not inflate the engine's memory, and large values of honest code still arrive.

use std::time::{Duration, Instant};

use belljar::{Execution, Language, Session, Value};

use super::hostile::FORGE;
use super::{good, run, value, with};
use crate::again::{alone, test_name};
use crate::harness::own_memory;

/// Python that makes JSON which is small on the wire and large once it is built.
const DENSE: &str = r#"
def frame(text):
    raw(struct.pack('<I', len(text)) + text)
def nested(count):
    return b'[' + b','.join([b'[' * 90 + b']' * 90] * (count // 91)) + b']'
def wide(count):
    return b'{' + b','.join(b'"%x":0' % n for n in range(count // 2)) + b'}'
def pairs(count):
    return b'[' + b','.join([b'{"a":[0]}'] * (count // 5)) + b']'
def texts(count):
    return b'[' + b','.join([b'"a"'] * count) + b']'
"#;

/// How much an engine may grow by whatever one guest sends. With the former limits eight sessions at once grew it by 3.8 GB.
const GROWTH: u64 = 150 << 20;

async fn forge(session: &Session, code: &str) -> Execution {
    session
        .execute(format!("{FORGE}{DENSE}{code}"))
        .await
        .expect("an execution")
}

/// Waits until the process is small again.
async fn settles(before: u64, what: &str) {
    let deadline = Instant::now() + Duration::from_secs(90);
    loop {
        let grown = own_memory("VmRSS").saturating_sub(before);
        if grown < GROWTH / 2 {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "{what}: the engine holds {grown} bytes more than before"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Everything that a frame can be, with far more in it than a message may have and with as much as it may.
fn frames() -> Vec<(String, String)> {
    let mut all = Vec::new();
    for value in ["nested", "wide", "pairs", "texts"] {
        for count in [3_000_000, 450_000] {
            let value = format!("{value}({count})");
            for (what, before, after) in [
                ("unknown event", r#"{"event":"launch","value":"#, "}"),
                ("unknown field", r#"{"event":"ready","more":"#, "}"),
                ("no event", r#"{"value":"#, "}"),
                (
                    "another cell",
                    r#"{"event":"done","id":999999,"status":"ok","value":"#,
                    "}",
                ),
                ("display", r#"{"event":"display","id":ID,"data":{},"value":"#, "}"),
                ("data", r#"{"event":"display","id":ID,"data":"#, "}"),
                (
                    "unknown tool",
                    r#"{"event":"tool_call","id":ID,"call":CALL,"name":"none","args":["#,
                    "]}",
                ),
                (
                    "tool",
                    r#"{"event":"tool_call","id":ID,"call":CALL,"name":"hang","args":["#,
                    "]}",
                ),
                (
                    "error",
                    r#"{"event":"done","id":ID,"status":"error","error":"#,
                    "}",
                ),
                ("value", r#"{"event":"done","id":ID,"status":"ok","value":"#, "}"),
            ] {
                let code = format!("frame(b'{before}' + {value} + b'{after}')\ntime.sleep(0.05)");
                all.push((format!("{what}: {value}"), code));
            }
        }
    }
    all
}

/// P64. Seen failing with the former limits.
#[test]
fn p64_messages_do_not_inflate_the_engine() {
    alone(test_name!(), || {
        let builder = Session::builder()
            .timeout(Duration::from_secs(60))
            .async_tool("hang", async |_: Value| std::future::pending::<Value>().await);
        with(builder, async |session| {
            value(session, "1").await;
            let before = own_memory("VmRSS");
            for (number, (what, code)) in frames().iter().enumerate() {
                let id = number + 2;
                let code = code
                    .replace("ID", &id.to_string())
                    .replace("CALL", &(1000 + id).to_string());
                drop(forge(session, &code).await);
                let grown = own_memory("VmHWM").saturating_sub(before);
                assert!(grown < GROWTH, "{what}: the engine grew by {grown} bytes");
            }
            settles(before, "one session").await;
            assert_eq!(value(session, "6 * 7").await, Value::Int(42));
        });
    });
}

/// P64, with many sessions that send the most that a message may hold, all at once and again and again. Seen failing with the former
/// limits.
#[test]
fn p64_many_sessions_at_once_do_not_inflate_the_engine() {
    alone(test_name!(), || {
        run(async {
            let mut sessions = Vec::new();
            for _ in 0..8 {
                let builder = Session::builder().timeout(Duration::from_secs(120));
                sessions.push(builder.build().await.expect("a session"));
            }
            let before = own_memory("VmRSS");
            let send = async |session: &Session| {
                for id in 1..6 {
                    let code = format!(
                        "frame(b'{{\"event\":\"launch\",\"value\":' + nested(3000000) + b'}}')\n\
                         frame(b'{{\"event\":\"display\",\"id\":{id},\"data\":{{}},\"value\":' + pairs(450000) + b'}}')\n\
                         frame(b'{{\"event\":\"done\",\"id\":{id},\"status\":\"ok\",\"value\":' + nested(450000) + b'}}')"
                    );
                    drop(forge(session, &code).await);
                }
            };
            tokio::join!(
                send(&sessions[0]),
                send(&sessions[1]),
                send(&sessions[2]),
                send(&sessions[3]),
                send(&sessions[4]),
                send(&sessions[5]),
                send(&sessions[6]),
                send(&sessions[7]),
            );
            let peak = own_memory("VmHWM").saturating_sub(before);
            assert!(peak < 3 * GROWTH, "the engine grew by {peak} bytes");
            settles(before, "eight sessions").await;
            for session in sessions {
                assert_eq!(value(&session, "6 * 7").await, Value::Int(42));
                session.close().await.expect("a close");
            }
        });
    });
}

/// What honest code returns is not what the limits are for.
#[test]
fn large_values_arrive() {
    alone(test_name!(), || {
        with(Session::builder(), async |session| {
            let text = value(session, "'x' * (5 << 20)").await;
            assert_eq!(text.as_text().map(str::len), Some(5 << 20));
            let odd = value(session, "'\\0' * (1 << 20)").await;
            assert_eq!(odd.as_text().map(str::len), Some(1 << 20));
            let numbers = value(session, "list(range(100_000))").await;
            assert_eq!(numbers.items().map(<[Value]>::len), Some(100_000));
            let rows = value(
                session,
                "[{'id': n, 'name': str(n), 'ok': True} for n in range(30_000)]",
            )
            .await;
            assert_eq!(rows.items().map(<[Value]>::len), Some(30_000));
            let bytes = value(session, "bytes(5 << 20)").await;
            assert_eq!(bytes, Value::bytes(vec![0; 5 << 20]));
            // What is too many is cut, and ends nothing.
            let many = value(session, "[True] * 1_000_000").await;
            assert!(matches!(&many, Value::Cut(cut) if cut.why == "size"), "{many:?}");
            let deep = value(session, "[[[[]]]] * 300_000").await;
            assert!(matches!(&deep, Value::Cut(cut) if cut.why == "size"), "{deep:?}");
            good(session.execute("1").await);
        });
        with(
            Session::builder()
                .language(Language::Javascript)
                .memory(belljar::Bytes::from_mib(1024)),
            async |session| {
                let text = value(session, "'x'.repeat(5 << 20)").await;
                assert_eq!(text.as_text().map(str::len), Some(5 << 20));
                let odd = value(session, "'\\0'.repeat(1 << 20)").await;
                assert_eq!(odd.as_text().map(str::len), Some(1 << 20));
                let numbers = value(session, "Array.from({length: 100000}, (_, n) => n)").await;
                assert_eq!(numbers.items().map(<[Value]>::len), Some(100_000));
                for many in [
                    "Array(1000000).fill(true)",
                    "Array(1000000).fill(new Date(0))",
                    "Array(1000000).fill({})",
                    "Array(300000).fill([[[]]])",
                    "Array(500000).fill({a: 1})",
                    "Array(500000).fill(new Set())",
                    "'\\0'.repeat(8000000)",
                ] {
                    let size = value(session, many).await.to_json().expect("JSON").len();
                    assert!(size <= 9 << 20, "{many}: {size}");
                }
                good(session.execute("1").await);
            },
        );
    });
}
