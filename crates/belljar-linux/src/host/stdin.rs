//! A guest's standard input.
//!
//! The guest never gets a descriptor of the host's: a terminal could be reprogrammed through it,
//! and a file written. Bytes that are known beforehand are handed over as sealed memory; anything
//! else is pumped through a pipe.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use belljar_core::provider::StageStdin;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::pipe::PipeFlags;

use super::seal::seal;

/// Keeps a pump going; dropping it ends the pump.
#[derive(Debug, Default)]
pub struct Pump {
    _wake: Option<OwnedFd>,
}

/// The guest's end, and what must be kept while it runs.
pub(crate) fn connect(stdin: StageStdin) -> io::Result<(OwnedFd, Pump)> {
    match stdin {
        StageStdin::Empty => {
            let null = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
            Ok((null, Pump { _wake: None }))
        }
        StageStdin::Bytes(bytes) => Ok((sealed(&bytes)?, Pump { _wake: None })),
        StageStdin::Descriptor(source) => pump(source),
    }
}

/// Read-only memory with `bytes` in it, at its start.
pub(crate) fn sealed(bytes: &[u8]) -> io::Result<OwnedFd> {
    let memory = rustix::fs::memfd_create("belljar-input", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut rest = bytes;
    while !rest.is_empty() {
        let count = rustix::io::retry_on_intr(|| rustix::io::write(&memory, rest))?;
        rest = &rest[count..];
    }
    seal(&memory)?;
    rustix::fs::seek(&memory, rustix::fs::SeekFrom::Start(0))?;
    Ok(memory)
}

/// Feeds a guest that waits already: `guest` is our end of its pipe.
pub(crate) fn feed(stdin: StageStdin, guest: OwnedFd) -> io::Result<Pump> {
    match stdin {
        StageStdin::Empty => Ok(Pump { _wake: None }),
        // It fits into the pipe, which nobody has written to yet.
        StageStdin::Bytes(bytes) if bytes.len() <= 4096 => {
            rustix::io::retry_on_intr(|| rustix::io::write(&guest, &bytes))?;
            Ok(Pump { _wake: None })
        }
        StageStdin::Bytes(bytes) => copy_along(sealed(&bytes)?, guest),
        StageStdin::Descriptor(source) => copy_along(source, guest),
    }
}

/// A pipe into which everything of `source` goes, and what must be kept while it does.
pub fn pump(source: OwnedFd) -> io::Result<(OwnedFd, Pump)> {
    let (guest, ours) = super::output::pipe()?;
    Ok((guest, copy_along(source, ours)?))
}

fn copy_along(source: OwnedFd, ours: OwnedFd) -> io::Result<Pump> {
    let (wake, stop) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    std::thread::Builder::new()
        .name("belljar-stdin".to_owned())
        .spawn(move || copy(&source, &ours, &wake))?;
    Ok(Pump { _wake: Some(stop) })
}

/// Copies until the source ends, the guest closes its end, or the pump is dropped.
fn copy(source: &OwnedFd, target: &OwnedFd, wake: &OwnedFd) {
    let mut chunk = vec![0u8; 64 << 10];
    loop {
        let mut waits = [
            PollFd::from_borrowed_fd(source.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(wake.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(target.as_fd(), PollFlags::empty()),
        ];
        match poll(&mut waits, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return,
        }
        if !waits[1].revents().is_empty() || !waits[2].revents().is_empty() {
            return;
        }
        let count = match rustix::io::read(source, &mut chunk) {
            Ok(0) => return,
            Ok(count) => count,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => continue,
            Err(_) => return,
        };
        let mut rest = &chunk[..count];
        while !rest.is_empty() {
            match rustix::io::write(target, rest) {
                Ok(count) => rest = &rest[count..],
                Err(rustix::io::Errno::INTR) => {}
                // The guest has closed it or is gone.
                Err(_) => return,
            }
        }
    }
}
