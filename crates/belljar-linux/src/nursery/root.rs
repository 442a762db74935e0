//! Carrying out the steps that raise the root of a nursery.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::UnmountFlags;

use crate::init::steps::RootStep;
use crate::mounts::{self, place, scratch};
use crate::sys;
use crate::sys::mount::{NO_DEV, NO_SUID, READ_ONLY, set_attributes};
use crate::weaken;
use crate::wire::{Note, RootSpec};

/// What a nursery holds while it raises its root.
pub(super) struct Raising<'a> {
    pub spec: &'a RootSpec,
    /// The descriptors to keep: the sockets to the engine and to the launcher, a handle of the host's `/proc`.
    pub keep: [BorrowedFd<'a>; 3],
    /// One detached mount for each of the spec's trees.
    pub trees: &'a [OwnedFd],
    pub root: Option<OwnedFd>,
    pub notes: Vec<Note>,
}

/// Where the new root is put together: any directory will do, since nothing below it is needed.
const STAGING: [&str; 4] = ["/tmp", "/run", "/var", "/usr"];

impl Raising<'_> {
    pub(super) fn perform(&mut self, step: &RootStep) -> io::Result<()> {
        match step {
            RootStep::NewSession => Ok(rustix::process::setsid().map(drop)?),
            RootStep::CloseForeignDescriptors => {
                sys::process::close_all_but(self.keep.into_iter().chain(self.trees.iter().map(AsFd::as_fd)))
            }
            RootStep::PrivatePropagation => set_attributes(CWD, c"/", 0, true, None),
            RootStep::MountRoot => self.mount_root(),
            RootStep::MakeLinks => self.make_links(),
            RootStep::MakeFiles => self.make_files(),
            RootStep::AttachTrees => self.attach_trees(),
            RootStep::MakePlaces => self.make_places(),
            RootStep::MountProc => {
                self.mount_proc();
                Ok(())
            }
            RootStep::SealRoot => {
                set_attributes(self.root()?, c"", READ_ONLY | NO_SUID | NO_DEV, false, None)
            }
            RootStep::PivotRoot => {
                rustix::process::fchdir(self.root()?)?;
                Ok(rustix::process::pivot_root(".", ".")?)
            }
            // The old root lies over the new one now; taking it off leaves nothing of the host's tree.
            RootStep::DetachOldRoot => Ok(rustix::mount::unmount(".", UnmountFlags::DETACH)?),
            RootStep::CheckRoot => mounts::check_root(),
        }
    }

    fn mount_root(&mut self) -> io::Result<()> {
        let root = mounts::tmpfs(&[
            ("size", "4m".to_owned()),
            ("nr_inodes", "4096".to_owned()),
            // The guest does not own it either, so a test of the seal has to open this too.
            (
                "mode",
                if weaken::is_off("sealroot") {
                    "0777"
                } else {
                    "0755"
                }
                .to_owned(),
            ),
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
            mounts::write_all(&place::file(self.root()?, path)?, content)?;
        }
        Ok(())
    }

    /// Trees below the scratch directories wait until a shell has those.
    fn attach_trees(&self) -> io::Result<()> {
        for (tree, mount) in self.spec.trees.iter().zip(self.trees) {
            if !is_below_scratch(&tree.guest) {
                place::attach_at(mount.as_fd(), self.root()?, &tree.guest, tree.is_dir)?;
            }
        }
        Ok(())
    }

    /// Where each shell mounts what is its own: nothing can be made in the root once it is sealed.
    fn make_places(&self) -> io::Result<()> {
        for path in scratch::PARTS.iter().map(|part| part.path).chain(["proc"]) {
            place::dir(self.root()?, path)?;
        }
        Ok(())
    }

    /// A `/proc` of the nursery's own processes. The kernel gives a shell one of its own only where
    /// such a mount is in view already, and the shell's covers this one.
    fn mount_proc(&mut self) {
        let mounted = mounts::procfs(&[]).and_then(|proc| {
            let place = place::dir(self.root()?, "proc")?;
            place::attach(proc.as_fd(), place.as_fd())
        });
        // Inside some containers the kernel does not give a new one; the guests then have none.
        if let Err(error) = mounted {
            self.notes
                .push(Note::ProcAbsent(error.raw_os_error().unwrap_or(0)));
        }
    }

    fn root(&self) -> io::Result<BorrowedFd<'_>> {
        self.root
            .as_ref()
            .map(AsFd::as_fd)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// Whether a place lies within scratch memory, which each shell has of its own.
pub(crate) fn is_below_scratch(guest: &str) -> bool {
    scratch::PARTS.iter().any(|part| {
        guest
            .strip_prefix(part.path)
            .is_some_and(|rest| rest.starts_with('/'))
    })
}
