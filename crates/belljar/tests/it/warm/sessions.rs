//! Many sessions at once: each has its own state, and together they need little.

use std::fs;

use belljar::{Session, Value};
use belljar_linux::PoolSettings;

use super::{below, engine, runtime};
use crate::again::{alone, test_name};

const SESSIONS: usize = 200;

#[test]
fn two_hundred_sessions_live_side_by_side() {
    alone(test_name!(), || {
        super::descriptors::allow(8192);
        let mounts = below::mounts();
        let before = available();
        let engine = engine(PoolSettings::default());
        runtime().block_on(async {
            let mut sessions = Vec::new();
            for number in 0..SESSIONS {
                let session = Session::builder().engine(&engine).build().await;
                let session = session.unwrap_or_else(|error| panic!("session {number}: {error}"));
                let code = format!("mine = {number}; open('mine', 'w').write(str(mine)); mine");
                assert_eq!(value(&session, &code).await, Value::from(number as i64));
                sessions.push(session);
            }
            // Each once more, after all the others.
            for (number, session) in sessions.iter().enumerate() {
                let both = value(session, "[mine, int(open('mine').read())]").await;
                let number = number as i64;
                assert_eq!(both, Value::from(vec![number, number]));
            }
            let (kib, exact) = memory(before);
            let limit = 2 << 20;
            println!("{SESSIONS} sessions: {} MiB, exact: {exact}", kib >> 10);
            assert!(kib < limit, "{SESSIONS} sessions take {} MiB", kib >> 10);
            for session in sessions {
                session.close().await.expect("a close");
            }
        });
        drop(engine);
        below::expect_nothing();
        assert_eq!(below::mounts(), mounts);
    });
}

async fn value(session: &Session, code: &str) -> Value {
    let run = session.execute(code).await.expect("an execution");
    assert!(run.outcome.success(), "{:#?}", run.outcome);
    run.outcome.value.expect("a value")
}

/// Memory of this process and all below it in KiB, each page once; and whether it is that. The processes of
/// sandboxes cannot be looked into without root: then it is what the machine has less than `before`.
fn memory(before: u64) -> (u64, bool) {
    let own = std::process::id();
    let all = below::all();
    let mut pids = all.iter().map(|process| process.pid).chain([own]);
    match pids.try_fold(0, |sum, pid| Some(sum + proportional(pid)?)) {
        Some(kib) => (kib, true),
        None => (before.saturating_sub(available()), false),
    }
}

fn available() -> u64 {
    field("/proc/meminfo", "MemAvailable:").expect("what there is")
}

/// `None` where it may not be looked at.
fn proportional(pid: u32) -> Option<u64> {
    field(&format!("/proc/{pid}/smaps_rollup"), "Pss:")
}

fn field(path: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}
