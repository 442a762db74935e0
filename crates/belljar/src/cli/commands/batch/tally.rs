//! How many lines ended how, for progress and the summary.

use belljar::batch::Answer;
use belljar::{SandboxStatus, Verdict};

/// The words for lines, in the order in which they are shown.
const WORDS: [&str; 6] = [
    SandboxStatus::Completed.word(),
    SandboxStatus::Failed.word(),
    SandboxStatus::Timeout.word(),
    SandboxStatus::Killed.word(),
    "denied",
    "error",
];
/// A case of which nothing was expected and that ended well.
const RAN: &str = "ran";

/// Counts of what is answered.
#[derive(Debug, Default)]
pub(super) struct Tally {
    lines: u64,
    /// How many of them were there before.
    kept: u64,
    /// How far into the input they reach.
    pub(super) end: u64,
    words: [u64; WORDS.len()],
    /// By verdict, and those that only ran at the end.
    verdicts: [u64; Verdict::ALL.len() + 1],
}

impl Tally {
    pub(super) fn count(&mut self, answer: &Answer) {
        self.line(answer.word(), answer.end);
        for case in answer.cases() {
            self.case(case.verdict);
        }
    }

    /// Counts a line that was there before.
    pub(super) fn count_kept(&mut self, word: &str, verdicts: &[Option<Verdict>], end: u64) {
        self.kept += 1;
        self.line(word, end);
        for verdict in verdicts {
            self.case(*verdict);
        }
    }

    fn line(&mut self, word: &str, end: u64) {
        self.lines += 1;
        self.end = end;
        if let Some(place) = WORDS.iter().position(|known| *known == word) {
            self.words[place] += 1;
        }
    }

    fn case(&mut self, verdict: Option<Verdict>) {
        let place = Verdict::ALL.iter().position(|known| Some(*known) == verdict);
        self.verdicts[place.unwrap_or(Verdict::ALL.len())] += 1;
    }

    pub(super) const fn lines(&self) -> u64 {
        self.lines
    }

    pub(super) const fn kept(&self) -> u64 {
        self.kept
    }

    /// How many lines have an error or a denial instead of an outcome.
    pub(super) const fn not_run(&self) -> u64 {
        self.words[4] + self.words[5]
    }

    /// `12 lines`
    pub(super) fn lines_text(&self) -> String {
        match self.lines {
            1 => "1 line".to_owned(),
            lines => format!("{lines} lines"),
        }
    }

    /// `7 completed, 2 failed`
    pub(super) fn counts(&self) -> String {
        listed(WORDS.iter().copied().zip(self.words))
    }

    pub(super) fn summary(&self, place: &str) -> String {
        let mut text = format!("{} in {place}", self.lines_text());
        if self.lines > 0 {
            text = format!("{text}: {}", self.counts());
        }
        let names = Verdict::ALL.iter().map(|verdict| verdict.word()).chain([RAN]);
        let cases = listed(names.zip(self.verdicts));
        if !cases.is_empty() {
            text = format!("{text}; cases: {cases}");
        }
        if self.kept > 0 {
            text = format!("{text}; {} were there before", self.kept);
        }
        text
    }
}

fn listed(counts: impl Iterator<Item = (&'static str, u64)>) -> String {
    let shown: Vec<_> = counts
        .filter(|(_, count)| *count > 0)
        .map(|(word, count)| format!("{count} {word}"))
        .collect();
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_names_what_there_was() {
        let mut tally = Tally::default();
        assert_eq!(tally.summary("x"), "0 lines in x");
        tally.count_kept("completed", &[], 10);
        assert_eq!(
            tally.summary("x"),
            "1 line in x: 1 completed; 1 were there before"
        );
        tally.line("failed", 20);
        tally.case(Some(Verdict::Accepted));
        tally.case(Some(Verdict::Timeout));
        tally.case(Some(Verdict::Accepted));
        tally.case(None);
        tally.line("error", 30);
        tally.line("denied", 40);
        assert_eq!(
            tally.summary("x"),
            "4 lines in x: 1 completed, 1 failed, 1 denied, 1 error; \
             cases: 2 accepted, 1 timeout, 1 ran; 1 were there before"
        );
        assert_eq!((tally.not_run(), tally.end), (2, 40));
    }
}
