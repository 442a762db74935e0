//! What is to be measured, as `bench/run` wrote it.

use std::path::PathBuf;

use belljar::Language;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub(crate) struct Wishes {
    /// How often everyone has a turn.
    pub rounds: usize,
    /// How many runs a turn has.
    pub batch: usize,
    pub contenders: Vec<Wish>,
    pub load: Load,
    /// The counter of CPU time; see `cpu.rs`.
    pub cpu: PathBuf,
    pub sessions: Sessions,
    pub output_gib: u64,
}

/// One contender.
#[derive(Debug, Deserialize)]
pub(crate) struct Wish {
    pub id: String,
    /// What it must print; anything else ends the measuring.
    pub prints: String,
    /// How long to wait after each run, so that a pool can fill up again.
    pub pause_ms: u64,
    #[serde(flatten)]
    pub kind: Kind,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum Kind {
    /// A process for each run.
    Command { argv: Vec<String> },
    /// A process that times runs of its own and says what they took; see `bench/sandlock_server.py`.
    Server { argv: Vec<String> },
    /// belljar's library in this process.
    Engine {
        language: Language,
        code: String,
        pool: PoolKind,
        preload: Vec<String>,
    },
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PoolKind {
    /// Sandboxes wait, as many as without any settings.
    Stocked,
    /// The interpreter to fork from is warm, and nothing else is made ahead.
    Empty,
}

/// Sustained runs.
#[derive(Debug, Deserialize)]
pub(crate) struct Load {
    /// Whom to put under it.
    pub ids: Vec<String>,
    /// How many at the same time.
    pub levels: Vec<usize>,
    /// How long each turn is, and how many turns each has.
    pub seconds: f64,
    pub turns: usize,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Sessions {
    /// How many are idle when their memory is measured.
    pub idle: Vec<usize>,
    pub cells: usize,
    /// Calls of a host tool within one cell, and how many such cells.
    pub calls: u32,
    pub call_cells: usize,
}
