//! Limits of executions and of sessions, and what is left after they bite.

use std::time::{Duration, Instant};

use belljar::{
    Bytes, Cell, ErrorKind, LimitOverrides, Policy, SandboxStatus, Seconds, Session, StateLost, Value, Work,
};

use super::{good, raised, run, value, with};
use crate::again::{alone, test_name};

/// R40: an endless loop is a timeout, says that its state is gone, and the session is usable again.
#[test]
fn r40_a_timeout_takes_the_state_and_the_session_goes_on() {
    alone(test_name!(), || {
        let builder = Session::builder().timeout(Duration::from_secs(1)).global("g", 5);
        with(builder, async |session| {
            good(session.execute("x = 1\nopen('f', 'w').write('x')").await);
            for code in [
                "while True: pass",
                "import time\nwhile True:\n    try: time.sleep(100)\n    except BaseException: pass",
                "import signal, time\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\ntime.sleep(100)",
            ] {
                let started = Instant::now();
                let run = session.execute(code).await.expect("an execution");
                assert_eq!(run.outcome.status, SandboxStatus::Timeout, "{code}");
                assert_eq!(
                    run.outcome.error.as_ref().expect("a reason").kind.word(),
                    "timeout"
                );
                assert_eq!(
                    run.outcome.state_lost,
                    Some(StateLost::VariablesAndFiles),
                    "{code}"
                );
                assert!(
                    started.elapsed() < Duration::from_secs(60),
                    "{:?}",
                    started.elapsed()
                );
                let spins = code == "while True: pass";
                assert!(
                    !spins || run.outcome.usage.cpu_seconds > 0.02,
                    "{:?}",
                    run.outcome.usage
                );
                // Said once; then it is an ordinary session again, with its globals.
                assert_eq!(value(session, "g").await, Value::Int(5));
                assert_eq!(raised(session, "x").await.kind, "NameError");
            }
        });
    });
}

/// R40, R23: too much memory at once is Python's own MemoryError; all of it in small pieces ends the interpreter.
#[test]
fn r40_memory_that_runs_out_and_a_session_that_goes_on() {
    alone(test_name!(), || {
        let builder = Session::builder()
            .memory(Bytes::from_mib(100))
            .timeout(Duration::from_secs(30));
        with(builder, async |session| {
            good(session.execute("x = 1").await);
            let exception = raised(session, "data = 'x' * (500 * 1024 * 1024)").await;
            assert_eq!(exception.kind, "MemoryError");
            assert_eq!(value(session, "x").await, Value::Int(1), "the state is kept");
            let code = "import mmap\nkept = []\nwhile True:\n    m = mmap.mmap(-1, 1 << 20)\n    m.write(b'x' * (1 << 20))\n    kept.append(m)";
            let run = session.execute(code).await.expect("an execution");
            assert_eq!(
                run.outcome.error.as_ref().expect("a reason").kind.word(),
                "out_of_memory",
                "{:?}",
                run.outcome
            );
            assert!(run.outcome.state_lost.is_some());
            assert_eq!(raised(session, "x").await.kind, "NameError");
            assert_eq!(value(session, "2 + 2").await, Value::Int(4));
        });
    });
}

#[test]
fn cpu_time_counts_for_each_execution_and_may_be_lowered() {
    alone(test_name!(), || {
        with(Session::builder().cpu_time(Seconds::whole(2)), async |session| {
            // Each has the whole time again.
            for _ in 0..3 {
                good(session.execute("import time\nend = time.process_time() + 0.8\nwhile time.process_time() < end: pass").await);
            }
            let cell = |limits| Cell {
                work: Work::Code("while True: pass".to_owned()),
                limits,
                ..Cell::default()
            };
            let tight = LimitOverrides {
                cpu_time: Seconds::new(0.3).ok(),
                ..LimitOverrides::default()
            };
            let run = session.execute(cell(tight)).await.expect("an execution");
            assert_eq!(run.outcome.error.expect("a reason").kind.word(), "cpu_time");
            // More than the session has is refused, and nothing runs.
            let wide = LimitOverrides {
                wall_time: Some(Seconds::whole(3600)),
                ..LimitOverrides::default()
            };
            let error = session.execute(cell(wide)).await.expect_err("a denial");
            assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
            assert_eq!(value(session, "7").await, Value::Int(7));
        });
    });
}

