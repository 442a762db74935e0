//! The receipt says by which path a sandbox came, and requests get the path that they may have.

use belljar::{ExecuteIo, Language};
use belljar_linux::PoolSettings;

use super::{
    FORKED, FORKED_AHEAD, MADE, POOLED, STARTED_AHEAD, below, code_in, cold, engine, go, origin, owner,
    prepare, printed, python, runtime,
};
use crate::again::{alone, test_name};

/// With the settings that everyone has: the first finds nothing, and soon all are warm.
#[test]
fn the_first_request_is_cold_and_later_ones_are_warm() {
    alone(test_name!(), || {
        let engine = engine(PoolSettings::default());
        runtime().block_on(async {
            let first = go(&engine, &python("print(1)")).await;
            assert_eq!(
                (origin(&first), printed(&first).as_str()),
                (MADE, "1\n"),
                "the first"
            );
            let mut seen = Vec::new();
            // A machine may be busy; what counts is that it comes, and that it stays.
            for _ in 0..400 {
                let run = go(&engine, &python("print(2)")).await;
                assert_eq!(printed(&run), "2\n");
                seen.push(origin(&run).to_owned());
                if seen.iter().filter(|origin| *origin == FORKED_AHEAD).count() == 3 {
                    break;
                }
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
            assert_eq!(seen.last().map(String::as_str), Some(FORKED_AHEAD), "{seen:?}");
        });
        drop(engine);
        below::expect_nothing();
    });
}

#[test]
fn each_path_is_named() {
    alone(test_name!(), || {
        runtime().block_on(async {
            assert_eq!(origin(&go(&cold(), &python("pass")).await), MADE);

            let (warm, request) = (engine(PoolSettings::default()), python("pass"));
            tokio::task::block_in_place(|| prepare(&warm, &request));
            let mut seen: Vec<_> = Vec::new();
            // More at once than wait: what is left over is forked when it is asked for.
            let runs: Vec<_> = (0..12)
                .map(|_| {
                    let (warm, request) = (warm.clone(), request.clone());
                    tokio::spawn(async move { origin(&go(&warm, &request).await).to_owned() })
                })
                .collect();
            for run in runs {
                seen.push(run.await.expect("a run"));
            }
            let count = |origin: &str| seen.iter().filter(|seen| *seen == origin).count();
            assert!(count(FORKED_AHEAD) >= 4 && count(FORKED) >= 1, "{seen:?}");
            assert_eq!(count(FORKED_AHEAD) + count(FORKED), 12, "{seen:?}");

            let shells = engine(PoolSettings {
                warm: false,
                ..PoolSettings::default()
            });
            tokio::task::block_in_place(|| prepare(&shells, &request));
            assert_eq!(origin(&go(&shells, &request).await), POOLED);

            let script = code_in(Language::Javascript, "console.log(1)");
            tokio::task::block_in_place(|| prepare(&warm, &script));
            let run = go(&warm, &script).await;
            assert_eq!((origin(&run), printed(&run).as_str()), (STARTED_AHEAD, "1\n"));

            // A language without a runner gets a shell.
            let shell = code_in(Language::Bash, "echo 1");
            tokio::task::block_in_place(|| prepare(&warm, &shell));
            let run = go(&warm, &shell).await;
            assert_eq!((origin(&run), printed(&run).as_str()), (POOLED, "1\n"));
        });
    });
}

const HASH: &str = "print(hash('the same for every fork'))";

/// Forks share what the interpreter drew when it started; whoever asks for a fresh one does not.
#[test]
fn fresh_interpreters_are_never_forked() {
    alone(test_name!(), || {
        let engine = engine(PoolSettings::default());
        runtime().block_on(async {
            let request = python(HASH);
            tokio::task::block_in_place(|| prepare(&engine, &request));
            let mut forked = std::collections::BTreeSet::new();
            for _ in 0..5 {
                let run = go(&engine, &request).await;
                assert!([FORKED, FORKED_AHEAD].contains(&origin(&run)), "{}", origin(&run));
                forked.insert(printed(&run));
            }
            assert_eq!(forked.len(), 1, "forks of one interpreter: {forked:?}");

            let mut asked = python(HASH);
            asked.fresh_interpreter = true;
            let mut demanded = owner(&request);
            demanded.fresh_interpreter = true;
            let mut fresh = std::collections::BTreeSet::new();
            for _ in 0..5 {
                for run in [
                    engine.execute(&owner(&asked), &asked, ExecuteIo::default()).await,
                    engine.execute(&demanded, &request, ExecuteIo::default()).await,
                ] {
                    let run = run.expect("a run");
                    assert!([MADE, POOLED].contains(&origin(&run)), "{}", origin(&run));
                    fresh.insert(printed(&run));
                }
            }
            assert_eq!(fresh.len(), 10, "each drew its own: {fresh:?}");
            assert!(fresh.is_disjoint(&forked));
        });
    });
}

/// What is read only when an interpreter starts cannot be given to one that has started.
#[test]
fn variables_for_the_start_of_an_interpreter_work() {
    alone(test_name!(), || {
        let engine = engine(PoolSettings::default());
        runtime().block_on(async {
            let code = "import sys; print(__debug__, sys.flags.optimize)";
            tokio::task::block_in_place(|| prepare(&engine, &python(code)));
            let run = go(&engine, &python(code)).await;
            assert_eq!((origin(&run), printed(&run).as_str()), (FORKED_AHEAD, "True 0\n"));
            for _ in 0..4 {
                let mut request = python(code);
                request.env.insert("PYTHONOPTIMIZE".to_owned(), "1".to_owned());
                let run = go(&engine, &request).await;
                assert_eq!(printed(&run), "False 1\n");
                assert!([MADE, POOLED].contains(&origin(&run)), "{}", origin(&run));
            }
            let mut seeded = python(HASH);
            seeded.env.insert("PYTHONHASHSEED".to_owned(), "7".to_owned());
            let first = printed(&go(&engine, &seeded).await);
            assert_eq!(printed(&go(&engine, &seeded).await), first);
        });
    });
}
