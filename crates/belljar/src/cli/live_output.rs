//! The guest's output on our own streams, as it comes.
//!
//! Writing happens on a thread of its own: a terminal that is paused, or a pager that nobody
//! scrolls, must hold up neither the deadline nor the reading. What waits here is bounded, since a
//! sink sees no more than the output limit lets through.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use belljar::{OutputSink, Stream};
use tokio::sync::{Notify, oneshot};

use super::messages;
use super::problem::Problem;

/// A sink that writes to standard output and standard error.
#[derive(Debug)]
pub(crate) struct LiveOutput {
    chunks: Sender<(Stream, Vec<u8>)>,
    finished: oneshot::Receiver<()>,
    broken: Arc<Broken>,
}

/// What standard output answered when it took nothing more.
#[derive(Debug, Default)]
pub(crate) struct Broken {
    error: Mutex<Option<io::Error>>,
    happened: Notify,
}

impl LiveOutput {
    pub(crate) fn start() -> Result<Self, Problem> {
        Self::start_with(io::stdout(), io::stderr())
            .map_err(|error| Problem::engine(format!("cannot start a thread for output: {error}")))
    }

    fn start_with(
        stdout: impl Write + Send + 'static,
        stderr: impl Write + Send + 'static,
    ) -> io::Result<Self> {
        let (chunks, queue) = channel();
        let (done, finished) = oneshot::channel();
        let broken = Arc::new(Broken::default());
        let seen = Arc::clone(&broken);
        thread::Builder::new().name("output".to_owned()).spawn(move || {
            write_all(&queue, stdout, stderr, &seen);
            // Nobody listens any more when the command was interrupted.
            let _ = done.send(());
        })?;
        Ok(Self {
            chunks,
            finished,
            broken,
        })
    }

    /// To be told when standard output takes nothing more.
    pub(crate) fn broken(&self) -> Arc<Broken> {
        Arc::clone(&self.broken)
    }

    /// Waits until everything is written, and gives the error that stopped it.
    pub(crate) async fn finish(self) -> Option<io::Error> {
        drop(self.chunks);
        // The thread drops its end only after the last write.
        let _ = self.finished.await;
        self.broken.lock().take()
    }
}

impl OutputSink for LiveOutput {
    fn write(&mut self, stream: Stream, bytes: &[u8]) {
        // The thread reads until we are dropped.
        let _ = self.chunks.send((stream, bytes.to_vec()));
    }
}

impl Broken {
    /// Waits until standard output takes nothing more; for ever, when it never comes to that.
    pub(crate) async fn wait(&self) {
        self.happened.notified().await;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<io::Error>> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn write_all(
    queue: &Receiver<(Stream, Vec<u8>)>,
    mut stdout: impl Write,
    mut stderr: impl Write,
    broken: &Broken,
) {
    for (stream, bytes) in queue {
        match stream {
            // A closed standard error leaves nobody to tell.
            Stream::Stderr => {
                messages::guest_wrote(&bytes);
                drop(stderr.write_all(&bytes));
            }
            Stream::Stdout => {
                if broken.lock().is_some() {
                    continue;
                }
                if let Err(error) = stdout.write_all(&bytes).and_then(|()| stdout.flush()) {
                    *broken.lock() = Some(error);
                    broken.happened.notify_one();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Closed;

    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn both_streams_are_written_to_their_own() {
        let (stdout, stderr) = (Shared::default(), Shared::default());
        let mut live = LiveOutput::start_with(stdout.clone(), stderr.clone()).unwrap();
        live.write(Stream::Stdout, b"one ");
        live.write(Stream::Stderr, b"oops");
        live.write(Stream::Stdout, b"two");
        assert!(live.finish().await.is_none());
        assert_eq!(*stdout.0.lock().unwrap(), b"one two");
        assert_eq!(*stderr.0.lock().unwrap(), b"oops");
    }

    #[tokio::test]
    async fn a_reader_that_went_away_is_noticed_and_stderr_still_works() {
        let stderr = Shared::default();
        let mut live = LiveOutput::start_with(Closed, stderr.clone()).unwrap();
        let broken = live.broken();
        live.write(Stream::Stdout, b"x");
        broken.wait().await;
        live.write(Stream::Stderr, b"still here");
        assert_eq!(live.finish().await.unwrap().kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(*stderr.0.lock().unwrap(), b"still here");
    }
}
