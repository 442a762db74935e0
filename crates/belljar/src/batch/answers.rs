//! Lines in, answers out in the same order, with a bound on everything in between.
//!
//! At any moment there are at most as many lines running as there are jobs, and so many answers
//! waiting for an earlier one, in number and in bytes. When that many wait, no further line is
//! started; when none is started, none is read. So one slow line in front of a million quick ones
//! costs time and no memory.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::thread;

use belljar_core::provider::BoxFuture;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::answer::Answer;
use super::lines::Line;
use crate::error::Error;

/// How many lines beyond the first unanswered one may have been started, for each job.
const WINDOW: u64 = 64;
/// How many bytes of answers may wait for an earlier one before no further line is started.
const MOST_WAITING: u64 = 64 << 20;

/// How one line is answered. The future that goes with it resolves when it should stop.
type Work = dyn Fn(Line, BoxFuture<'static, ()>) -> BoxFuture<'static, Answer> + Send + Sync;

/// The answers of a batch that runs, in the order of its lines. Dropping it ends everything.
pub struct Answers {
    lines: mpsc::Receiver<io::Result<Line>>,
    read_all: bool,
    work: Arc<Work>,
    jobs: usize,
    running: JoinSet<(u64, Answer)>,
    /// What is finished, by its place in the order.
    waiting: BTreeMap<u64, io::Result<Answer>>,
    waiting_bytes: u64,
    most_waiting: u64,
    started: u64,
    given: u64,
    stop: watch::Sender<bool>,
}

impl std::fmt::Debug for Answers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answers")
            .field("running", &self.running.len())
            .field("waiting", &self.waiting.len())
            .field("given", &self.given)
            .finish_non_exhaustive()
    }
}

impl Answers {
    pub(super) fn start(
        lines: impl Iterator<Item = io::Result<Line>> + Send + 'static,
        jobs: usize,
        work: impl Fn(Line, BoxFuture<'static, ()>) -> BoxFuture<'static, Answer> + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        // One line waits here and one in the thread: reading ahead is only to hide the reading.
        let (sender, receiver) = mpsc::channel(1);
        thread::Builder::new()
            .name("belljar-lines".to_owned())
            .spawn(move || {
                for line in lines {
                    let failed = line.is_err();
                    if sender.blocking_send(line).is_err() || failed {
                        return;
                    }
                }
            })
            .map_err(Error::Runtime)?;
        Ok(Self {
            lines: receiver,
            read_all: false,
            work: Arc::new(work),
            jobs,
            running: JoinSet::new(),
            waiting: BTreeMap::new(),
            waiting_bytes: 0,
            most_waiting: MOST_WAITING,
            started: 0,
            given: 0,
            stop: watch::Sender::new(false),
        })
    }

    /// Starts nothing more and ends what runs. Answers that are finished and whose turn it is still
    /// come from [`Answers::next`], and then `None`.
    pub fn stop(&mut self) {
        self.read_all = true;
        self.lines.close();
        // Whoever does not listen any more has ended already.
        let _ = self.stop.send(true);
    }

    /// The next answer; `None` when there are no more. An error means that the input could not be
    /// read on, and is the last. Nothing is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<io::Result<Answer>> {
        loop {
            match self.waiting.get(&self.given) {
                // One that somebody else cancelled is an answer like any other.
                Some(Ok(answer)) if *self.stop.borrow() && answer.cancelled() => break,
                Some(_) => return self.give(),
                None => {}
            }
            let room = !self.read_all && self.has_room();
            tokio::select! {
                line = self.lines.recv(), if room => self.take(line),
                Some(ended) = self.running.join_next(), if !self.running.is_empty() => self.put(ended),
                else => return None,
            }
        }
        // What comes after one that was stopped would leave a gap.
        while self.running.join_next().await.is_some() {}
        None
    }

    fn has_room(&self) -> bool {
        self.running.len() < self.jobs
            && self.started - self.given < WINDOW.saturating_mul(self.jobs as u64)
            && self.waiting_bytes < self.most_waiting
    }

    fn take(&mut self, line: Option<io::Result<Line>>) {
        match line {
            None => self.read_all = true,
            Some(Err(error)) => {
                self.read_all = true;
                self.waiting.insert(self.started, Err(error));
                self.started += 1;
            }
            Some(Ok(line)) => {
                let place = self.started;
                self.started += 1;
                let mut stop = self.stop.subscribe();
                let stopped = Box::pin(async move {
                    // Without a sender nobody can want it to stop any more.
                    if stop.wait_for(|stop| *stop).await.is_err() {
                        std::future::pending::<()>().await;
                    }
                });
                let answer = (self.work)(line, stopped);
                self.running.spawn(async move { (place, answer.await) });
            }
        }
    }

    fn put(&mut self, ended: Result<(u64, Answer), tokio::task::JoinError>) {
        match ended {
            Ok((place, answer)) => {
                self.waiting_bytes += answer.size();
                self.waiting.insert(place, Ok(answer));
            }
            Err(error) => {
                // Tasks are not aborted while this lives, so it can only have panicked.
                if let Ok(panic) = error.try_into_panic() {
                    std::panic::resume_unwind(panic);
                }
            }
        }
    }

