//! As many runs as go, with so many at the same time.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::contender::{Contender, Contending, Process, Sandboxed};
use crate::wishes::Load;
use crate::{Measured, cpu, tell};

/// How long what a run left behind may take to be cleared away before its CPU time is read.
const SETTLE: Duration = Duration::from_millis(100);

/// What one contender managed at one level.
#[derive(Debug, Serialize)]
pub(crate) struct Sustained {
    id: String,
    level: usize,
    micros: Vec<u64>,
    seconds: f64,
    cpu_micros: u64,
    failed: usize,
}

pub(crate) fn measure(contenders: &[Contender], load: &Load, cpu: &Path) -> Measured<Vec<Sustained>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut all = Vec::new();
    for &level in &load.levels {
        tell(&format!("{level} at the same time"))?;
        let chosen = contenders
            .iter()
            .filter(|contender| load.ids.contains(&contender.id));
        let mut rows: Vec<(&Contender, Sustained)> = chosen
            .map(|contender| (contender, Sustained::new(contender, level)))
            .collect();
        for _ in 0..load.turns {
            for (contender, row) in &mut rows {
                contender.prepare()?;
                let before = cpu::micros(cpu)?;
                let started = Instant::now();
                let (taken, failed) = match &contender.kind {
                    Contending::Process(process) => (threads(process, level, load.seconds)?, 0),
                    Contending::Server(server) => server.runs(level, load.seconds)?,
                    Contending::Engine(engine) => (runtime.block_on(tasks(engine, level, load.seconds))?, 0),
                };
                row.seconds += started.elapsed().as_secs_f64();
                std::thread::sleep(SETTLE);
                row.cpu_micros += cpu::micros(cpu)?.saturating_sub(before);
                row.failed += failed;
                row.micros
                    .extend(taken.into_iter().map(|took| took.as_micros() as u64));
            }
        }
        all.extend(rows.into_iter().map(|(_, row)| row));
    }
    Ok(all)
}

impl Sustained {
    fn new(contender: &Contender, level: usize) -> Self {
        Self {
            id: contender.id.clone(),
            level,
            micros: Vec::new(),
            seconds: 0.0,
            cpu_micros: 0,
            failed: 0,
        }
    }
}

/// Processes are started by threads, one for each that runs.
fn threads(process: &Arc<Process>, level: usize, seconds: f64) -> Measured<Vec<Duration>> {
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let threads: Vec<_> = (0..level)
        .map(|_| {
            let process = Arc::clone(process);
            std::thread::spawn(move || {
                let mut taken = Vec::new();
                while Instant::now() < until {
                    taken.push(process.once()?);
                }
                Ok(taken)
            })
        })
        .collect();
    let taken: Measured<Vec<Vec<Duration>>> = threads
        .into_iter()
        .map(|thread| thread.join().map_err(|_| "a thread broke off")?)
        .collect();
    Ok(taken?.concat())
}

/// Sandboxes are awaited by tasks.
async fn tasks(engine: &Arc<Sandboxed>, level: usize, seconds: f64) -> Measured<Vec<Duration>> {
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let tasks: Vec<_> = (0..level)
        .map(|_| {
            let engine = Arc::clone(engine);
            tokio::spawn(async move {
                let mut taken = Vec::new();
                while Instant::now() < until {
                    taken.push(engine.once().await?.0);
                }
                Measured::Ok(taken)
            })
        })
        .collect();
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await??);
    }
    Ok(all)
}
