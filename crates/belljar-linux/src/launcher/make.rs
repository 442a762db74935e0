//! Making a nursery: host trees cloned, ids mapped, a clone of the launcher in its namespaces.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::{Launcher, Nursery};
use crate::birth;
use crate::mounts;
use crate::nursery::{self, IdBlock};
use crate::sys;
use crate::sys::process::{Side, clone_child};
use crate::wire::{self, HostIds, Note, NurseryEvent, RootSpec, StepFailure, Tree, TreeKind};

/// Its shells get the other namespaces.
const NAMESPACES: u64 = (libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWPID) as u64;

type StepResult<T> = Result<T, StepFailure>;

fn at<T, E: Into<io::Error>>(step: &str, result: Result<T, E>) -> StepResult<T> {
    result.map_err(|error| StepFailure::new(step, error))
}

impl Launcher {
    /// Makes a nursery and says whether that worked; why not is said on the nursery's own socket.
    pub(super) fn make_nursery(&mut self, number: u64, spec: &RootSpec, fds: &[OwnedFd]) -> bool {
        let Some(control) = fds.first() else { return false };
        match self.try_make(number, spec, control) {
            Ok(()) => true,
            Err(failure) => {
                let _ = wire::send(control, &NurseryEvent::SetupFailed(failure), &[]);
                false
            }
        }
    }

    fn try_make(&mut self, number: u64, spec: &RootSpec, control: &OwnedFd) -> StepResult<()> {
        let ids = match spec.host_ids {
            HostIds::Own { uid, gid } => {
                self.enter_own_namespace(uid, gid)?;
                None
            }
            HostIds::Fresh => {
                let taken = self.nurseries.values().filter_map(|nursery| nursery.ids);
                Some(at("TakeIds", IdBlock::pick(taken))?)
            }
        };
        let mut notes = Vec::new();
        let mut trees = Vec::with_capacity(spec.trees.len());
        for tree in &spec.trees {
            trees.push(clone_tree(tree, ids, &mut notes)?);
        }
        // The nursery waits on this until its ids are mapped. Afterwards it closes when the launcher exits.
        let (go_launcher, go_nursery) = at("Channel", wire::pair())?;
        let (pid, pidfd) = match at("Clone", clone_child(NAMESPACES, None))? {
            Side::Child => {
                drop(go_launcher);
                birth::wait_for_parent(&go_nursery);
                nursery::run(spec, control, &go_nursery, trees, notes, &self.filters);
            }
            Side::Parent { pid, pidfd } => (pid, pidfd),
        };
        let maps = match (ids, spec.host_ids) {
            (Some(ids), _) => (ids.map(), ids.map()),
            (None, HostIds::Own { uid, gid }) => (format!("{uid} {uid} 1"), format!("{gid} {gid} 1")),
            (None, HostIds::Fresh) => (String::new(), String::new()),
        };
        let process = pid.to_string();
        let ready = deny_groups(&process, ids.is_none())
            .and_then(|()| write_map(&process, "uid_map", &maps.0))
            .and_then(|()| write_map(&process, "gid_map", &maps.1))
            .and_then(|()| Ok(rustix::io::write(&go_launcher, b"g")?));
        if let Err(error) = ready {
            // Reaping it later finds no entry, which is fine.
            let _ = rustix::process::pidfd_send_signal(&pidfd, rustix::process::Signal::KILL);
            return at("MapIds", Err(error));
        }
        let nursery = Nursery {
            number,
            pidfd,
            alive: go_launcher,
            ids,
        };
        self.nurseries.insert(pid, nursery);
        Ok(())
    }

    /// Without root, cloning mounts needs a user and mount namespace of the launcher's own first.
    fn enter_own_namespace(&mut self, uid: u32, gid: u32) -> StepResult<()> {
        if self.own_namespace {
            return Ok(());
        }
        at("OwnNamespace", sys::process::enter_new_user_and_mount_namespace())?;
        let mapped = deny_groups("self", true)
            .and_then(|()| write_map("self", "uid_map", &format!("{uid} {uid} 1")))
            .and_then(|()| write_map("self", "gid_map", &format!("{gid} {gid} 1")))
            .and_then(|()| sys::mount::set_attributes(rustix::fs::CWD, c"/", 0, true, None));
        at("OwnNamespace", mapped)?;
        self.own_namespace = true;
        Ok(())
    }
}

/// Without privileges the kernel maps groups only where they can no longer be changed.
fn deny_groups(process: &str, deny: bool) -> io::Result<()> {
    if deny {
        write_map(process, "setgroups", "deny")?;
    }
    Ok(())
}

fn write_map(process: &str, file: &str, text: &str) -> io::Result<()> {
    std::fs::write(format!("/proc/{process}/{file}"), text)
}

/// One part of the host as a detached mount. What a request asked for shows its owner as the
/// guest, where the launcher may map owners and the file system below knows how.
fn clone_tree(tree: &Tree, ids: Option<IdBlock>, notes: &mut Vec<Note>) -> StepResult<OwnedFd> {
    let clone = |map: Option<BorrowedFd<'_>>| mounts::clone_tree(&tree.host, tree.kind, tree.writable, map);
    let step = format!("CloneTree {}", String::from_utf8_lossy(&tree.host));
    let (TreeKind::Asked, Some(ids)) = (tree.kind, ids) else {
        return at(&step, clone(None));
    };
    // Who asks for trees has a nursery of its own, and in it the first id.
    let mapped = owner_map(&tree.host, ids.first()).and_then(|map| clone(Some(map.as_fd())));
    match mapped {
        Ok(mount) => Ok(mount),
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(libc::EINVAL | libc::EPERM | libc::EOPNOTSUPP)
            ) =>
        {
            notes.push(Note::MountNotMapped(tree.guest.clone()));
            at(&step, clone(None))
        }
        Err(error) => at(&step, Err(error)),
    }
}

/// A user namespace that maps the owner of `host` to `id`. Only its descriptor is needed, so the
/// process that made it is gone before this returns.
fn owner_map(host: &[u8], id: u32) -> io::Result<OwnedFd> {
    let path = std::ffi::CString::new(host)?;
    let owner = rustix::fs::stat(&path)?;
    match clone_child(libc::CLONE_NEWUSER as u64, None)? {
        Side::Child => loop {
            let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
            std::thread::sleep(std::time::Duration::from_secs(1));
        },
        Side::Parent { pid, pidfd } => {
            let namespace = write_map(&pid.to_string(), "uid_map", &format!("{} {id} 1", owner.st_uid))
                .and_then(|()| write_map(&pid.to_string(), "gid_map", &format!("{} {id} 1", owner.st_gid)))
                .and_then(|()| std::fs::File::open(format!("/proc/{pid}/ns/user")));
            rustix::process::pidfd_send_signal(&pidfd, rustix::process::Signal::KILL)?;
            // The launcher's loop reaps it.
            Ok(namespace?.into())
        }
    }
}
