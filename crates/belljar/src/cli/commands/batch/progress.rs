//! How far a batch is: a bar on a terminal, a line every ten seconds elsewhere.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::super::super::messages;
use super::tally::Tally;

/// How often it is told where there is no terminal.
const EVERY: Duration = Duration::from_secs(10);
/// How often a bar is drawn in a second, at most.
const DRAWS: u8 = 10;

/// Tells how far a batch is.
#[derive(Debug)]
pub(super) struct Progress {
    form: Form,
    started: Instant,
    /// Where it began, for what was kept cost no time.
    kept: u64,
    began_at: u64,
    size: Option<u64>,
    told: Instant,
}

#[derive(Debug)]
enum Form {
    Quiet,
    Bar(ProgressBar),
    Lines,
}

impl Progress {
    /// `screen_taken` says that answers go to the terminal themselves: a bar would stand among them.
    pub(super) fn start(quiet: bool, screen_taken: bool, size: Option<u64>, tally: &Tally) -> Self {
        let form = if quiet {
            Form::Quiet
        } else {
            let bar = bar(size, tally.end);
            // Not a terminal, or one that cannot take a line back.
            if bar.is_hidden() || screen_taken {
                Form::Lines
            } else {
                Form::Bar(bar)
            }
        };
        Self {
            form,
            started: Instant::now(),
            kept: tally.kept(),
            began_at: tally.end,
            size,
            told: Instant::now(),
        }
    }

    /// Waits until it is time to tell again although nothing has happened.
    pub(super) async fn due(&self) {
        match self.form {
            Form::Quiet => std::future::pending().await,
            Form::Bar(_) => tokio::time::sleep(Duration::from_millis(500)).await,
            Form::Lines => tokio::time::sleep_until((self.told + EVERY).into()).await,
        }
    }

    pub(super) fn show(&mut self, tally: &Tally) {
        match &self.form {
            Form::Quiet => {}
            Form::Bar(bar) => {
                bar.set_position(tally.end);
                bar.set_message(self.text(tally));
            }
            Form::Lines => {
                if self.told.elapsed() >= EVERY {
                    self.told = Instant::now();
                    let mut text = self.text(tally);
                    if let Some(left) = self.left(tally.end) {
                        text = format!("{text}; about {} left", shown(left));
                    }
                    messages::tell(&text);
                }
            }
        }
    }

    /// Takes the bar away, so that other lines can follow.
    pub(super) fn finish(&self) {
        if let Form::Bar(bar) = &self.form {
            bar.finish_and_clear();
        }
    }

    /// `120 lines, 31.5/s: 118 completed, 2 failed`
    fn text(&self, tally: &Tally) -> String {
        let rate = (tally.lines() - self.kept) as f64 / self.started.elapsed().as_secs_f64().max(0.001);
        let mut text = format!("{}, {rate:.1}/s", tally.lines_text());
        if tally.lines() > 0 {
            text = format!("{text}: {}", tally.counts());
        }
        text
    }

    /// How long the rest will take if it goes on like this, by the bytes of the input.
    fn left(&self, end: u64) -> Option<Duration> {
        let done = end.checked_sub(self.began_at).filter(|done| *done > 0)?;
        let rest = self.size?.checked_sub(end)?;
        let seconds = self.started.elapsed().as_secs_f64() * rest as f64 / done as f64;
        Duration::try_from_secs_f64(seconds).ok()
    }
}

fn bar(size: Option<u64>, position: u64) -> ProgressBar {
    let template = match size {
        Some(_) => "{bar:24} {percent:>3}% {msg} [{elapsed}, {eta} left]",
        None => "{spinner} {msg} [{elapsed}]",
    };
    // The templates are ours and right; without one there is still a bar.
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::with_draw_target(size, ProgressDrawTarget::stderr_with_hz(DRAWS))
        .with_style(style.progress_chars("=> "))
        .with_position(position);
    // What was there before says nothing about the speed of the rest.
    bar.reset_eta();
    bar
}

fn shown(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds @ 120..=7199 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        for (seconds, text) in [(5, "5 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h")] {
            assert_eq!(shown(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn what_is_left_goes_by_what_was_done_since_the_start() {
        let mut tally = Tally::default();
        tally.count_kept("completed", &[], 500);
        let mut progress = Progress::start(true, false, Some(1000), &tally);
        assert_eq!(progress.left(500), None, "nothing was done yet");
        progress.started -= Duration::from_secs(10);
        let left = progress.left(600).unwrap().as_secs();
        assert!((39..=41).contains(&left), "{left}");
        progress.size = None;
        assert_eq!(progress.left(600), None);
    }

    #[test]
    fn both_templates_are_understood() {
        for size in [Some(10), None] {
            let bar = bar(size, 3);
            bar.set_draw_target(ProgressDrawTarget::hidden());
            assert_eq!(bar.position(), 3);
        }
        assert!(ProgressStyle::with_template("{bar:24} {percent:>3}% {msg} [{elapsed}, {eta} left]").is_ok());
    }
}
