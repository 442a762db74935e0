//! P53: forks of one interpreter never draw the same.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use belljar_linux::PoolSettings;

use super::{FORKED, FORKED_AHEAD, engine, go, origin, prepare, printed, python, runtime};
use crate::again::{alone_with, test_name};
use crate::machine::{absent, venv};

/// Everything that draws, and last what forks share by design: it shows that they are of one interpreter.
const DRAW: &str = "
import multiprocessing, os, random, secrets, ssl, tempfile, uuid
print('random', random.random())
print('getrandbits', random.getrandbits(64))
print('uuid1', uuid.uuid1())
print('uuid4', uuid.uuid4())
print('tempfile', next(tempfile._get_candidate_names()))
print('secrets', secrets.token_hex(8))
print('urandom', os.urandom(8).hex())
print('ssl', ssl.RAND_bytes(8).hex())
print('authkey', bytes(multiprocessing.process.current_process().authkey).hex())
try:
    import numpy
except ImportError:
    pass
else:
    print('numpy', numpy.random.random())
    print('generator', numpy.random.default_rng().random())
print('shared hash', hash('x'))
";

/// How many runs, and how many different answers to each question there were.
fn draws(runs: usize) -> HashMap<String, usize> {
    let preload = [
        "multiprocessing.process",
        "numpy.random",
        "random",
        "secrets",
        "ssl",
        "tempfile",
        "uuid",
    ];
    let engine = engine(PoolSettings {
        stock: 8,
        preload: preload.map(str::to_owned).into(),
        ..PoolSettings::default()
    });
    let request = python(DRAW);
    prepare(&engine, &request);
    let texts = runtime().block_on(async {
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let (engine, request) = (engine.clone(), request.clone());
                tokio::spawn(async move {
                    let mut texts = Vec::new();
                    for _ in 0..runs / 4 {
                        let run = go(&engine, &request).await;
                        assert!([FORKED, FORKED_AHEAD].contains(&origin(&run)), "{}", origin(&run));
                        texts.push(printed(&run));
                    }
                    texts
                })
            })
            .collect();
        let mut texts = Vec::new();
        for worker in workers {
            texts.extend(worker.await.expect("a worker"));
        }
        texts
    });
    let mut answers: HashMap<String, std::collections::HashSet<String>> = HashMap::new();
    for (name, answer) in texts.iter().flat_map(|text| text.lines()).map(split) {
        answers.entry(name).or_default().insert(answer);
    }
    answers
        .into_iter()
        .map(|(name, different)| (name, different.len()))
        .collect()
}

fn split(line: &str) -> (String, String) {
    let (name, answer) = line.rsplit_once(' ').expect("a name and an answer");
    (name.to_owned(), answer.to_owned())
}

/// A path on which the Python of `tests/setup` comes first, which has numpy.
fn with_numpy() -> Vec<(&'static str, String)> {
    let path = std::env::var("PATH").unwrap_or_default();
    match venv() {
        Some(venv) => vec![("PATH", format!("{}:{path}", venv.join("bin").display()))],
        None => {
            absent("P53 with numpy", "there is no environment; tests/setup makes one");
            Vec::new()
        }
    }
}

/// Seen to fail without the reseeding: see below.
#[test]
fn p53_a_thousand_forks_never_draw_the_same() {
    alone_with(test_name!(), &with_numpy(), || {
        let started = Instant::now();
        let mut different = draws(1000);
        assert_eq!(
            different.remove("shared hash"),
            Some(1),
            "they are forks of one interpreter"
        );
        let numpy = if venv().is_some() { 2 } else { 0 };
        assert_eq!(different.len(), 9 + numpy, "{different:?}");
        for (name, count) in different {
            assert_eq!(count, 1000, "{name} repeated");
        }
        assert!(
            started.elapsed() < Duration::from_secs(120),
            "{:?}",
            started.elapsed()
        );
    });
}

/// Without reseeding, what the zygote drew is what every fork has: seen with `multiprocessing`'s key, and
/// with numpy's global generator where there is numpy. Python itself and OpenSSL notice a fork by themselves.
#[cfg(feature = "weaken")]
#[test]
fn p53_forks_draw_the_same_without_reseed() {
    let mut variables = with_numpy();
    variables.push(("BELLJAR_WEAKEN", "reseed".to_owned()));
    alone_with(test_name!(), &variables, || {
        let different = draws(40);
        assert_eq!(different.get("authkey"), Some(&1), "{different:?}");
        assert!(
            different.get("numpy").is_none_or(|count| *count == 1),
            "{different:?}"
        );
        assert_eq!(different.get("urandom"), Some(&40), "{different:?}");
    });
}
