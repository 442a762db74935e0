//! Each sandbox has a network of its own, whichever way it was made: the nursery that they come from is in one, too.

use std::collections::BTreeSet;

use belljar::{Engine, NetworkPolicy};
use belljar_linux::PoolSettings;

use super::{FORKED, FORKED_AHEAD, MADE, engine, go, origin, prepare, printed, python, runtime};
use crate::again::{alone, test_name};

const WHICH: &str = "import os, time; print(os.readlink('/proc/self/ns/net'), flush=True); time.sleep(0.5)";
const AT_ONCE: usize = 4;

/// The networks of some that live at the same time, and how each of them came to be.
fn networks(engine: &Engine, policy: NetworkPolicy) -> Vec<(String, String)> {
    let mut request = python(WHICH);
    request.network = Some(policy);
    runtime().block_on(async {
        let runs: Vec<_> = (0..AT_ONCE)
            .map(|_| {
                let (engine, request) = (engine.clone(), request.clone());
                tokio::spawn(async move {
                    let run = go(&engine, &request).await;
                    (printed(&run).trim().to_owned(), origin(&run).to_owned())
                })
            })
            .collect();
        let mut seen = Vec::new();
        for run in runs {
            seen.push(run.await.expect("a run"));
        }
        seen
    })
}

fn different(seen: &[(String, String)]) -> usize {
    let host = std::fs::read_link("/proc/self/ns/net").expect("a network");
    let mut networks: BTreeSet<&str> = seen.iter().map(|(network, _)| network.as_str()).collect();
    networks.remove(host.to_str().expect("a name"));
    networks.len()
}

#[test]
fn each_sandbox_has_a_network_of_its_own() {
    alone(test_name!(), || {
        for policy in [NetworkPolicy::None, NetworkPolicy::Local] {
            let cold = engine(PoolSettings::off());
            let seen = networks(&cold, policy);
            assert!(seen.iter().all(|(_, origin)| origin == MADE), "{seen:?}");
            assert_eq!(different(&seen), AT_ONCE, "{seen:?}");

            let warm = engine(PoolSettings {
                stock: 2,
                ..PoolSettings::default()
            });
            let mut request = python(WHICH);
            request.network = Some(policy);
            prepare(&warm, &request);
            let seen = networks(&warm, policy);
            // Some waited, and the others had to be forked then and there.
            for origin in [FORKED_AHEAD, FORKED] {
                assert!(seen.iter().any(|(_, each)| each == origin), "{origin}: {seen:?}");
            }
            assert_eq!(different(&seen), AT_ONCE, "{seen:?}");
        }
    });
}

/// Seen without the step: all of them are where the nursery is, which is where the host is.
#[cfg(feature = "weaken")]
#[test]
fn all_sandboxes_have_the_hosts_network_without_one_of_their_own() {
    let variables = [("BELLJAR_WEAKEN", "newnetwork".to_owned())];
    crate::again::alone_with(test_name!(), &variables, || {
        let seen = networks(&engine(PoolSettings::off()), NetworkPolicy::None);
        assert_eq!(different(&seen), 0, "{seen:?}");
    });
}
