//! An engine that runs out of descriptors says so, loses nothing, and goes on when there are some again.

use std::time::Duration;

use belljar::ExecuteIo;
use belljar_linux::PoolSettings;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{below, cold, engine, go, owner, printed, python, runtime};
use crate::again::{alone, test_name};

/// Lets this process have so many descriptors.
pub(super) fn allow(descriptors: u64) {
    let limit = Rlimit {
        current: Some(descriptors),
        ..getrlimit(Resource::Nofile)
    };
    setrlimit(Resource::Nofile, limit).expect("a limit");
}

#[test]
fn running_out_of_descriptors_is_told_and_passes() {
    alone(test_name!(), || {
        let many = getrlimit(Resource::Nofile).current.unwrap_or(8192);
        for engine in [cold(), engine(PoolSettings::default())] {
            runtime().block_on(async {
                // Alone it has enough.
                allow(64);
                assert_eq!(printed(&go(&engine, &python("print(1)")).await), "1\n");
                let launcher = below::launchers();
                let request = python("import time; time.sleep(0.5); print(1)");
                let runs: Vec<_> = (0..24)
                    .map(|_| {
                        let (engine, request) = (engine.clone(), request.clone());
                        tokio::spawn(async move {
                            let run = engine
                                .execute(&owner(&request), &request, ExecuteIo::default())
                                .await;
                            run.map(|run| printed(&run)).map_err(belljar::Error::from)
                        })
                    })
                    .collect();
                let (mut fine, mut refused) = (0, Vec::new());
                for run in runs {
                    let ended = tokio::time::timeout(Duration::from_secs(30), run).await;
                    match ended.expect("a run hangs").expect("a run") {
                        Ok(_) => fine += 1,
                        Err(error) => {
                            let hint = error.hint().unwrap_or_default();
                            assert!(hint.contains("ulimit -n"), "{error}: {hint}");
                            refused.push(error.to_string());
                        }
                    }
                }
                assert!(fine > 0 && !refused.is_empty(), "{fine} fine, {refused:?}");
                for why in &refused {
                    assert!(why.contains("Too many open files"), "{why}");
                }
                assert_eq!(below::launchers(), launcher, "the launcher was lost");
                // It recovers as it is, and with more there is room for all.
                assert_eq!(printed(&go(&engine, &python("print(2)")).await), "2\n");
                allow(many);
                let runs: Vec<_> = (0..24)
                    .map(|_| {
                        let (engine, request) = (engine.clone(), request.clone());
                        tokio::spawn(async move { printed(&go(&engine, &request).await) })
                    })
                    .collect();
                for run in runs {
                    assert_eq!(run.await.expect("a run"), "1\n");
                }
            });
            drop(engine);
            below::expect_nothing();
        }
    });
}
