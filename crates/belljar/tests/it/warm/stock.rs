//! What waits is bounded, is used once, and goes when nobody needs it.

use std::collections::BTreeSet;
use std::time::Duration;

use belljar::{Bytes, Language};
use belljar_linux::PoolSettings;

use super::{FORKED_AHEAD, POOLED, below, code_in, engine, go, origin, prepare, printed, python, runtime};
use crate::again::{alone, test_name};
use crate::harness::control_groups;

/// Plants in every place there is, then says what others left there.
const PLANT_AND_LOOK: &str = "
import ctypes, glob, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
seen = []
for place in ('/tmp', '/dev/shm', '.'):
    if os.path.isdir(place):
        seen += [place + '/' + name for name in os.listdir(place) if name.startswith('planted')]
        try: open(place + '/planted', 'w').write('x')
        except OSError: pass
segment = libc.shmget(4711, 4096, 0)
if segment != -1: seen.append('shm')
libc.shmget(4711, 4096, 0o1600)
if libc.msgget(4711, 0) != -1: seen.append('queue')
libc.msgget(4711, 0o1600)
s = socket.socket(socket.AF_UNIX)
try: s.connect('\\0planted'); seen.append('socket')
except OSError: pass
s = socket.socket(socket.AF_UNIX); s.bind('\\0planted'); s.listen()
others = [p for p in glob.glob('/proc/[0-9]*') if p not in ('/proc/1', '/proc/%d' % os.getpid())]
# The holder of a warm program's memory is the program's own child.
others = [p for p in others if 'PPid:\\t%d\\n' % os.getpid() not in open(p + '/status').read()]
if others: seen.append('processes %s' % others)
import builtins
if hasattr(builtins, 'planted'): seen.append('memory')
builtins.planted = True
if os.environ.get('PLANTED'): seen.append('variable')
os.environ['PLANTED'] = 'x'
if os.fork() == 0:
    os.setsid()
    import time; time.sleep(60)
print(seen)
";

#[test]
fn no_sandbox_is_used_twice() {
    alone(test_name!(), || {
        for warm in [true, false] {
            let engine = engine(PoolSettings {
                warm,
                ..PoolSettings::default()
            });
            let request = python(PLANT_AND_LOOK);
            prepare(&engine, &request);
            runtime().block_on(async {
                let mut ids = BTreeSet::new();
                for _ in 0..12 {
                    let run = go(&engine, &request).await;
                    assert_eq!(printed(&run), "[]\n");
                    ids.insert(run.outcome.sandbox_id.clone());
                }
                assert_eq!(ids.len(), 12);
            });
            drop(engine);
            below::expect_nothing();
        }
    });
}

/// Within one sandbox the same program does see what it planted, so the test above can fail.
#[test]
fn what_was_planted_is_seen_within_one_sandbox() {
    alone(test_name!(), || {
        let mut sandbox = belljar::blocking::Sandbox::builder().build().expect("a sandbox");
        let mut look = || {
            let run = sandbox.exec(["python3", "-c", PLANT_AND_LOOK]).expect("a run");
            run.outcome.stdout.text()
        };
        assert_eq!(look(), "[]\n");
        let again = look();
        for place in ["/tmp/planted", "/dev/shm/planted", "./planted"] {
            assert!(again.contains(place), "{again}");
        }
    });
}

/// However many shapes are asked for, no more wait than the settings say.
#[test]
fn idle_stock_is_bounded() {
    alone(test_name!(), || {
        let before = below::mounts();
        let engine = engine(PoolSettings {
            stock: 3,
            most: 7,
            after: 1,
            ..PoolSettings::default()
        });
        runtime().block_on(async {
            for round in 0..3 {
                for shape in 0..6 {
                    let mut request = python("print(1)");
                    request.limits.memory = Some(Bytes::from_mib(100 + shape));
                    assert_eq!(printed(&go(&engine, &request).await), "1\n", "round {round}");
                    // What is given up for another, or over, is seen until the kernel has cleared it away.
                    below::wait_until("at most seven wait", || below::inits().len() <= 7);
                }
            }
        });
        // Nothing more comes once it has settled; without a bound there would be eighteen.
        std::thread::sleep(Duration::from_millis(500));
        assert!(below::inits().len() <= 7, "{:?}", below::inits());
        // They are what the last shapes need, not what the first one left.
        let mut last = python("print(1)");
        last.limits.memory = Some(Bytes::from_mib(105));
        let run = runtime().block_on(go(&engine, &last));
        assert_eq!(printed(&run), "1\n");
        assert_eq!(below::launchers().len(), 1);
        assert_eq!(below::zygotes().len(), 1, "one interpreter serves all shapes");
        drop(engine);
        below::expect_nothing();
        assert_eq!(below::mounts(), before);
    });
}

/// Nothing is made ahead where that would take the memory that others need.
#[test]
fn stock_leaves_memory_to_others() {
    alone(test_name!(), || {
        let engine = engine(PoolSettings {
            after: 1,
            spare_memory: u64::MAX,
            ..PoolSettings::default()
        });
        let request = python("print(1)");
        let refusal = engine.prepare(&super::owner(&request), &request);
        let refusal = refusal.expect_err("too little memory").to_string();
        assert!(refusal.contains("memory"), "{refusal}");
        runtime().block_on(async {
            for _ in 0..5 {
                let run = go(&engine, &request).await;
                assert_eq!(printed(&run), "1\n");
                assert_ne!(origin(&run), FORKED_AHEAD);
            }
        });
        below::wait_until("nobody waits", || below::inits().is_empty());
        drop(engine);
        below::expect_nothing();
    });
}

/// A stock that nobody asks for any more goes, and comes back when it is wanted again.
#[test]
fn stale_stock_goes_away() {
    alone(test_name!(), || {
        let engine = engine(PoolSettings {
            idle: Duration::from_secs(1),
            ..PoolSettings::default()
        });
        let request = python("print(1)");
        prepare(&engine, &request);
        assert_eq!(below::inits().len(), 4);
        below::wait_until("nobody waits any more", || {
            below::inits().is_empty() && below::forks().is_empty()
        });
        // Groups go only after the last process in them has.
        below::wait_until("their groups are gone", || {
            control_groups(std::process::id()).is_empty()
        });
        prepare(&engine, &request);
        assert_eq!(origin(&runtime().block_on(go(&engine, &request))), FORKED_AHEAD);
    });
}

#[test]
fn dropping_the_engine_leaves_nothing() {
    alone(test_name!(), || {
        let mounts = below::mounts();
        let mut descriptors = Vec::new();
        for _ in 0..3 {
            let engine = engine(PoolSettings::default());
            let shell = code_in(Language::Bash, "echo 1");
            prepare(&engine, &python("print(1)"));
            prepare(&engine, &shell);
            assert!(below::inits().len() >= 8, "{:?}", below::all());
            assert!(!below::zygotes().is_empty() && !below::nurseries().is_empty());
            runtime().block_on(async {
                assert_eq!(origin(&go(&engine, &python("print(1)")).await), FORKED_AHEAD);
                assert_eq!(origin(&go(&engine, &shell).await), POOLED);
            });
            // While more is being raised in the background.
            drop(engine);
            below::expect_nothing();
            assert_eq!(below::mounts(), mounts);
            assert!(control_groups(std::process::id()).is_empty());
            descriptors.push(below::descriptors());
        }
        // The first round may have left something that is made once for the whole process.
        assert_eq!(descriptors[1], descriptors[2], "{descriptors:?}");
    });
}
