//! Carrying out the steps that raise a shell, one commented call after the other.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};

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
            ShellStep::AttachTrees => self.attach_trees(),
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
        let mut keep: Vec<u32> = [self.control.as_raw_fd()]
            .into_iter()
            .chain(self.trees.iter().map(AsRawFd::as_raw_fd))
            .filter_map(|fd| u32::try_from(fd).ok())
            .collect();
        keep.sort_unstable();
        let mut next = 0;
        for fd in keep {
            if fd > next {
                sys::process::close_between(next, fd - 1)?;
            }
            next = fd + 1;
        }
        sys::process::close_from(next, false)
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
        Ok(())
    }

    fn mount_root(&mut self) -> io::Result<()> {
        let root = tmpfs(&[
            ("size", "4m".to_owned()),
            ("nr_inodes", "4096".to_owned()),
            ("mode", "0755".to_owned()),
        ])?;
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for place in STAGING {
            match attach(root.as_fd(), CWD, place) {
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
        for (place, target) in &self.spec.links {
            let place = self.inside(place)?;
            rustix::fs::symlinkat(target, self.root()?, place)?;
        }
        Ok(())
    }

    fn make_files(&self) -> io::Result<()> {
        for (place, content) in &self.spec.files {
            let file = self.new_file(place)?;
            write_all(&file, content)?;
        }
        Ok(())
    }

    fn attach_trees(&self) -> io::Result<()> {
        for (tree, fd) in self.spec.trees.iter().zip(self.trees) {
            if tree.is_dir {
                let place = self.inside(&tree.guest)?;
                match rustix::fs::mkdirat(self.root()?, place, Mode::from_raw_mode(0o755)) {
                    // A tree may lie below another that is attached already, or hold others.
                    Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
            } else {
                drop(self.new_file(&tree.guest)?);
            }
            // Trees below the scratch directories wait until those are there.
            if !below_scratch(&tree.guest) {
                attach(fd.as_fd(), self.root()?, relative(&tree.guest))?;
            }
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
        self.make_dirs(WHOLE)?;
        attach(scratch.as_fd(), self.root()?, WHOLE)?;
        for (place, name, mode) in SCRATCH {
            let is_tree = place == "workspace" && self.spec.workspace_is_tree;
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
            self.make_dirs(place)?;
            attach(part.as_fd(), self.root()?, place)?;
        }
        rustix::process::fchdir(self.root()?)?;
        rustix::mount::unmount(WHOLE, UnmountFlags::DETACH)?;
        rustix::fs::unlinkat(self.root()?, WHOLE, rustix::fs::AtFlags::REMOVEDIR)?;
        for (tree, fd) in self.spec.trees.iter().zip(self.trees) {
            if below_scratch(&tree.guest) {
                self.make_dirs_for(tree.is_dir, relative(&tree.guest))?;
                attach(fd.as_fd(), self.root()?, relative(&tree.guest))?;
            }
        }
        Ok(())
    }

    fn mount_proc(&mut self) -> io::Result<()> {
        self.make_dirs("proc")?;
        let mounted = (|| -> io::Result<()> {
            let context = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
            if !weaken::is_off("privateproc") {
                fsconfig_set_string(context.as_fd(), "subset", "pid")?;
                // Only what it may trace anyway, which init never is. The milder 2 has an exception for group 0.
                fsconfig_set_string(context.as_fd(), "hidepid", "4")?;
            }
            fsconfig_create(context.as_fd())?;
            let proc = fsmount(
                context.as_fd(),
                FsMountFlags::FSMOUNT_CLOEXEC,
                MountAttrFlags::MOUNT_ATTR_NOSUID
                    | MountAttrFlags::MOUNT_ATTR_NODEV
                    | MountAttrFlags::MOUNT_ATTR_NOEXEC,
            )?;
            attach(proc.as_fd(), self.root()?, "proc")
        })();
        // Inside some containers the kernel does not give a new one; the guest then has none.
        self.notes.push(match mounted {
            Ok(()) => Note::ProcMounted,
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

    /// The place relative to the root, with the directories above it made.
    fn inside<'p>(&self, place: &'p str) -> io::Result<&'p str> {
        let place = relative(place);
        if let Some((above, _)) = place.rsplit_once('/') {
            self.make_dirs(above)?;
        }
        Ok(place)
    }

    fn make_dirs(&self, place: &str) -> io::Result<()> {
        make_dirs(self.root()?, place)
    }

    fn make_dirs_for(&self, is_dir: bool, place: &str) -> io::Result<()> {
        if is_dir {
            return self.make_dirs(place);
        }
        drop(self.new_file(place)?);
        Ok(())
    }

    fn new_file(&self, place: &str) -> io::Result<OwnedFd> {
        let place = self.inside(place)?;
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(rustix::fs::openat(
            self.root()?,
            place,
            flags,
            Mode::from_raw_mode(0o644),
        )?)
    }
}

fn make_dirs(root: BorrowedFd<'_>, place: &str) -> io::Result<()> {
    let ends = place.match_indices('/').map(|(at, _)| at).chain([place.len()]);
    for end in ends {
        match rustix::fs::mkdirat(root, &place[..end], Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn relative(place: &str) -> &str {
    place.trim_start_matches('/')
}

/// Whether a place lies within scratch memory, which is mounted after the other trees.
fn below_scratch(guest: &str) -> bool {
    SCRATCH.iter().any(|(place, _, _)| {
        relative(guest)
            .strip_prefix(place)
            .is_some_and(|rest| rest.starts_with('/'))
    })
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

fn attach(mount: BorrowedFd<'_>, dir: BorrowedFd<'_>, place: &str) -> io::Result<()> {
    Ok(move_mount(
        mount,
        "",
        dir,
        place,
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
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