/// R43: no subprocesses where a policy permits one process, and a session works under it.
#[test]
fn r43_one_process_is_enough_for_a_session_and_no_more() {
    alone(test_name!(), || {
        let mut policy = Policy::builtin("standard").expect("standard");
        let mut numbers = policy.limits.numbers();
        numbers.max_processes = 1;
        policy.limits = belljar::Limits::new(&numbers).expect("limits");
        with(Session::builder().policy(policy), async |session| {
            assert_eq!(value(session, "sum(range(10))").await, Value::Int(45));
            for code in [
                "import subprocess\nsubprocess.run(['/bin/true'])",
                "import os\nos.fork()",
            ] {
                assert_eq!(raised(session, code).await.kind, "BlockingIOError", "{code}");
            }
            let code = "import threading\nt = threading.Thread(target=print, args=('in a thread',))\nt.start()\nt.join()";
            assert_eq!(
                good(session.execute(code).await).outcome.stdout.text(),
                "in a thread\n"
            );
        });
    });
}

/// R44: the walls do not depend on the checks of the source.
#[test]
fn r44_the_walls_hold_when_source_checks_are_bypassed() {
    alone(test_name!(), || {
        let builder = Session::builder()
            .allow_imports(["json"])
            .forbid_calls(["eval", "exec"]);
        with(builder, async |session| {
            let run = session.execute("eval('1')").await.expect("an execution");
            assert_eq!(
                run.outcome.error.as_ref().expect("a reason").kind.word(),
                "refused",
                "{:?}",
                run.outcome
            );
            let exception = run.outcome.exception.expect("why");
            assert!(exception.message.contains("eval"), "{exception:?}");
            // Around the check, to a module that was loaded long ago.
            let code = "import json\nsys = json.codecs.sys\nposix = sys.modules['posix']\nfound = []\nfor path in ('/etc/shadow', '/proc/1/environ', '/proc/1/mem', '/home'):\n    try:\n        posix.open(path, 0)\n        found.append(path)\n    except OSError:\n        pass\nfound";
            assert_eq!(value(session, code).await, Value::List(Vec::new()));
        });
    });
}

#[test]
fn a_session_that_does_nothing_ends_and_says_why() {
    alone(test_name!(), || {
        run(async {
            let session = Session::builder()
                .idle_timeout(Duration::from_millis(600))
                .build()
                .await
                .expect("a session");
            // Use keeps it alive, an execution that takes longer than that among it.
            good(session.execute("import time; time.sleep(1)").await);
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_millis(300)).await;
                session.list().expect("files");
            }
            tokio::time::sleep(Duration::from_millis(1200)).await;
            let error = session.execute("1").await.expect_err("an end");
            assert_eq!(error.to_string(), "the session is over: it did nothing for 0.6 s");
            assert_eq!(error.kind(), ErrorKind::Usage);
            assert!(error.hint().is_some());
            assert!(session.list().is_err() && session.reset().await.is_err());
            session.close().await.expect("a close");
        });
    });
}

#[test]
fn a_session_ends_at_its_greatest_age_even_while_it_executes() {
    alone(test_name!(), || {
        run(async {
            let session = Session::builder()
                .max_age(Duration::from_secs(1))
                .build()
                .await
                .expect("a session");
            let run = session
                .execute("import time; time.sleep(600)")
                .await
                .expect("an execution");
            assert_eq!(run.outcome.status, SandboxStatus::Timeout);
            assert_eq!(
                run.outcome.error.expect("a reason").message,
                "the session reached its greatest age"
            );
            let error = session.execute("1").await.expect_err("an end");
            assert_eq!(
                error.to_string(),
                "the session is over: it reached its greatest age, 1 s"
            );
        });
    });
}

#[test]
fn dropping_a_session_ends_everything() {
    alone(test_name!(), || {
        run(async {
            let session = Session::builder().build().await.expect("a session");
            good(
                session
                    .execute("import subprocess\nsubprocess.Popen(['sleep', '600'])\n1")
                    .await,
            );
            drop(session);
        });
        // Without async as well, in the middle of an execution.
        let session = belljar::blocking::Session::builder().build().expect("a session");
        let interrupter = session.interrupter().expect("a handle");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let run = session
                    .execute("import time; time.sleep(600)")
                    .expect("an execution");
                assert_eq!(run.outcome.error.expect("a reason").kind.word(), "interrupted");
            });
            while !interrupter.interrupt() {
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        drop(session);
        assert!(!interrupter.interrupt());
    });
}

#[test]
fn output_is_capped_for_each_execution() {
    alone(test_name!(), || {
        let builder = Session::builder().limits(LimitOverrides {
            output: Some(Bytes::from_mib(1)),
            ..LimitOverrides::default()
        });
        with(builder, async |session| {
            for _ in 0..2 {
                let run = good(session.execute("for _ in range(50): print('x' * 100_000)").await);
                assert_eq!(run.outcome.stdout.bytes().len(), 1 << 20);
                assert!(run.outcome.stdout.truncated());
            }
            assert!(session.logs().stdout.len() <= 1 << 20);
        });
    });
}
