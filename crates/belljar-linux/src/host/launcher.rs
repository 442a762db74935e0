//! The launcher's client: starts it, asks it for shells, hears when they end.
//!
//! A thread of its own listens, so that any number of runtimes can share one launcher.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use tokio::sync::oneshot;

use crate::sys;
use crate::sys::hook::LAUNCHER_NAME;
use crate::sys::mount::{NO_DEV, NO_SUID, READ_ONLY};
use crate::wire::{self, LauncherEvent, LauncherRequest, Note, ShellSpec, StepFailure};

/// A running launcher. It ends when the last handle is dropped.
#[derive(Debug)]
pub(crate) struct Launcher {
    socket: OwnedFd,
    /// Held while sending: frames of two callers must not mix.
    sending: Mutex<()>,
    pending: Arc<Mutex<Pending>>,
    child: Mutex<Child>,
}

/// Who waits for what.
#[derive(Debug, Default)]
struct Pending {
    next: u64,
    made: HashMap<u64, oneshot::Sender<MadeResult>>,
    ended: HashMap<u64, oneshot::Sender<()>>,
    lost: bool,
}

type MadeResult = Result<MadeShell, StepFailure>;

/// What the launcher hands over with a shell.
#[derive(Debug)]
pub(crate) struct MadeShell {
    pub pid: i32,
    pub pidfd: OwnedFd,
    pub control: OwnedFd,
    pub notes: Vec<Note>,
}

/// A shell that was asked for. Both ends report `RecvError` when the launcher is lost.
#[derive(Debug)]
pub(crate) struct Asked {
    pub made: oneshot::Receiver<MadeResult>,
    pub ended: oneshot::Receiver<()>,
}

impl Launcher {
    pub(crate) fn start() -> io::Result<Arc<Self>> {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
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
        let (socket, shared) = (ours.try_clone()?, Arc::clone(&pending));
        std::thread::Builder::new()
            .name("belljar-launcher".to_owned())
            .spawn(move || listen(&socket, &shared))?;
        Ok(Arc::new(Self {
            socket: ours,
            sending: Mutex::new(()),
            pending,
            child: Mutex::new(child),
        }))
    }

    /// Whether it is gone.
    pub(crate) fn is_lost(&self) -> bool {
        lock(&self.pending).lost
    }

    /// Asks for a shell. The descriptors of `fds` go along.
    pub(crate) fn ask(&self, spec: ShellSpec, fds: &[OwnedFd]) -> io::Result<Asked> {
        let (made_sender, made) = oneshot::channel();
        let (ended_sender, ended) = oneshot::channel();
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        let shell = {
            let mut pending = lock(&self.pending);
            if pending.lost {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            let shell = pending.next;
            pending.next += 1;
            pending.made.insert(shell, made_sender);
            pending.ended.insert(shell, ended_sender);
            shell
        };
        // The launcher reads without pause, so this does not wait for long.
        let sent = {
            let _sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
            wire::send(&self.socket, &LauncherRequest::MakeShell { shell, spec }, &fds)
        };
        if let Err(error) = sent {
            let mut pending = lock(&self.pending);
            pending.made.remove(&shell);
            pending.ended.remove(&shell);
            return Err(error);
        }
        Ok(Asked { made, ended })
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        // Hanging up makes it end everything it started, then itself.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = child.wait();
    }
}

fn lock(pending: &Mutex<Pending>) -> MutexGuard<'_, Pending> {
    pending.lock().unwrap_or_else(PoisonError::into_inner)
}

fn listen(socket: &OwnedFd, pending: &Mutex<Pending>) {
    while let Ok((event, fds)) = wire::receive::<LauncherEvent>(socket) {
        let mut pending = lock(pending);
        match event {
            LauncherEvent::Made { shell, pid, notes } => {
                let mut fds = fds.into_iter();
                if let (Some(sender), Some(pidfd), Some(control)) =
                    (pending.made.remove(&shell), fds.next(), fds.next())
                {
                    let _ = sender.send(Ok(MadeShell {
                        pid,
                        pidfd,
                        control,
                        notes,
                    }));
                }
            }
            LauncherEvent::Failed { shell, failure } => {
                pending.ended.remove(&shell);
                if let Some(sender) = pending.made.remove(&shell) {
                    let _ = sender.send(Err(failure));
                }
            }
            LauncherEvent::Ended { shell } => {
                if let Some(sender) = pending.ended.remove(&shell) {
                    let _ = sender.send(());
                }
            }
        }
    }
    let mut pending = lock(pending);
    pending.lost = true;
    // Dropping the senders tells everyone who waits.
    pending.made.clear();
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
    rustix::fs::fcntl_add_seals(
        &copy,
        SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL,
    )?;
    Ok(copy)
}
