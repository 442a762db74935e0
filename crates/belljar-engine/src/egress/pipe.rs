//! Much on its way from one socket to another: the kernel hands it over itself, and no byte of it is copied here.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::all_places;

/// As much as is on its way at once.
const SIZE: usize = 512 << 10;

/// Something that holds what is between two sockets.
#[derive(Debug)]
pub(super) struct Pipe {
    end: OwnedFd,
    begin: OwnedFd,
    _place: SemaphorePermit<'static>,
}

impl Pipe {
    /// One more, as long as there are not too many: each takes two descriptors.
    pub(super) fn new() -> Option<Self> {
        static PLACES: OnceLock<Semaphore> = OnceLock::new();
        let places = PLACES.get_or_init(|| Semaphore::new(all_places().0 / 4));
        let place = places.try_acquire().ok()?;
        let (end, begin) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
        // Users without privileges have a limit for all their pipes; a smaller one does as well.
        let _ = fcntl_setpipe_size(&begin, SIZE);
        Some(Self {
            end,
            begin,
            _place: place,
        })
    }

    /// Takes what has come, which it must have room for: it is empty. Nothing means that no more comes.
    pub(super) fn fill(&self, from: &TcpStream) -> io::Result<usize> {
        from.try_io(Interest::READABLE, || {
            let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
            Ok(splice(from, None, &self.begin, None, SIZE, flags)?)
        })
    }

    /// Gives all of it on.
    pub(super) async fn empty(&self, to: &TcpStream, mut left: usize) -> io::Result<()> {
        while left > 0 {
            to.writable().await?;
            let given = to.try_io(Interest::WRITABLE, || {
                let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
                Ok(splice(&self.end, None, to, None, left, flags)?)
            });
            match given {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => left -= count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