    fn give(&mut self) -> Option<io::Result<Answer>> {
        let answer = self.waiting.remove(&self.given)?;
        self.given += 1;
        if let Ok(answer) = &answer {
            self.waiting_bytes = self.waiting_bytes.saturating_sub(answer.size());
        }
        Some(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Answered, LineError};
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
    use std::time::Duration;
    use tokio::sync::Semaphore;

    fn line(number: u64) -> io::Result<Line> {
        Ok(Line {
            number,
            text: Some(Vec::new()),
            hash: String::new(),
            end: number,
        })
    }

    fn answer(line: Line) -> Answer {
        let error = LineError {
            line: line.number,
            message: String::new(),
            hint: String::new(),
        };
        Answer {
            line: line.number,
            id: None,
            input_hash: line.hash,
            options_hash: String::new(),
            end: line.end,
            answered: Answered::Failed(error.into()),
        }
    }

    async fn numbers(mut answers: Answers) -> Vec<u64> {
        let mut numbers = Vec::new();
        while let Some(answer) = answers.next().await {
            numbers.push(answer.unwrap().line);
        }
        numbers
    }

    #[tokio::test]
    async fn order_is_kept_and_no_more_run_than_there_are_jobs() {
        let now = Arc::new(AtomicUsize::new(0));
        let most = Arc::new(AtomicUsize::new(0));
        let (now_there, most_there) = (Arc::clone(&now), Arc::clone(&most));
        let answers = Answers::start((1..=200).map(line), 3, move |line, _| {
            let (now, most) = (Arc::clone(&now_there), Arc::clone(&most_there));
            Box::pin(async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_micros(line.number * 7919 % 900)).await;
                now.fetch_sub(1, Ordering::SeqCst);
                answer(line)
            })
        })
        .unwrap();
        assert_eq!(numbers(answers).await, (1..=200).collect::<Vec<_>>());
        assert_eq!(most.load(Ordering::SeqCst), 3);
    }

    /// Ten thousand quick lines behind a slow one: the reader waits, and they are not all held.
    #[tokio::test]
    async fn a_slow_line_holds_up_the_reader() {
        let read = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&read);
        let lines = (1..=10_000).map(line).inspect(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        let gate = Arc::new(Semaphore::new(0));
        let slow = Arc::clone(&gate);
        let mut answers = Answers::start(lines, 2, move |line, _| {
            let slow = Arc::clone(&slow);
            Box::pin(async move {
                if line.number == 1 {
                    let _open = slow.acquire().await;
                }
                answer(line)
            })
        })
        .unwrap();
        let waited = tokio::time::timeout(Duration::from_millis(500), answers.next()).await;
        assert!(waited.is_err(), "the first line is not answered yet");
        let held = read.load(Ordering::SeqCst);
        assert!((100..=2 * WINDOW + 3).contains(&held), "{held} lines were read");
        assert!(answers.waiting.len() as u64 <= 2 * WINDOW);
        gate.add_permits(1);
        assert_eq!(numbers(answers).await.len(), 10_000);
    }

    #[tokio::test]
    async fn large_answers_hold_up_the_reader_sooner() {
        let gate = Arc::new(Semaphore::new(0));
        let slow = Arc::clone(&gate);
        let mut answers = Answers::start((1..=100).map(line), 2, move |line, _| {
            let slow = Arc::clone(&slow);
            Box::pin(async move {
                if line.number == 1 {
                    let _open = slow.acquire().await;
                }
                answer(line)
            })
        })
        .unwrap();
        // Each answer counts as 4 KiB.
        answers.most_waiting = 10 << 10;
        let waited = tokio::time::timeout(Duration::from_millis(100), answers.next()).await;
        assert!(waited.is_err());
        assert_eq!((answers.started, answers.waiting.len()), (4, 3));
        gate.add_permits(1);
        assert_eq!(numbers(answers).await.len(), 100);
    }

    #[tokio::test]
    async fn an_input_that_breaks_off_is_told_in_its_place() {
        let lines = (1..=3).map(line).chain([Err(io::Error::other("gone")), line(5)]);
        let mut answers = Answers::start(lines, 4, |line, _| Box::pin(async move { answer(line) })).unwrap();
        for number in 1..=3 {
            assert_eq!(answers.next().await.unwrap().unwrap().line, number);
        }
        assert_eq!(answers.next().await.unwrap().unwrap_err().to_string(), "gone");
        assert!(answers.next().await.is_none());
    }

    #[tokio::test]
    async fn nothing_starts_after_a_stop() {
        let mut answers = Answers::start((1..).map(line), 2, |line, stop| {
            Box::pin(async move {
                if line.number > 4 {
                    stop.await;
                }
                answer(line)
            })
        })
        .unwrap();
        for number in 1..=4 {
            assert_eq!(answers.next().await.unwrap().unwrap().line, number);
        }
        let waited = tokio::time::timeout(Duration::from_millis(50), answers.next()).await;
        assert!(waited.is_err());
        answers.stop();
        let rest = tokio::time::timeout(Duration::from_secs(5), numbers(answers)).await;
        assert_eq!(rest.unwrap(), [5, 6], "what ran has ended, and nothing more came");
    }
}
