//! Making a shell: host trees cloned, ids mapped, init born into its namespaces.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::ids::Lease;
use super::{Launcher, Shell};
use crate::init::{self, steps::GUEST_ID};
use crate::sys;
use crate::sys::process::{Side, clone_child};
use crate::wire::{self, CgroupJoin, HostIds, LauncherEvent, Note, ShellSpec, StepFailure, Tree, TreeKind};

const NAMESPACES: u64 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP) as u64;

type StepResult<T> = Result<T, StepFailure>;

fn at<T, E: Into<io::Error>>(step: &str, result: Result<T, E>) -> StepResult<T> {
    result.map_err(|error| StepFailure {
        step: step.to_owned(),
        errno: error.into().raw_os_error().unwrap_or(0),
    })
}

impl Launcher {
    /// Makes a shell and tells the engine; a failure is told as well and is no error here.
    pub(super) fn make_shell(
        &mut self,
        shell: u64,
        spec: &ShellSpec,
        fds: &[OwnedFd],
        control: &OwnedFd,
    ) -> io::Result<()> {
        match self.try_make(shell, spec, fds) {
            Ok((pid, socket, notes)) => {
                let made = LauncherEvent::Made { shell, pid, notes };
                let pidfd = self.shells.get(&pid).map(|shell| shell.pidfd.as_fd());
                let fds: Vec<BorrowedFd<'_>> = pidfd.into_iter().chain([socket.as_fd()]).collect();
                wire::send(control, &made, &fds)
            }
            Err(failure) => wire::send(control, &LauncherEvent::Failed { shell, failure }, &[]),
        }
    }

    fn try_make(
        &mut self,
        number: u64,
        spec: &ShellSpec,
        fds: &[OwnedFd],
    ) -> StepResult<(i32, OwnedFd, Vec<Note>)> {
        if let HostIds::Own { uid, gid } = spec.host_ids {
            self.enter_own_namespace(uid, gid)?;
        }
        let lease = match spec.host_ids {
            HostIds::Fresh => Some(self.ids.take().ok_or_else(|| StepFailure {
                step: "TakeUid".to_owned(),
                errno: libc::EAGAIN,
            })?),
            HostIds::Own { .. } => None,
        };
        let result = self.make_with_ids(number, spec, fds, lease);
        if let (Err(_), Some(lease)) = (&result, lease) {
            self.ids.give_back(lease);
        }
        result
    }

    fn make_with_ids(
        &mut self,
        number: u64,
        spec: &ShellSpec,
        fds: &[OwnedFd],
        lease: Option<Lease>,
    ) -> StepResult<(i32, OwnedFd, Vec<Note>)> {
        let mut notes = Vec::new();
        let mut trees = Vec::with_capacity(spec.trees.len());
        for tree in &spec.trees {
            trees.push(clone_tree(tree, lease, &mut notes)?);
        }
        let pair = || {
            socketpair(
                AddressFamily::UNIX,
                SocketType::STREAM,
                SocketFlags::CLOEXEC,
                None,
            )
        };
        let (engine_end, init_end) = at("Channel", pair())?;
        // Init waits on this until its ids are mapped; it closes if the launcher dies before.
        let (go_launcher, go_init) = at("Channel", pair())?;

        let (cgroup, tasks): (Option<BorrowedFd<'_>>, &[OwnedFd]) = match spec.cgroup {
            CgroupJoin::None => (None, &[]),
            CgroupJoin::Born => (fds.first().map(AsFd::as_fd), &[]),
            CgroupJoin::Tasks(count) => (None, &fds[..fds.len().min(count as usize)]),
        };
        let (pid, pidfd) = match at("Clone", clone_child(NAMESPACES, cgroup))? {
            Side::Child => {
                drop(go_launcher);
                // Set before waiting: if the launcher is gone already, the wait ends at once.
                let tied =
                    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
                let mut go = [0u8; 1];
                let told = rustix::io::retry_on_intr(|| rustix::io::read(&go_init, &mut go));
                if tied.is_err() || !matches!(told, Ok(1)) {
                    sys::process::exit_now(1);
                }
                init::run(spec, &init_end, &trees, tasks, &self.filters);
            }
            Side::Parent { pid, pidfd } => (pid, pidfd),
        };
        self.shells.insert(
            pid,
            Shell {
                number,
                pidfd,
                ids: lease,
                cgroup_dirs: spec.cgroup_dirs.clone(),
            },
        );
        let ids = match (lease, spec.host_ids) {
            (Some(lease), _) => (lease.id(), lease.id()),
            (None, HostIds::Own { uid, gid }) => (uid, gid),
            (None, HostIds::Fresh) => (GUEST_ID, GUEST_ID),
        };
        let ready = map_ids(pid, GUEST_ID, ids, lease.is_none())
            .and_then(|()| Ok(rustix::io::write(&go_launcher, b"g")?));
        if let Err(error) = ready {
            if let Some(shell) = self.shells.remove(&pid) {
                // Not ours any more; reaping it later finds no entry, which is fine.
                let _ = rustix::process::pidfd_send_signal(&shell.pidfd, rustix::process::Signal::KILL);
            }
            return at("MapIds", Err(error));
        }
        Ok((pid, engine_end, notes))
    }

    /// Without root, cloning mounts needs a user and mount namespace of the launcher's own first.
    fn enter_own_namespace(&mut self, uid: u32, gid: u32) -> StepResult<()> {
        if self.own_namespace {
            return Ok(());
        }
        at("OwnNamespace", sys::process::enter_new_user_and_mount_namespace())?;
        at("OwnNamespace", write_map("self", "setgroups", "deny"))?;
        at(
            "OwnNamespace",
            write_map("self", "uid_map", &format!("{uid} {uid} 1")),
        )?;
        at(
            "OwnNamespace",
            write_map("self", "gid_map", &format!("{gid} {gid} 1")),
        )?;
        at(
            "OwnNamespace",
            sys::mount::set_attributes(rustix::fs::CWD, c"/", 0, true, None),
        )?;
        self.own_namespace = true;
        Ok(())
    }
}

fn map_ids(pid: i32, inside: u32, outside: (u32, u32), deny_groups: bool) -> io::Result<()> {
    let process = pid.to_string();
    if deny_groups {
        write_map(&process, "setgroups", "deny")?;
    }
    write_map(&process, "uid_map", &format!("{inside} {} 1", outside.0))?;
    write_map(&process, "gid_map", &format!("{inside} {} 1", outside.1))
}

fn write_map(process: &str, file: &str, text: &str) -> io::Result<()> {
    std::fs::write(format!("/proc/{process}/{file}"), text)
}

/// One part of the host as a detached mount. What a request asked for shows its owner as the
/// guest, where the launcher may map owners and the file system below knows how.
fn clone_tree(tree: &Tree, lease: Option<Lease>, notes: &mut Vec<Note>) -> StepResult<OwnedFd> {
    let plain = || init::clone_tree(&tree.host, tree.kind, tree.writable, None);
    let step = format!("CloneTree {}", String::from_utf8_lossy(&tree.host));
    let (TreeKind::Asked, Some(lease)) = (tree.kind, lease) else {
        return at(&step, plain());
    };
    let mapped = owner_map(&tree.host, lease.id())
        .and_then(|ids| init::clone_tree(&tree.host, tree.kind, tree.writable, Some(ids.as_fd())));
    match mapped {
        Ok(mount) => Ok(mount),
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(libc::EINVAL | libc::EPERM | libc::EOPNOTSUPP)
            ) =>
        {
            notes.push(Note::MountNotMapped(tree.guest.clone()));
            at(&step, plain())
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
