//! Carrying out the steps that raise a shell, one commented call after the other.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, OpenTreeFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_string, fsmount, fsopen, open_tree,
};

use super::place;
use super::steps::{GUEST_ID, ShellStep};
use crate::sys;
use crate::sys::mount::{NO_DEV, NO_SUID, READ_ONLY, set_attributes};
use crate::weaken;
use crate::wire::{HostIds, Note, ShellSpec, TreeKind};

/// What init holds while it raises a shell.
pub(crate) struct Raising<'a> {
    pub spec: &'a ShellSpec,
    /// The socket to the engine.
    pub control: BorrowedFd<'a>,
    /// One detached mount for each of the spec's trees.
    pub trees: &'a [OwnedFd],
    /// `tasks` files of v1 groups, opened by the engine.
    pub tasks: &'a [OwnedFd],
    pub root: Option<OwnedFd>,
    /// A `/proc` of init's own that hides nothing from it and is attached nowhere.
    pub proc: Option<OwnedFd>,
    pub notes: Vec<Note>,
}

/// Where the new root is put together: any directory will do, since nothing below it is needed.
const STAGING: [&str; 4] = ["/tmp", "/run", "/var", "/usr"];
/// The parts of scratch memory: where each is attached, its name within, and its mode.
const SCRATCH: [(&str, &str, u32); 3] = [
    ("workspace", "workspace", 0o755),
    ("tmp", "tmp", 0o1777),
    ("dev/shm", "shm", 0o1777),
];

