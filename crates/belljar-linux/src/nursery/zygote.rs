//! Starting a zygote: a warm interpreter that forks guests into the nursery's shells.
//!
//! It imports packages that nobody has read either. So it stands in the guests' own root, with
//! scratch memory of its own, no network, no `/proc`, an id of its own and the guests' own filter, less
//! the few calls that putting a fork into a shell takes. Of the capabilities it keeps the one that
//! entering a shell takes. It can enter only shells of which it was given handles.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::mount::UnmountFlags;
use serde_json::json;

use super::Nursery;
use crate::init::calls::{Arg, Call};
use crate::mounts;
use crate::policies::Program;
use crate::sys;
use crate::sys::process::{Side, clone_child};
use crate::weaken;
use crate::wire::{self, HostIds, ZygoteSpec};

const NAMESPACES: u64 =
    (libc::CLONE_NEWNS | libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS) as u64;
/// What it may write while it imports.
const SCRATCH_BYTES: u64 = 256 << 20;
const SCRATCH_INODES: u64 = 16 << 10;
/// What `linux/capability.h` calls CAP_SYS_ADMIN.
const ADMINISTER: i64 = 21;

impl Nursery<'_> {
    /// Starts a zygote. Whether it comes to life is heard on its channel.
    pub(super) fn start_zygote(&mut self, spec: &ZygoteSpec, fds: &[OwnedFd]) -> io::Result<()> {
        let Some(channel) = fds.first() else { return Ok(()) };
        self.filters.prepare_forks();
        let id = match self.spec.host_ids {
            // Kept for the nursery's life: there are few zygotes.
            HostIds::Fresh => self.ids.take().map(super::ids::Lease::id),
            HostIds::Own { .. } => None,
        };
        // It goes back to this namespace after each fork. It has no /proc to find it in.
        let own = self.open("self/ns/pid", OFlags::RDONLY | OFlags::CLOEXEC)?;
        let number = 20_011 + i32::try_from(self.shells.len()).unwrap_or(0) % 10_000;
        match clone_child_with_pid(NAMESPACES, number)? {
            Side::Child => {
                let filter = self.filters.zygote();
                let Err(error) = become_zygote(spec, channel, &own, id, filter);
                let why = format!("it could not be started: {error}");
                let _ = wire::send_json(channel, &json!({ "event": "unfit", "why": why }), &[]);
                sys::process::exit_now(1)
            }
            Side::Parent { .. } => Ok(()),
        }
    }
}

/// Libraries that tell forks apart by their pid must not take a guest, whose pid is small, for the zygote.
fn clone_child_with_pid(flags: u64, number: i32) -> io::Result<Side> {
    sys::process::clone_child_as(flags, None, Some(number)).or_else(|_| clone_child(flags, None))
}

fn become_zygote(
    spec: &ZygoteSpec,
    channel: &OwnedFd,
    own_namespace: &OwnedFd,
    id: Option<u32>,
    filter: &Program,
) -> io::Result<std::convert::Infallible> {
    rustix::process::setsid()?;
    mounts::scratch::mount(SCRATCH_BYTES, SCRATCH_INODES, false)?;
    // Absent where the kernel gave the nursery none.
    let _ = rustix::mount::unmount("/proc", UnmountFlags::DETACH);
    sys::process::reset_signals();
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let fds = [&null, &null, &null, channel, own_namespace].map(|fd| {
        // Above the numbers that they are to have.
        rustix::io::fcntl_dupfd_cloexec(fd, 16)
    });
    let fds = fds.into_iter().collect::<Result<Vec<OwnedFd>, _>>()?;
    let handles: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    let calls = calls(id, filter, handles.len());
    sys::calls::perform(&calls, &handles).map_err(|failed| io::Error::from_raw_os_error(failed.errno))?;
    sys::process::close_from(handles.len() as u32, true)?;
    let strings = |words: Vec<String>| {
        words
            .into_iter()
            .map(std::ffi::CString::new)
            .collect::<Result<Vec<_>, _>>()
    };
    let argv = strings(spec.argv.clone())?;
    let env = strings(
        spec.env
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect(),
    )?;
    let program = argv.first().ok_or(io::ErrorKind::InvalidInput)?;
    Err(sys::process::exec(program, &argv, &env))
}

/// What it gives up before it runs anything of an environment's.
fn calls(id: Option<u32>, filter: &Program, streams: usize) -> Vec<Call> {
    let prctl = |args: [i64; 5]| Call::new("Zygote", libc::SYS_prctl, args.map(Arg::Number)).expect(0);
    let mut calls: Vec<Call> = (0..streams)
        .map(|to| {
            Call::new(
                "Streams",
                libc::SYS_dup3,
                [Arg::Fd(to), (to as i64).into(), 0.into()],
            )
        })
        .collect();
    for capability in (0..sys::process::capabilities()).filter(|number| *number != ADMINISTER) {
        calls.push(prctl([i64::from(libc::PR_CAPBSET_DROP), capability, 0, 0, 0]));
    }
    if let Some(id) = id {
        let id = i64::from(id);
        calls.push(prctl([i64::from(libc::PR_SET_KEEPCAPS), 1, 0, 0, 0]));
        calls.push(Call::new("User", libc::SYS_setgroups, [0.into(), 0.into()]).expect(0));
        calls.push(Call::new("User", libc::SYS_setresgid, [id.into(), id.into(), id.into()]).expect(0));
        calls.push(Call::new("User", libc::SYS_setresuid, [id.into(), id.into(), id.into()]).expect(0));
    }
    const VERSION_3: u32 = 0x2008_0522;
    let header = [VERSION_3, 0].map(u32::to_ne_bytes).concat();
    let one = 1u32 << ADMINISTER;
    // Effective, permitted, inheritable: the last lets it outlive the exec.
    let sets = [one, one, one, 0, 0, 0].map(u32::to_ne_bytes).concat();
    let args = [Arg::bytes(header), Arg::bytes(sets)];
    calls.push(Call::new("Capability", libc::SYS_capset, args).expect(0));
    let (ambient, raise) = (libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE);
    calls.push(prctl([i64::from(ambient), i64::from(raise), ADMINISTER, 0, 0]));
    calls.push(prctl([i64::from(libc::PR_SET_NO_NEW_PRIVS), 1, 0, 0, 0]));
    // Its forks have it too, so a test that takes theirs away takes this away as well.
    if !weaken::is_off("seccomp") {
        calls.push(crate::init::install(filter, "Seccomp"));
    }
    calls
}
