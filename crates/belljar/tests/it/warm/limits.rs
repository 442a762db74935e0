//! Limits hold in sandboxes that were raised ahead of time: each set of limits is a shape of its own.

use belljar::{Bytes, ExecuteIo, Execution, FailureKind, NetworkPolicy, Request, SandboxStatus, Seconds};
use belljar_linux::PoolSettings;

use super::{FORKED_AHEAD, engine, go, origin, owner, prepare, printed, python, runtime};
use crate::again::{alone, test_name};

/// A request that a waiting interpreter must serve.
async fn warm(engine: &belljar::Engine, request: &Request) -> Execution {
    tokio::task::block_in_place(|| prepare(engine, request));
    let run = go(engine, request).await;
    assert_eq!(origin(&run), FORKED_AHEAD);
    run
}

fn failure(run: &Execution) -> FailureKind {
    let error = run.outcome.error.as_ref();
    error
        .unwrap_or_else(|| panic!("it ended well: {:#?}", run.outcome))
        .kind
}

#[test]
fn limits_hold_on_the_warm_path() {
    alone(test_name!(), || {
        let engine = engine(PoolSettings::default());
        runtime().block_on(async {
            // What is roomy for one is not for the other, in whatever order they come.
            let code = "x = bytearray(100 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\nprint(len(x))";
            for (mib, fits) in [(200, true), (64, false), (200, true)] {
                let mut request = python(code);
                request.limits.memory = Some(Bytes::from_mib(mib));
                let run = warm(&engine, &request).await;
                if fits {
                    assert_eq!(printed(&run), "104857600\n");
                } else {
                    assert_eq!(failure(&run), FailureKind::OutOfMemory);
                }
            }

            let code = "import os, time\nmade = 0\ntry:\n    while made < 20:\n        if os.fork() == 0: time.sleep(60)\n        \
                        made += 1\nexcept OSError: pass\nprint(made)";
            for processes in [3u32, 6] {
                let mut request = python(code);
                request.limits.processes = Some(processes);
                let run = warm(&engine, &request).await;
                assert_eq!(printed(&run), format!("{}\n", processes - 1));
            }

            let code = "held = []\ntry:\n    while True: held.append(open('/dev/null'))\nexcept OSError as e: print(e.errno)\n\
                        print(len(held) + 3 <= 40, len(held) > 20)";
            let mut request = python(code);
            request.limits.open_files = Some(40);
            assert_eq!(printed(&warm(&engine, &request).await), "24\nTrue True\n");

            let code = "import os\nf = os.open('f', os.O_CREAT | os.O_WRONLY)\nprint(os.write(f, bytes(1 << 20)), flush=True)\n\
                        os.write(f, bytes(8 << 20)); os.write(f, b'x')";
            let mut request = python(code);
            request.limits.file_size = Some(Bytes::from_mib(2));
            let run = warm(&engine, &request).await;
            assert!(!run.outcome.success() && run.outcome.stdout.text() == "1048576\n", "{run:#?}");

            let mut request = python("while True: pass");
            request.limits.cpu_time = Some(Seconds::whole(1));
            let run = warm(&engine, &request).await;
            assert_eq!(failure(&run), FailureKind::CpuTime);
            assert_eq!(run.outcome.status, SandboxStatus::Timeout);

            let mut request = python("import time; time.sleep(60)");
            request.limits.wall_time = Some(Seconds::new(0.5).expect("half a second"));
            let run = warm(&engine, &request).await;
            assert_eq!(failure(&run), FailureKind::Timeout);
            assert!(run.outcome.duration.get() < 5.0, "{:?}", run.outcome.duration);
        });
    });
}

#[test]
fn files_and_network_are_as_the_policy_says_on_the_warm_path() {
    alone(test_name!(), || {
        let engine = engine(PoolSettings::default());
        runtime().block_on(async {
            let request = python("try: open('f', 'w')\nexcept OSError as error: print(type(error).__name__)");
            for write in [false, true, false] {
                let mut policy = owner(&request);
                policy.allow_file_write = write;
                tokio::task::block_in_place(|| engine.prepare(&policy, &request)).expect("a stock");
                let run = engine.execute(&policy, &request, ExecuteIo::default()).await;
                let run = run.expect("a run");
                assert_eq!(origin(&run), FORKED_AHEAD);
                assert_eq!(printed(&run).is_empty(), write, "{:?}", run.outcome.stdout.text());
            }

            let code = "import socket\ns = socket.socket()\ntry:\n    s.bind(('127.0.0.1', 0)); s.listen()\n    \
                        c = socket.create_connection(s.getsockname()); print('local')\nexcept OSError: print('none')";
            for (network, said) in [
                (NetworkPolicy::None, "none\n"),
                (NetworkPolicy::Local, "local\n"),
                (NetworkPolicy::None, "none\n"),
            ] {
                let mut request = python(code);
                request.network = Some(network);
                assert_eq!(printed(&warm(&engine, &request).await), said, "{network}");
            }
        });
    });
}
