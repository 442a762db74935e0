//! The answers' file: what is finished in it stays, the rest is appended line by line.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use belljar::batch::Lines;
use tokio::sync::{mpsc, oneshot};

use super::Problem;
use super::kept::KeptLine;
use super::tally::Tally;

/// How often what is written is made to outlive a power cut.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// Where answers go.
#[derive(Debug)]
pub(super) struct Output {
    file: File,
    /// A regular file; anything else is only written to.
    resumable: bool,
    shown: String,
}

impl Output {
    pub(super) fn open(path: &Path, restart: bool) -> Result<Self, Problem> {
        let shown = path.display().to_string();
        if path.as_os_str() == "-" {
            let stdout = std::os::fd::AsFd::as_fd(&io::stdout()).try_clone_to_owned();
            return Ok(Self {
                file: stdout
                    .map_err(|error| Problem::engine(format!("cannot connect standard output: {error}")))?
                    .into(),
                resumable: false,
                shown: "standard output".to_owned(),
            });
        }
        let unwritable = |why: String| {
            Problem::usage(format!("-o: cannot write {shown}: {why}"))
                .hint("name a file in a directory that exists, or - for standard output")
        };
        if path.is_dir() {
            return Err(unwritable("it is a directory".to_owned()));
        }
        let regular = !path.exists() || path.is_file();
        let mut options = OpenOptions::new();
        options.write(true).read(regular).create(true).truncate(false);
        let file = options
            .open(path)
            .map_err(|error| unwritable(error.to_string()))?;
        let output = Self {
            resumable: regular,
            file,
            shown,
        };
        if regular {
            output.lock()?;
            if restart {
                output.cut(0)?;
            }
        }
        Ok(output)
    }

    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    pub(super) const fn is_resumable(&self) -> bool {
        self.resumable
    }

    /// Whether answers and a progress bar would meet on one screen.
    pub(super) fn is_terminal(&self) -> bool {
        self.file.is_terminal()
    }

    /// Two batches in one file would leave lines of both.
    fn lock(&self) -> Result<(), Problem> {
        use rustix::fs::{FlockOperation, flock};
        match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                Err(Problem::usage(format!("another batch is writing {}", self.shown))
                    .hint("wait until it has ended, or give -o another name"))
            }
            // Some file systems have no locks; then it is up to the caller.
            Err(_) => Ok(()),
        }
    }

    fn cut(&self, length: u64) -> Result<(), Problem> {
        self.file
            .set_len(length)
            .map_err(|error| Problem::engine(format!("cannot cut {}: {error}", self.shown)))
    }

    /// Reads what is finished, holds it against the same lines of the input, and counts it. The
    /// input then stands at the first line that has no answer, the output at its end.
    pub(super) fn keep<R: Read>(
        &mut self,
        lines: &mut Lines<R>,
        options_hash: &str,
        tally: &mut Tally,
    ) -> Result<(), Problem> {
        if !self.resumable {
            return Ok(());
        }
        let unreadable = |error: io::Error| Problem::engine(format!("cannot read the file of -o: {error}"));
        let mut whole = 0;
        let mut text = Vec::new();
        let mut answers = BufReader::new(&self.file);
        loop {
            text.clear();
            let size = answers.read_until(b'\n', &mut text).map_err(unreadable)?;
            if text.last() != Some(&b'\n') {
                if !is_torn(&text, tally) {
                    return Err(self.strange("it is not the output of a batch"));
                }
                break;
            }
            let kept: KeptLine = serde_json::from_slice(&text).map_err(|_| {
                let place = tally.lines() + 1;
                self.strange(&format!("its line {place} is not an answer of a batch"))
            })?;
            let input = lines.next().transpose().map_err(|error| {
                Problem::usage(format!("cannot read the input: {error}")).hint("check the file")
            })?;
            let Some(input) = input else {
                return Err(self.strange("it has more lines than the input"));
            };
            if input.number != kept.line || input.hash != kept.input_hash {
                return Err(self.strange(&format!(
                    "line {} of the input was another one then",
                    input.number
                )));
            }
            if options_hash != kept.options_hash {
                return Err(self.strange("it was made with other options or another policy"));
            }
            tally.count_kept(kept.word(), &kept.verdicts(), input.end);
            whole += size as u64;
        }
        self.cut(whole)?;
        self.file.seek(SeekFrom::Start(whole)).map_err(unreadable)?;
        Ok(())
    }

    fn strange(&self, why: &str) -> Problem {
        Problem::usage(format!("cannot go on with {}: {why}", self.shown))
            .hint("begin anew and overwrite it with --restart, or give -o another name")
    }

    /// Starts to write, on a thread of its own: a disk or a pipe that is slow must not hold up the
    /// clocks of those that run.
    pub(super) fn into_writer(self) -> Result<Writer, Problem> {
        let (lines, queue) = mpsc::channel(1);
        let (done, ended) = oneshot::channel();
        thread::Builder::new()
            .name("belljar-answers".to_owned())
            .spawn(move || {
                // Nobody listens any more when the command was interrupted.
                let _ = done.send(write_all(self.file, self.resumable, queue));
            })
            .map_err(|error| Problem::engine(format!("cannot start a thread for output: {error}")))?;
        Ok(Writer { lines, ended })
    }
}

/// Whether a last line without its end was being written when an earlier run was ended. It will be
/// cut off, so it must be ours: behind others of ours, or with the same beginning.
fn is_torn(text: &[u8], tally: &Tally) -> bool {
    const BEGINNING: &[u8] = b"{\"line\":";
    tally.kept() > 0 || text.starts_with(BEGINNING) || BEGINNING.starts_with(text)
}

/// Takes lines to write.
#[derive(Debug)]
pub(super) struct Writer {
    lines: mpsc::Sender<Vec<u8>>,
    ended: oneshot::Receiver<io::Result<()>>,
}

impl Writer {
    /// Hands over a line; false when nothing more can be written.
    pub(super) async fn write(&mut self, line: Vec<u8>) -> bool {
        self.lines.send(line).await.is_ok()
    }

    /// Waits until everything is written and safe.
    pub(super) async fn close(self) -> io::Result<()> {
        drop(self.lines);
        self.ended
            .await
            .unwrap_or_else(|_| Err(io::Error::other("the writing thread broke off")))
    }
}

fn write_all(mut file: File, safe: bool, mut lines: mpsc::Receiver<Vec<u8>>) -> io::Result<()> {
    let mut synced = Instant::now();
    while let Some(line) = lines.blocking_recv() {
        file.write_all(&line)?;
        if safe && synced.elapsed() >= SYNC_EVERY {
            file.sync_data()?;
            synced = Instant::now();
        }
    }
    if safe { file.sync_all() } else { Ok(()) }
}
