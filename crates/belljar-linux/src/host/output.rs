//! Reading a guest's output: concurrently, in bounded memory.

use std::io;
use std::os::fd::OwnedFd;

use belljar_core::provider::Stream;
use rustix::pipe::PipeFlags;
use tokio::io::unix::AsyncFd;

/// How much is read at once.
const CHUNK: usize = 64 << 10;

/// One stream of a guest.
#[derive(Debug)]
pub(crate) struct OutputPipe {
    pipe: Option<AsyncFd<OwnedFd>>,
    chunk: Vec<u8>,
}

impl OutputPipe {
    /// Our end of a pipe.
    fn new(read: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&read, true)?;
        Ok(Self {
            pipe: Some(crate::sys::events::watch(read)?),
            chunk: Vec::new(),
        })
    }

    /// What is there next: empty once the stream has ended. Cancel-safe.
    pub(crate) async fn next(&mut self) -> io::Result<&[u8]> {
        let Some(pipe) = &self.pipe else {
            return std::future::pending().await;
        };
        let count = loop {
            let mut ready = pipe.readable().await?;
            // Memory for reading only once there is something to read.
            self.chunk.resize(CHUNK, 0);
            match ready.try_io(|pipe| Ok(rustix::io::read(pipe.get_ref(), &mut *self.chunk)?)) {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(result) => break result?,
                Err(_) => {}
            }
        };
        if count == 0 {
            self.pipe = None;
        }
        Ok(&self.chunk[..count])
    }

    /// Takes what is there already, without waiting: a copy of the guest's end may be on its way
    /// through somebody else's socket, and would never end.
    pub(crate) fn drain(&mut self, mut keep: impl FnMut(&[u8])) {
        let Some(pipe) = &self.pipe else { return };
        self.chunk.resize(CHUNK, 0);
        // A pipe holds a MiB at the most; whoever fills it again meanwhile comes later.
        for _ in 0..(2 << 20) / CHUNK {
            match rustix::io::read(pipe.get_ref(), &mut *self.chunk) {
                Ok(0) | Err(rustix::io::Errno::AGAIN) => break,
                Ok(count) => keep(&self.chunk[..count]),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => break,
            }
        }
        self.chunk = Vec::new();
    }
}

/// A pipe for a guest: the end to read from, and the end to write to.
pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    // It belongs to whoever runs the engine, and `/dev/stdout` opens it anew as the guest's uid.
    rustix::fs::fchmod(&write, rustix::fs::Mode::from_raw_mode(0o666))?;
    Ok((read, write))
}

/// Both streams of a guest.
#[derive(Debug)]
pub(crate) struct Output {
    pub stdout: OutputPipe,
    pub stderr: OutputPipe,
}

impl Output {
    /// Our ends, and the guest's two.
    pub(crate) fn new() -> io::Result<(Self, [OwnedFd; 2])> {
        let ((stdout, stdout_guest), (stderr, stderr_guest)) = (pipe()?, pipe()?);
        Ok((Self::of(stdout, stderr)?, [stdout_guest, stderr_guest]))
    }

    /// The streams of a guest that waits.
    pub(crate) fn of(stdout: OwnedFd, stderr: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            stdout: OutputPipe::new(stdout)?,
            stderr: OutputPipe::new(stderr)?,
        })
    }

    /// The next bytes of either stream; neither can keep the other waiting.
    pub(crate) async fn next(&mut self) -> io::Result<(Stream, &[u8])> {
        tokio::select! {
            bytes = self.stdout.next() => Ok((Stream::Stdout, bytes?)),
            bytes = self.stderr.next() => Ok((Stream::Stderr, bytes?)),
        }
    }

    /// Takes what is there already.
    pub(crate) fn drain(&mut self, mut keep: impl FnMut(Stream, &[u8])) {
        self.stdout.drain(|bytes| keep(Stream::Stdout, bytes));
        self.stderr.drain(|bytes| keep(Stream::Stderr, bytes));
    }
}
