//! One run at a time, everyone in turn, so that the machine's noise hits all alike.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use tokio::runtime::Runtime;

use crate::Measured;
use crate::contender::{Contender, Contending};

/// What one contender's runs took.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Taken {
    /// In microseconds, in the order in which they were made.
    micros: Vec<u64>,
    /// How their sandboxes came to be, and how many of each; of belljar's own.
    origins: BTreeMap<String, usize>,
    failed: usize,
}

pub(crate) fn measure(
    contenders: &[Contender],
    rounds: usize,
    batch: usize,
) -> Measured<BTreeMap<String, Taken>> {
    // Whoever awaits one run at a time has such a runtime.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut taken: BTreeMap<String, Taken> = BTreeMap::new();
    for round in 0..=rounds {
        for contender in contenders {
            contender.prepare()?;
            // The first round warms everyone up, and no figure of it is kept.
            let mut warming = Taken::default();
            let kept = match round {
                0 => &mut warming,
                _ => taken.entry(contender.id.clone()).or_default(),
            };
            for _ in 0..batch {
                once(contender, &runtime, kept)?;
                std::thread::sleep(contender.pause);
            }
        }
    }
    Ok(taken)
}

fn once(contender: &Contender, runtime: &Runtime, kept: &mut Taken) -> Measured<()> {
    let mut keep = |took: Duration| kept.micros.push(took.as_micros() as u64);
    match &contender.kind {
        Contending::Process(process) => keep(process.once()?),
        Contending::Server(server) => {
            let (taken, failed) = server.runs(1, 0.0)?;
            taken.into_iter().for_each(keep);
            kept.failed += failed;
        }
        Contending::Engine(engine) => {
            let (took, origin) = runtime.block_on(engine.once())?;
            keep(took);
            *kept.origins.entry(origin).or_default() += 1;
        }
    }
    Ok(())
}
