//! The launcher's client: starts it, asks it for nurseries, hears when they end.
//!
//! A thread of its own listens, so that any number of runtimes can share one launcher.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::MemfdFlags;
use rustix::mount::{OpenTreeFlags, open_tree};
use tokio::sync::oneshot;

use super::listener::Listener;
use super::seal::seal;
use crate::sys;
use crate::sys::hook::LAUNCHER_NAME;
use crate::sys::mount::{NO_DEV, NO_SUID, READ_ONLY};
use crate::wire::{self, LauncherEvent, LauncherRequest, RootSpec};

/// A running launcher. It ends when the last handle is dropped.
#[derive(Debug)]
pub(crate) struct Launcher {
    listener: Listener,
    /// Held while sending: frames of two callers must not mix.
    sending: Mutex<()>,
    pending: Arc<Mutex<Pending>>,
    child: Mutex<Child>,
}

/// Who waits for what.
#[derive(Debug, Default)]
struct Pending {
    next: u64,
    ended: HashMap<u64, oneshot::Sender<()>>,
    lost: bool,
}

/// A nursery that was asked for.
#[derive(Debug)]
pub(crate) struct Asked {
    /// Our end of the socket to it.
    pub socket: OwnedFd,
    /// Resolves when nothing of it is left, and with `RecvError` when the launcher is lost.
    pub ended: oneshot::Receiver<()>,
}

impl Launcher {
    pub(crate) fn start() -> io::Result<Arc<Self>> {
        let (ours, theirs) = wire::pair()?;
        let image = read_only_image().or_else(|_| sealed_copy())?;
        let mut command = Command::new(format!(
            "/proc/self/fd/{}",
            std::os::fd::AsRawFd::as_raw_fd(&image)
        ));
        command
            .arg0(LAUNCHER_NAME)
            .env_clear()
            .stdin(theirs)
            .stdout(Stdio::null())
            .current_dir("/");
        #[cfg(feature = "weaken")]
        if let Some(list) = std::env::var_os("BELLJAR_WEAKEN") {
            command.env("BELLJAR_WEAKEN", list);
        }
        let child = command.spawn()?;
        drop(command);
        let pending = Arc::new(Mutex::new(Pending::default()));
        let shared = Arc::clone(&pending);
        let listener = Listener::start("belljar-launcher", ours, move |socket| listen(socket, &shared))?;
        Ok(Arc::new(Self {
            listener,
            sending: Mutex::new(()),
            pending,
            child: Mutex::new(child),
        }))
    }

    /// Whether it is gone.
    pub(crate) fn is_lost(&self) -> bool {
        lock(&self.pending).lost
    }

    /// Says where this engine's control groups are, so that they are removed should the engine die.
    pub(crate) fn tell_groups(&self, subtrees: &[PathBuf], prefix: &str) -> io::Result<()> {
        let subtrees = subtrees.iter().map(|dir| dir.to_string_lossy().into_owned());
        let request = LauncherRequest::Groups {
            subtrees: subtrees.collect(),
            prefix: prefix.to_owned(),
        };
        self.send(&request, &[])
    }

    /// Asks for a nursery. Whether it comes to be is heard on its socket.
    pub(crate) fn ask(&self, spec: RootSpec) -> io::Result<Asked> {
        let (socket, theirs) = wire::pair()?;
        let (ended_sender, ended) = oneshot::channel();
        let nursery = {
            let mut pending = lock(&self.pending);
            if pending.lost {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            let nursery = pending.next;
            pending.next += 1;
            pending.ended.insert(nursery, ended_sender);
            nursery
        };
        let request = LauncherRequest::MakeNursery { nursery, spec };
        if let Err(error) = self.send(&request, &[theirs.as_fd()]) {
            lock(&self.pending).ended.remove(&nursery);
            return Err(error);
        }
        Ok(Asked { socket, ended })
    }

    fn send(&self, request: &LauncherRequest, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        // The launcher reads without pause, so this does not wait for long.
        let _sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        wire::send(self.listener.socket(), request, fds)
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        // Hanging up makes it end everything it started, then itself.
        self.listener.hang_up();
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = child.wait();
    }
}

fn lock(pending: &Mutex<Pending>) -> MutexGuard<'_, Pending> {
    pending.lock().unwrap_or_else(PoisonError::into_inner)
}

fn listen(socket: &OwnedFd, pending: &Mutex<Pending>) {
    while let Ok((LauncherEvent::Ended { nursery }, _)) = wire::receive::<LauncherEvent>(socket) {
        if let Some(sender) = lock(pending).ended.remove(&nursery) {
            let _ = sender.send(());
        }
    }
    let mut pending = lock(pending);
    pending.lost = true;
    // Dropping the senders tells everyone who waits.
    pending.ended.clear();
}

// A guest that got hold of init's own image must not be able to change the program on disk through
// it (as with CVE-2019-5736), so the launcher runs from an image that nobody can write to.

/// This executable behind a mount of its own that cannot be written through. Cheaper than a copy,
/// but only root may make one.
fn read_only_image() -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let image = open_tree(rustix::fs::CWD, "/proc/self/exe", flags)?;
    sys::mount::set_attributes(image.as_fd(), c"", READ_ONLY | NO_SUID | NO_DEV, false, None)?;
    Ok(image)
}

/// A copy of this executable in memory that nobody can write to.
fn sealed_copy() -> io::Result<OwnedFd> {
    let mut source = File::open("/proc/self/exe")?;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let copy = match rustix::fs::memfd_create("belljar", flags | MemfdFlags::EXEC) {
        // Before 6.3 the kernel does not know the flag, and needs none.
        Err(rustix::io::Errno::INVAL) => rustix::fs::memfd_create("belljar", flags)?,
        result => result?,
    };
    let mut target = File::from(copy);
    io::copy(&mut source, &mut target)?;
    let copy = OwnedFd::from(target);
    seal(&copy)?;
    Ok(copy)
}
