//! Making a shell: an id of its own, init born into its namespaces.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{Mode, OFlags};

use super::ids::Lease;
use super::{Nursery, Shell};
use crate::birth;
use crate::init::{self, steps::GUEST_ID};
use crate::mounts;
use crate::sys;
use crate::sys::process::{Side, clone_child};
use crate::wire::{self, CgroupJoin, HostIds, NAMESPACE_NAMES, NurseryEvent, ShellSpec, StepFailure};

/// The network is the one that the nursery is in.
const NAMESPACES: u64 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP) as u64;

type StepResult<T> = Result<T, StepFailure>;

fn at<T, E: Into<io::Error>>(step: &str, result: Result<T, E>) -> StepResult<T> {
    result.map_err(|error| StepFailure::new(step, error))
}

/// What the engine is given of a shell.
struct Made {
    pidfd: OwnedFd,
    control: OwnedFd,
    /// Handles of its namespaces, where they were asked for.
    namespaces: Vec<OwnedFd>,
    /// Sockets in its network.
    doors: Vec<OwnedFd>,
}

impl Nursery<'_> {
    /// Makes a shell and tells the engine; a failure is told as well and is no error here.
    pub(super) fn make_shell(&mut self, number: u64, spec: &ShellSpec, fds: &[OwnedFd]) -> io::Result<()> {
        match self.try_make(number, spec, fds) {
            Ok(made) => {
                let fds = [&made.pidfd, &made.control].into_iter();
                let fds = fds.chain(&made.namespaces).chain(&made.doors);
                let fds: Vec<_> = fds.map(AsFd::as_fd).collect();
                if fds.len() > wire::MAX_FDS {
                    // Dropping its end of the control socket ends it.
                    let failed = NurseryEvent::Failed {
                        shell: number,
                        failure: StepFailure::new("Network", io::Error::from_raw_os_error(libc::E2BIG)),
                    };
                    return wire::send(self.control, &failed, &[]);
                }
                let event = NurseryEvent::Made {
                    shell: number,
                    doors: made.doors.len() as u8,
                };
                wire::send(self.control, &event, &fds)
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
            HostIds::Fresh => Some(
                self.ids
                    .take()
                    .ok_or_else(|| StepFailure::new("TakeId", io::Error::from_raw_os_error(libc::EAGAIN)))?,
            ),
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
        // First: a socket belongs to the network in which it was made.
        let doors = at("Network", self.network.hand_over(&spec.network))?;
        let (control, init_end) = at("Channel", wire::pair())?;
        // Init waits on this until its ids are mapped; should the nursery die before, init goes with it. Whoever is woken by a pipe or
        // a socket waits until the one who wakes it has to, and here neither is to wait for the other.
        let go = at("Channel", eventfd(0, EventfdFlags::CLOEXEC))?;
        let cgroup = match spec.cgroup {
            CgroupJoin::Born => fds.first().map(AsFd::as_fd),
            CgroupJoin::None | CgroupJoin::Later => None,
        };
        let exit_slot = at(
            "ExitSlot",
            self.exit_slots.slot(number).and_then(|slot| slot.try_clone()),
        )?;
        let (pid, pidfd) = match at("Clone", clone_child(NAMESPACES, cgroup))? {
            Side::Child => {
                birth::wait_for_parent(&go);
                init::run(self.spec, spec, &init_end, &exit_slot, &self.late, self.filters);
            }
            Side::Parent { pid, pidfd } => (pid, pidfd),
        };
        let ids = match (lease, self.spec.host_ids) {
            (Some(lease), _) => (lease.id(), lease.id()),
            (None, HostIds::Own { uid, gid }) => (uid, gid),
            (None, HostIds::Fresh) => (GUEST_ID, GUEST_ID),
        };
        let ready = self.host_pid(pidfd.as_fd()).and_then(|host_pid| {
            self.map_ids(host_pid, ids, lease.is_none())?;
            // Now or never: once init has made itself unreadable nobody can open them.
            let namespaces = if spec.namespaces {
                self.namespaces(pidfd.as_fd(), host_pid)?
            } else {
                Vec::new()
            };
            rustix::io::write(&go, &1u64.to_ne_bytes())?;
            Ok(namespaces)
        });
        let namespaces = match ready {
            Ok(namespaces) => namespaces,
            Err(error) => {
                // Reaping it later finds no entry, which is fine.
                let _ = rustix::process::pidfd_send_signal(&pidfd, rustix::process::Signal::KILL);
                return at("MapIds", Err(error));
            }
        };
        self.shells.insert(pid, Shell { number, ids: lease });
        Ok(Made {
            pidfd,
            control,
            namespaces,
            doors,
        })
    }

    /// The host's number of a child. The nursery may have no `/proc` of its own, so all of this goes
    /// through the host's, where processes have other numbers.
    fn host_pid(&self, process: BorrowedFd<'_>) -> io::Result<i32> {
        let about = self.read(&format!("self/fdinfo/{}", process.as_raw_fd()))?;
        sys::process::pid_in_fdinfo(&about).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Handles of a child's namespaces; where the kernel does not give them for its pidfd, from `/proc`.
    fn namespaces(&self, pidfd: BorrowedFd<'_>, pid: i32) -> io::Result<Vec<OwnedFd>> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let names = NAMESPACE_NAMES.iter();
        names
            .map(|(name, kind)| {
                sys::process::namespace(pidfd, *kind)
                    .or_else(|_| self.open(&format!("{pid}/ns/{name}"), flags))
            })
            .collect()
    }

    /// Maps the one id that a shell has.
    fn map_ids(&self, pid: i32, outside: (u32, u32), deny_groups: bool) -> io::Result<()> {
        if deny_groups {
            self.write(&format!("{pid}/setgroups"), "deny")?;
        }
        self.write(&format!("{pid}/uid_map"), &format!("{GUEST_ID} {} 1", outside.0))?;
        self.write(&format!("{pid}/gid_map"), &format!("{GUEST_ID} {} 1", outside.1))
    }

    /// Opens a file of the host's `/proc`.
    pub(super) fn open(&self, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
        Ok(rustix::fs::openat(&self.host_proc, path, flags, Mode::empty())?)
    }

    fn read(&self, path: &str) -> io::Result<String> {
        let file = self.open(path, OFlags::RDONLY | OFlags::CLOEXEC)?;
        let mut text = [0u8; 1024];
        let count = rustix::io::read(&file, &mut text)?;
        Ok(String::from_utf8_lossy(&text[..count]).into_owned())
    }

    fn write(&self, path: &str, text: &str) -> io::Result<()> {
        let file = self.open(path, OFlags::WRONLY | OFlags::CLOEXEC)?;
        mounts::write_all(&file, text.as_bytes())
    }
}
