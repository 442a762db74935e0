//! Carrying out the steps that raise a shell, one commented call after the other.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::CWD;

use super::steps::{GUEST_ID, ShellStep};
use crate::mounts::{self, place};
use crate::sys;
use crate::sys::mount::{NO_DEV, NO_SUID, READ_ONLY, set_attributes};
use crate::weaken;
use crate::wire::{self, HostIds, InitRequest, Note, RootSpec, ShellSpec, Tree};

/// What init holds while it raises a shell.
pub(crate) struct Raising<'a> {
    pub root: &'a RootSpec,
    pub spec: &'a ShellSpec,
    /// The socket to the engine.
    pub control: BorrowedFd<'a>,
    pub exit_slot: BorrowedFd<'a>,
    /// Trees that go below scratch memory, each with its detached mount.
    pub late: &'a [(&'a Tree, OwnedFd)],
    pub notes: Vec<Note>,
}

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
            ShellStep::MountScratch => self.mount_scratch(),
            ShellStep::MountProc => {
                self.mount_proc();
                Ok(())
            }
            ShellStep::CheckRoot => mounts::check_root(),
            ShellStep::HostName => Ok(rustix::system::sethostname(b"belljar")?),
        }
    }

    /// Writing "0" means "me". Moving oneself, and only one task, spares the kernel a global lock
    /// whose first use costs a grace period of ten milliseconds and more.
    fn join_cgroups(&self) -> io::Result<()> {
        match wire::receive(self.control)? {
            (InitRequest::Join, entries) if !entries.is_empty() => {
                for entry in entries {
                    rustix::io::write(entry, b"0")?;
                }
                Ok(())
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn close_foreign_descriptors(&self) -> io::Result<()> {
        sys::process::close_all_but(
            [self.control, self.exit_slot]
                .into_iter()
                .chain(self.late.iter().map(|(_, mount)| mount.as_fd())),
        )
    }

    fn become_guest_user(&self) -> io::Result<()> {
        let uid = rustix::process::Uid::from_raw(GUEST_ID);
        let gid = rustix::process::Gid::from_raw(GUEST_ID);
        if matches!(self.root.host_ids, HostIds::Fresh) {
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

    fn mount_scratch(&self) -> io::Result<()> {
        mounts::scratch::mount(
            self.spec.disk_bytes,
            self.spec.inodes,
            self.root.workspace_is_tree(),
        )?;
        let root = mounts::open_dir("/")?;
        for (tree, mount) in self.late {
            place::attach_at(mount.as_fd(), root.as_fd(), &tree.guest, tree.is_dir)?;
        }
        Ok(())
    }

    fn mount_proc(&mut self) {
        // Only what it may trace anyway, which init never is. The milder 2 has an exception for group 0.
        let hidden = if weaken::is_off("privateproc") {
            &[][..]
        } else {
            &[("subset", "pid"), ("hidepid", "4")]
        };
        let mounted = mounts::procfs(hidden)
            .and_then(|proc| place::attach(proc.as_fd(), mounts::open_dir("/proc")?.as_fd()));
        // Inside some containers the kernel does not give a new one; the guest then has none.
        self.notes.push(match mounted {
            Ok(()) => Note::ProcMounted,
            Err(error) => Note::ProcAbsent(error.raw_os_error().unwrap_or(0)),
        });
    }
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
