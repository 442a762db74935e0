//! Making a shell: an id of its own, init born into its namespaces.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

use super::ids::Lease;
use super::{Nursery, Shell};
use crate::init::{self, steps::GUEST_ID};
use crate::mounts;
use crate::sys;
use crate::sys::process::{Side, clone_child};
use crate::wire::{self, CgroupJoin, HostIds, NurseryEvent, ShellSpec, StepFailure};

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

/// What the engine is given of a shell.
struct Made {
    pidfd: OwnedFd,
    control: OwnedFd,
}

impl Nursery<'_> {
    /// Makes a shell and tells the engine; a failure is told as well and is no error here.
    pub(super) fn make_shell(&mut self, number: u64, spec: &ShellSpec, fds: &[OwnedFd]) -> io::Result<()> {
        match self.try_make(number, spec, fds) {
            Ok(made) => {
                let fds = [made.pidfd.as_fd(), made.control.as_fd()];
                wire::send(self.control, &NurseryEvent::Made { shell: number }, &fds)
            }
            Err(failure) => {
                let failed = NurseryEvent::Failed {
                    shell: number,
                    failure,
                };
                wire::send(self.control, &failed, &[])
            }
        }
    }

    fn try_make(&mut self, number: u64, spec: &ShellSpec, fds: &[OwnedFd]) -> StepResult<Made> {
        let lease = match self.spec.host_ids {
            HostIds::Fresh => Some(self.ids.take().ok_or_else(|| StepFailure {
                step: "TakeId".to_owned(),
                errno: libc::EAGAIN,
            })?),
            HostIds::Own { .. } => None,
        };
        let result = self.make_with_id(number, spec, fds, lease);
        if let (Err(_), Some(lease)) = (&result, lease) {
            self.ids.give_back(lease);
        }
        result
    }

    fn make_with_id(
        &mut self,
        number: u64,
        spec: &ShellSpec,
        fds: &[OwnedFd],
        lease: Option<Lease>,
    ) -> StepResult<Made> {
        let (control, init_end) = at("Channel", wire::pair())?;
        // Init waits on this until its ids are mapped; it closes if the nursery dies before.
        let (go_nursery, go_init) = at("Channel", wire::pair())?;
        let (cgroup, tasks): (Option<BorrowedFd<'_>>, &[OwnedFd]) = match spec.cgroup {
            CgroupJoin::None => (None, &[]),
            CgroupJoin::Born => (fds.first().map(AsFd::as_fd), &[]),
            CgroupJoin::Tasks(count) => (None, &fds[..fds.len().min(count as usize)]),
        };
        let (pid, pidfd) = match at("Clone", clone_child(NAMESPACES, cgroup))? {
            Side::Child => {
                drop(go_nursery);
                // Set before waiting: if the nursery is gone already, the wait ends at once.
                let tied =
                    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
                let mut go = [0u8; 1];
                let told = rustix::io::retry_on_intr(|| rustix::io::read(&go_init, &mut go));
                if tied.is_err() || !matches!(told, Ok(1)) {
                    sys::process::exit_now(1);
                }
                init::run(self.spec, spec, &init_end, &self.late, tasks, self.filters);
            }
            Side::Parent { pid, pidfd } => (pid, pidfd),
        };
        let ids = match (lease, self.spec.host_ids) {
            (Some(lease), _) => (lease.id(), lease.id()),
            (None, HostIds::Own { uid, gid }) => (uid, gid),
            (None, HostIds::Fresh) => (GUEST_ID, GUEST_ID),
        };
        let ready = self
            .map_ids(pidfd.as_fd(), ids, lease.is_none())
            .and_then(|()| Ok(rustix::io::write(&go_nursery, b"g")?));
        if let Err(error) = ready {
            // Reaping it later finds no entry, which is fine.
            let _ = rustix::process::pidfd_send_signal(&pidfd, rustix::process::Signal::KILL);
            return at("MapIds", Err(error));
        }
        self.shells.insert(pid, Shell { number, ids: lease });
        Ok(Made { pidfd, control })
    }

    /// Maps the one id that a shell has. The nursery may have no `/proc` of its own, so this goes
    /// through the host's, where processes have other numbers.
    fn map_ids(&self, process: BorrowedFd<'_>, outside: (u32, u32), deny_groups: bool) -> io::Result<()> {
        let about = self.read(&format!("self/fdinfo/{}", process.as_raw_fd()))?;
        let pid = sys::process::pid_in_fdinfo(&about).ok_or(io::ErrorKind::NotFound)?;
        if deny_groups {
            self.write(&format!("{pid}/setgroups"), "deny")?;
        }
        self.write(&format!("{pid}/uid_map"), &format!("{GUEST_ID} {} 1", outside.0))?;
        self.write(&format!("{pid}/gid_map"), &format!("{GUEST_ID} {} 1", outside.1))
    }

    fn read(&self, path: &str) -> io::Result<String> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.host_proc, path, flags, Mode::empty())?;
        let mut text = [0u8; 1024];
        let count = rustix::io::read(&file, &mut text)?;
        Ok(String::from_utf8_lossy(&text[..count]).into_owned())
    }

    fn write(&self, path: &str, text: &str) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.host_proc, path, flags, Mode::empty())?;
        mounts::write_all(&file, text.as_bytes())
    }
}
