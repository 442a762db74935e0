//! Reading a guest's output: concurrently, capped, in bounded memory.

use std::io;
use std::os::fd::OwnedFd;

use belljar_core::Captured;
use rustix::pipe::PipeFlags;
use tokio::io::unix::AsyncFd;

/// How much is read at once.
const CHUNK: usize = 64 << 10;

/// One stream of a guest.
#[derive(Debug)]
pub(crate) struct OutputPipe {
    pipe: Option<AsyncFd<OwnedFd>>,
    kept: Vec<u8>,
    cap: usize,
    dropped: u64,
    chunk: Box<[u8]>,
}

impl OutputPipe {
    /// A pipe: our end, and the guest's.
    pub(crate) fn new(cap: u64) -> io::Result<(Self, OwnedFd)> {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        // It belongs to whoever runs the engine, and `/dev/stdout` opens it anew as the guest's uid.
        rustix::fs::fchmod(&write, rustix::fs::Mode::from_raw_mode(0o666))?;
        rustix::io::ioctl_fionbio(&read, true)?;
        let pipe = Some(crate::sys::events::watch(read)?);
        let cap = usize::try_from(cap).unwrap_or(usize::MAX);
        Ok((
            Self {
                pipe,
                kept: Vec::new(),
                cap,
                dropped: 0,
                chunk: vec![0; CHUNK].into(),
            },
            write,
        ))
    }

    /// Reads what is there next and returns the part of it that is kept: empty once the stream has
    /// ended or its cap is reached. Cancel-safe.
    pub(crate) async fn next(&mut self) -> io::Result<&[u8]> {
        let Some(pipe) = &self.pipe else {
            return std::future::pending().await;
        };
        let count = loop {
            let mut ready = pipe.readable().await?;
            match ready.try_io(|pipe| Ok(rustix::io::read(pipe.get_ref(), &mut *self.chunk)?)) {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(result) => break result?,
                Err(_) => {}
            }
        };
        if count == 0 {
            self.pipe = None;
            return Ok(&[]);
        }
        Ok(self.take(count))
    }

    /// Takes what is left once everything that could write is dead, without waiting: a copy of the
    /// guest's end may be on its way through somebody else's socket, and would never end.
    pub(crate) fn drain(&mut self, mut keep: impl FnMut(&[u8])) {
        let Some(pipe) = self.pipe.take() else { return };
        // A pipe holds a MiB at the most; whoever fills it again meanwhile is not the guest.
        for _ in 0..(2 << 20) / CHUNK {
            match rustix::io::read(pipe.get_ref(), &mut *self.chunk) {
                Ok(0) | Err(rustix::io::Errno::AGAIN) => return,
                Ok(count) => keep(self.take(count)),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    /// Keeps what there is room for of the chunk that was read last.
    fn take(&mut self, count: usize) -> &[u8] {
        let keep = count.min(self.cap - self.kept.len());
        self.kept.extend_from_slice(&self.chunk[..keep]);
        self.dropped += (count - keep) as u64;
        &self.kept[self.kept.len() - keep..]
    }

    pub(crate) fn into_captured(self) -> Captured {
        Captured::new(self.kept, self.dropped)
    }
}
