//! What an earlier run left in the output, as far as it must be known.

use belljar::{SandboxStatus, Verdict};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// One line of the output.
#[derive(Debug, Deserialize)]
pub(super) struct KeptLine {
    pub(super) line: u64,
    pub(super) input_hash: String,
    pub(super) options_hash: String,
    #[serde(default)]
    outcome: Option<KeptOutcome>,
    #[serde(default)]
    cases: Vec<KeptCase>,
    #[serde(default)]
    denial: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
struct KeptOutcome {
    status: SandboxStatus,
}

#[derive(Debug, Deserialize)]
struct KeptCase {
    verdict: Option<Verdict>,
}

impl KeptLine {
    /// What it is counted as.
    pub(super) fn word(&self) -> &'static str {
        match (&self.outcome, &self.denial) {
            (Some(outcome), _) => outcome.status.word(),
            (None, Some(_)) => "denied",
            (None, None) => "error",
        }
    }

    pub(super) fn verdicts(&self) -> Vec<Option<Verdict>> {
        self.cases.iter().map(|case| case.verdict).collect()
    }
}
