//! What a caller sees of a build while it goes on, and how it ends one early.

use belljar_core::provider::{BoxFuture, OutputSink, Stream};
use tokio::sync::watch;

/// Sees a build go on.
pub trait Progress: Send {
    /// A step begins.
    fn step(&mut self, text: &str);
    /// A line that a tool printed. It may hold anything.
    fn line(&mut self, text: &str);
}

/// For callers that only want the result.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Progress for Quiet {
    fn step(&mut self, _: &str) {}
    fn line(&mut self, _: &str) {}
}

/// Ends a build when told to. Clones tell the same build.
#[derive(Clone, Debug)]
pub struct Cancel {
    told: watch::Sender<bool>,
}

impl Default for Cancel {
    fn default() -> Self {
        Self {
            told: watch::Sender::new(false),
        }
    }
}

impl Cancel {
    /// Ends it.
    pub fn cancel(&self) {
        self.told.send_replace(true);
    }

    pub(super) fn is_cancelled(&self) -> bool {
        *self.told.borrow()
    }

    /// Resolves when it is to end.
    pub(super) fn wait(&self) -> BoxFuture<'static, ()> {
        let mut told = self.told.subscribe();
        Box::pin(async move {
            if told.wait_for(|told| *told).await.is_err() {
                // Nobody is left who could tell.
                std::future::pending::<()>().await;
            }
        })
    }
}

/// The most lines that are kept for an error.
const KEPT_LINES: usize = 30;
/// The most bytes of one line.
const LONGEST_LINE: usize = 4096;

/// Cuts output into lines, shows them, and keeps the last ones.
pub(super) struct Lines<'a> {
    progress: &'a mut dyn Progress,
    unfinished: [Vec<u8>; 2],
    kept: std::collections::VecDeque<String>,
}

impl<'a> Lines<'a> {
    pub(super) fn new(progress: &'a mut dyn Progress) -> Self {
        Self {
            progress,
            unfinished: Default::default(),
            kept: Default::default(),
        }
    }

    pub(super) fn take(&mut self, stream: Stream, bytes: &[u8]) {
        let index = usize::from(stream == Stream::Stderr);
        for byte in bytes {
            // A bar that is drawn again and again is a line each time.
            if matches!(byte, b'\n' | b'\r') {
                self.end_line(index);
            } else if self.unfinished[index].len() < LONGEST_LINE {
                self.unfinished[index].push(*byte);
            }
        }
    }

    fn end_line(&mut self, index: usize) {
        let line = String::from_utf8_lossy(&self.unfinished[index]).into_owned();
        self.unfinished[index].clear();
        if line.trim().is_empty() {
            return;
        }
        self.progress.line(&line);
        if self.kept.len() == KEPT_LINES {
            self.kept.pop_front();
        }
        self.kept.push_back(line);
    }

    /// The last lines.
    pub(super) fn finish(mut self) -> Vec<String> {
        self.end_line(0);
        self.end_line(1);
        self.kept.into()
    }
}

impl OutputSink for Lines<'_> {
    fn write(&mut self, stream: Stream, bytes: &[u8]) {
        self.take(stream, bytes);
    }
}

/// The line that says best why a tool failed: what ended a build that pip quotes, else pip's last
/// error, which names the requirement, else the last line.
pub(super) fn reason(lines: &[String]) -> String {
    let quoted = lines
        .windows(2)
        .find(|pair| pair[1].trim() == "[end of output]")
        .map(|pair| &pair[0]);
    let error = lines
        .iter()
        .rev()
        .find(|line| line.trim_start().starts_with("ERROR:"));
    match quoted.or(error).or(lines.last()) {
        Some(line) => line.trim().trim_start_matches("ERROR: ").to_owned(),
        None => "it printed nothing".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Seen(Vec<String>);

    impl Progress for Seen {
        fn step(&mut self, _: &str) {}
        fn line(&mut self, text: &str) {
            self.0.push(text.to_owned());
        }
    }

    #[test]
    fn output_is_cut_into_lines_and_the_last_ones_are_kept() {
        let mut seen = Seen::default();
        let mut lines = Lines::new(&mut seen);
        lines.take(Stream::Stdout, b"one\ntw");
        lines.take(Stream::Stderr, b"oops\n\n");
        lines.take(Stream::Stdout, b"o\r");
        for _ in 0..100 {
            lines.take(Stream::Stdout, &[b'x'; 10_000]);
            lines.take(Stream::Stdout, b"\n");
        }
        lines.take(Stream::Stdout, b"last");
        let kept = lines.finish();
        assert_eq!(kept.len(), KEPT_LINES);
        assert_eq!(kept.last().unwrap(), "last");
        assert_eq!(kept[0].len(), LONGEST_LINE);
        assert_eq!(seen.0[..3], ["one", "oops", "two"]);
    }

    #[test]
    fn a_failure_is_told_by_its_error() {
        let lines = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            reason(&lines(&[
                "x",
                "ERROR: versions: 1",
                "ERROR: No match",
                "[notice] new pip"
            ])),
            "No match"
        );
        assert_eq!(reason(&lines(&["Traceback", "ValueError: no"])), "ValueError: no");
        assert_eq!(
            reason(&lines(&[
                "  ValueError: no",
                "  [end of output]",
                "note: see above"
            ])),
            "ValueError: no"
        );
        assert_eq!(reason(&[]), "it printed nothing");
    }

    #[tokio::test]
    async fn whoever_waits_is_told_also_afterwards() {
        let cancel = Cancel::default();
        let waiting = cancel.clone().wait();
        cancel.cancel();
        waiting.await;
        cancel.wait().await;
        assert!(cancel.is_cancelled());
    }
}