impl Raising<'_> {
    pub(crate) fn perform(&mut self, step: &ShellStep) -> io::Result<()> {
        match step {
            ShellStep::JoinCgroups => self.join_cgroups(),
            ShellStep::NewSession => Ok(rustix::process::setsid().map(drop)?),
            ShellStep::CloseForeignDescriptors => self.close_foreign_descriptors(),
            ShellStep::BecomeGuestUser => self.become_guest_user(),
            ShellStep::Undumpable => Ok(rustix::process::set_dumpable_behavior(
                rustix::process::DumpableBehavior::NotDumpable,
            )?),
            ShellStep::PrivatePropagation => set_attributes(CWD, c"/", 0, true, None),
            ShellStep::MountRoot => self.mount_root(),
            ShellStep::MakeLinks => self.make_links(),
            ShellStep::MakeFiles => self.make_files(),
            ShellStep::AttachTrees => self.attach_trees(false),
            ShellStep::MountScratch => self.mount_scratch(),
            ShellStep::MountProc => self.mount_proc(),
            ShellStep::SealRoot => {
                set_attributes(self.root()?, c"", READ_ONLY | NO_SUID | NO_DEV, false, None)
            }
            ShellStep::PivotRoot => self.pivot_root(),
            // The old root lies over the new one now; taking it off leaves nothing of the host's tree.
            ShellStep::DetachOldRoot => Ok(rustix::mount::unmount(".", UnmountFlags::DETACH)?),
            ShellStep::CheckRoot => check_root(),
            ShellStep::Loopback => sys::net::loopback_up(),
            ShellStep::HostName => Ok(rustix::system::sethostname(b"belljar")?),
        }
    }

    /// Writing "0" means "me". Moving oneself, and only one task, spares the kernel a global lock
    /// whose first use costs a grace period of ten milliseconds and more.
    fn join_cgroups(&self) -> io::Result<()> {
        for tasks in self.tasks {
            rustix::io::write(tasks, b"0")?;
        }
        Ok(())
    }

    fn close_foreign_descriptors(&self) -> io::Result<()> {
        sys::process::close_all_but(
            [self.control]
                .into_iter()
                .chain(self.trees.iter().map(AsFd::as_fd)),
        )
    }

    fn become_guest_user(&self) -> io::Result<()> {
        let uid = rustix::process::Uid::from_raw(GUEST_ID);
        let gid = rustix::process::Gid::from_raw(GUEST_ID);
        if matches!(self.spec.host_ids, HostIds::Fresh) {
            // The launcher's own groups; without privileges the kernel does not let go of them.
            rustix::thread::set_thread_groups(&[])?;
        }
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        // No uid 0 is mapped here, so this does not clear the capabilities the mounts still need.
        rustix::thread::set_thread_res_uid(uid, uid, uid)?;
        // The kernel forgets this signal when a process changes its ids.
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        Ok(())
    }

    fn mount_root(&mut self) -> io::Result<()> {
        let root = tmpfs(&[
            ("size", "4m".to_owned()),
            ("nr_inodes", "4096".to_owned()),
            ("mode", "0755".to_owned()),
        ])?;
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for staging in STAGING {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let attached = rustix::fs::open(staging, flags, Mode::empty())
                .map_err(io::Error::from)
                .and_then(|staging| place::attach(root.as_fd(), staging.as_fd()));
            match attached {
                Ok(()) => {
                    self.root = Some(root);
                    return Ok(());
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn make_links(&self) -> io::Result<()> {
        for (path, target) in &self.spec.links {
            place::link(self.root()?, path, target)?;
        }
        Ok(())
    }

    fn make_files(&self) -> io::Result<()> {
        for (path, content) in &self.spec.files {
            write_all(&place::file(self.root()?, path)?, content)?;
        }
        Ok(())
    }

    /// Trees below the scratch directories wait until those are there.
    fn attach_trees(&self, below_scratch: bool) -> io::Result<()> {
        for (tree, mount) in self.spec.trees.iter().zip(self.trees) {
            if is_below_scratch(&tree.guest) != below_scratch {
                continue;
            }
            let place = if tree.is_dir {
                place::dir(self.root()?, &tree.guest)?
            } else {
                place::file(self.root()?, &tree.guest)?
            };
            place::attach(mount.as_fd(), place.as_fd())?;
        }
        Ok(())
    }

    fn mount_scratch(&self) -> io::Result<()> {
        const WHOLE: &str = ".scratch";
        let scratch = tmpfs(&[
            ("size", self.spec.disk_bytes.to_string()),
            ("nr_inodes", self.spec.inodes.to_string()),
            ("mode", "0755".to_owned()),
        ])?;
        // Parts can be cloned only from a mount that is attached (before 6.15), so the whole stands
        // in the new root for a moment.
        place::attach(scratch.as_fd(), place::dir(self.root()?, WHOLE)?.as_fd())?;
        for (path, name, mode) in SCRATCH {
            let is_tree = path == "workspace" && self.spec.workspace_is_tree;
            if is_tree {
                continue;
            }
            // mkdir's own mode is cut by the umask; the sticky bit needs a chmod anyway.
            rustix::fs::mkdirat(&scratch, name, Mode::from_raw_mode(0o700))?;
            rustix::fs::chmodat(
                &scratch,
                name,
                Mode::from_raw_mode(mode),
                rustix::fs::AtFlags::empty(),
            )?;
            let part = open_tree(
                &scratch,
                name,
                OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC,
            )?;
            place::attach(part.as_fd(), place::dir(self.root()?, path)?.as_fd())?;
        }
        rustix::process::fchdir(self.root()?)?;
        rustix::mount::unmount(WHOLE, UnmountFlags::DETACH)?;
        rustix::fs::unlinkat(self.root()?, WHOLE, rustix::fs::AtFlags::REMOVEDIR)?;
        self.attach_trees(true)
    }

    fn mount_proc(&mut self) -> io::Result<()> {
        let place = place::dir(self.root()?, "proc")?;
        // Only what it may trace anyway, which init never is. The milder 2 has an exception for group 0.
        let hidden = if weaken::is_off("privateproc") {
            &[][..]
        } else {
            &[("subset", "pid"), ("hidepid", "4")]
        };
        let mounted = procfs(hidden).and_then(|proc| {
            place::attach(proc.as_fd(), place.as_fd())?;
            // A program that it cannot read hides a process even from init, so init looks elsewhere.
            let own = procfs(&[("subset", "pid")])?;
            Ok(rustix::fs::openat(
                &own,
                ".",
                OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
            )?)
        });
        // Inside some containers the kernel does not give a new one; the guest then has none.
        self.notes.push(match mounted {
            Ok(own) => {
                self.proc = Some(own);
                Note::ProcMounted
            }
            Err(error) => Note::ProcAbsent(error.raw_os_error().unwrap_or(0)),
        });
        Ok(())
    }

    fn pivot_root(&self) -> io::Result<()> {
        rustix::process::fchdir(self.root()?)?;
        Ok(rustix::process::pivot_root(".", ".")?)
    }

    fn root(&self) -> io::Result<BorrowedFd<'_>> {
        self.root
            .as_ref()
            .map(AsFd::as_fd)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// Whether a place lies within scratch memory, which is mounted after the other trees.
fn is_below_scratch(guest: &str) -> bool {
    let guest = guest.trim_start_matches('/');
    SCRATCH
        .iter()
        .any(|(path, _, _)| guest.strip_prefix(path).is_some_and(|rest| rest.starts_with('/')))
}

fn check_root() -> io::Result<()> {
    rustix::process::chdir("/")?;
    let here = rustix::process::getcwd(Vec::new())?;
    // A path that starts with "(unreachable)" would mean that we stand outside of our own root.
    if here.to_bytes() == b"/" {
        Ok(())
    } else {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

fn procfs(options: &[(&str, &str)]) -> io::Result<OwnedFd> {
    let context = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        fsconfig_set_string(context.as_fd(), *key, *value)?;
    }
    fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Ok(fsmount(
        context.as_fd(),
        FsMountFlags::FSMOUNT_CLOEXEC,
        attributes,
    )?)
}

fn tmpfs(options: &[(&str, String)]) -> io::Result<OwnedFd> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        fsconfig_set_string(context.as_fd(), *key, value.as_str())?;
    }
    fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    Ok(fsmount(
        context.as_fd(),
        FsMountFlags::FSMOUNT_CLOEXEC,
        attributes,
    )?)
}

pub(super) fn write_all(file: &OwnedFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let count = rustix::io::retry_on_intr(|| rustix::io::write(file, bytes))?;
        bytes = &bytes[count..];
    }
    Ok(())
}

/// Clones one part of the host's tree as a detached mount with its access set. Done by the
/// launcher, which may pass directories that the guest's uid cannot enter.
pub(crate) fn clone_tree(
    host: &[u8],
    kind: TreeKind,
    writable: bool,
    ids: Option<BorrowedFd<'_>>,
) -> io::Result<OwnedFd> {
    let path = CString::new(host)?;
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let tree = if kind == TreeKind::Asked {
        // A policy permits paths, not what a link planted below one of them leads to.
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let place = rustix::fs::openat2(CWD, &path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)?;
        open_tree(&place, "", flags | OpenTreeFlags::AT_EMPTY_PATH)?
    } else {
        open_tree(CWD, &path, flags)?
    };
    let mut attributes = NO_SUID;
    if kind != TreeKind::Device {
        attributes |= NO_DEV;
    }
    if !writable && kind != TreeKind::Device {
        attributes |= READ_ONLY;
    }
    set_attributes(tree.as_fd(), c"", attributes, true, None)?;
    if ids.is_some() {
        // What is mounted further down keeps its owners: another file system may not know mapping.
        set_attributes(tree.as_fd(), c"", 0, false, ids)?;
    }
    Ok(tree)
}

/// Takes the right to write from every place where files can be made.
pub(super) fn seal_writable(places: &[String]) -> io::Result<()> {
    for place in ["/workspace", "/tmp", "/dev/shm"]
        .into_iter()
        .chain(places.iter().map(String::as_str))
    {
        let path = CString::new(place)?;
        set_attributes(CWD, &path, READ_ONLY | NO_SUID | NO_DEV, true, None)?;
    }
    Ok(())
}
