//! From the steps of a guest to the system calls that carry them out.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::process::{Resource, getrlimit};

use super::calls::{Arg, Call};
use super::room::tasks_for;
use super::steps::{GuestStep, Start, guest};
use super::{guest::filter_options, landlock};
use crate::policies::{PreparedFilters, Program};
use crate::sys;
use crate::weaken;
use crate::wire::{GuestLimits, GuestSpec, Note, StepFailure};

/// What a process has to do to become a guest.
#[derive(Debug)]
pub(super) struct Plan {
    pub calls: Vec<Call>,
    /// Calls that come after the report. The limit of open files is one: it also bounds how many descriptors all processes
    /// of a uid may have in flight between sockets, the report sends one, and other guests of the uid may have some in flight.
    late: Vec<Call>,
    /// What holds once all of it is done.
    pub notes: Vec<Note>,
    /// Goes with the calls, after the streams.
    ruleset: Option<OwnedFd>,
}

impl Plan {
    /// The plan for the guest of `spec` with so many streams.
    pub(super) fn new(
        spec: &GuestSpec,
        start: Start,
        streams: usize,
        filters: &PreparedFilters,
    ) -> Result<Self, StepFailure> {
        let mut plan = Self {
            calls: Vec::new(),
            late: Vec::new(),
            notes: Vec::new(),
            ruleset: None,
        };
        for step in guest(spec, start) {
            let name = step.name();
            if weaken::is_off(&name.to_lowercase()) {
                plan.notes.push(Note::Weakened(name.to_lowercase()));
                continue;
            }
            plan.add(&step, name, spec, start, streams, filters)
                .map_err(|error| StepFailure::new(name, error))?;
        }
        plan.calls.append(&mut plan.late);
        Ok(plan)
    }

    /// The descriptors that go with the calls: the streams, then what the plan made.
    pub(super) fn fds<'a>(&'a self, streams: &'a [OwnedFd]) -> Vec<BorrowedFd<'a>> {
        streams.iter().chain(&self.ruleset).map(AsFd::as_fd).collect()
    }

    fn add(
        &mut self,
        step: &GuestStep,
        name: &'static str,
        spec: &GuestSpec,
        start: Start,
        streams: usize,
        filters: &PreparedFilters,
    ) -> std::io::Result<()> {
        match step {
            GuestStep::Stdio => {
                for stream in 0..streams {
                    let args = [Arg::Fd(stream), (stream as i64).into(), 0.into()];
                    self.call(Call::new(name, libc::SYS_dup3, args));
                }
            }
            GuestStep::NewSession => self.call(Call::new(name, libc::SYS_setsid, [])),
            GuestStep::WorkDir => {
                self.call(Call::new(name, libc::SYS_umask, [0o022.into()]));
                self.call(Call::new(name, libc::SYS_chdir, [Arg::text("/workspace")]));
            }
            GuestStep::FirstToDie => first_to_die(name, &mut self.calls),
            GuestStep::Rlimits => self.rlimits(name, &spec.limits, beside(start)),
            GuestStep::NoCapabilities => {
                no_capabilities(name, sys::process::capabilities(), &mut self.calls);
                self.notes.push(Note::NoCapabilities);
            }
            GuestStep::NoNewPrivileges => {
                self.calls.extend(no_new_privileges(name));
                self.notes.push(Note::NoNewPrivileges);
            }
            GuestStep::Landlock => {
                let (ruleset, note) = landlock::ruleset(spec)?;
                self.notes.push(note);
                if ruleset.is_some() {
                    let args = [Arg::Fd(streams), 0.into()];
                    self.call(Call::new(name, libc::SYS_landlock_restrict_self, args).expect(0));
                }
                self.ruleset = ruleset;
            }
            GuestStep::CountProcesses => {
                let maximum = getrlimit(Resource::Nproc).maximum.unwrap_or(u64::MAX);
                let maximum = maximum.min(spec.limits.tasks + beside(start));
                let current = (tasks_for(spec.limits.processes) + beside(start)).min(maximum);
                self.call(limit(name, libc::RLIMIT_NPROC, current, maximum));
                // The filter has threads ask for room. Where it is left out, this much of it stays.
                #[cfg(feature = "weaken")]
                if weaken::is_off("seccomp") {
                    self.filter(name, &crate::policies::count_alone(), true);
                }
            }
            GuestStep::Dumpable => {
                self.call(prctl(name, [i64::from(libc::PR_SET_DUMPABLE), 1, 0, 0, 0]).expect(0));
            }
            GuestStep::Seccomp => {
                let options = filter_options(spec);
                let program = match start {
                    Start::Exec => filters.guest(options),
                    // The zygote's own filter, which its fork has too, does the rest.
                    Start::Warm { .. } => filters.fork(options),
                };
                self.filter(name, program, options.supervised);
                self.notes.push(Note::Seccomp);
            }
            // These are no calls but code of whoever carries out the plan.
            GuestStep::DefaultSignals | GuestStep::CloseDescriptors | GuestStep::Exec => {}
        }
        Ok(())
    }

    fn call(&mut self, call: Call) {
        self.calls.push(call);
    }

    fn rlimits(&mut self, name: &'static str, limits: &GuestLimits, beside: u64) {
        // A lower limit of the host's own stays: it cannot be raised without privileges.
        let ceiling = |resource| getrlimit(resource).maximum.unwrap_or(u64::MAX);
        for call in limit_calls(name, limits, beside, ceiling) {
            if is_limit_of(&call, libc::RLIMIT_NOFILE) {
                self.late.push(call.late());
            } else {
                self.calls.push(call);
            }
        }
    }

    fn filter(&mut self, name: &'static str, program: &Program, listen: bool) {
        if listen {
            self.notes.push(Note::ProcessesCounted);
            self.call(load(name, program, sys::filter::listener_flags()).sent());
        } else {
            self.call(install(program, name));
        }
    }
}

/// Where memory runs out the kernel should pick the guest before init. Without a private `/proc`
/// it picks by size, which comes to the same.
pub(crate) fn first_to_die(name: &'static str, calls: &mut Vec<Call>) {
    let dumpable = i64::from(libc::PR_SET_DUMPABLE);
    // The file belongs to root as long as this process is not dumpable. Nothing else runs in the
    // sandbox at this moment that could make use of it.
    calls.push(prctl(name, [dumpable, 1, 0, 0, 0]).optional());
    let file = calls.len();
    let args = [
        i64::from(libc::AT_FDCWD).into(),
        Arg::text("/proc/self/oom_score_adj"),
        i64::from(libc::O_WRONLY | libc::O_CLOEXEC).into(),
        0.into(),
    ];
    calls.push(Call::new(name, libc::SYS_openat, args).optional());
    let args = [Arg::Result(file), Arg::bytes(*b"1000"), 4.into()];
    calls.push(Call::new(name, libc::SYS_write, args).optional());
    calls.push(Call::new(name, libc::SYS_close, [Arg::Result(file)]).optional());
    calls.push(prctl(name, [dumpable, 0, 0, 0, 0]).optional());
}

pub(crate) fn no_new_privileges(name: &'static str) -> [Call; 2] {
    let set = i64::from(libc::PR_SET_NO_NEW_PRIVS);
    let get = i64::from(libc::PR_GET_NO_NEW_PRIVS);
    [
        prctl(name, [set, 1, 0, 0, 0]).expect(0),
        prctl(name, [get, 0, 0, 0, 0]).expect(1),
    ]
}

/// Bounding, ambient, then permitted, effective and inheritable; and a look that none is left. So many capabilities are known.
pub(crate) fn no_capabilities(name: &'static str, known: i64, calls: &mut Vec<Call>) {
    for capability in 0..known {
        let drop = i64::from(libc::PR_CAPBSET_DROP);
        calls.push(prctl(name, [drop, capability, 0, 0, 0]).expect(0));
    }
    let (ambient, clear) = (libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL);
    calls.push(prctl(name, [i64::from(ambient), i64::from(clear), 0, 0, 0]).expect(0));
    const VERSION_3: u32 = 0x2008_0522;
    let header = [VERSION_3, 0].map(u32::to_ne_bytes).concat();
    let none = [0u8; 24];
    let args = [Arg::bytes(header.clone()), Arg::bytes(none)];
    calls.push(Call::new(name, libc::SYS_capset, args).expect(0));
    let args = [Arg::bytes(header), Arg::bytes([0xff; 24])];
    calls.push(Call::new(name, libc::SYS_capget, args).expect(0).leaving(1, none));
}

/// How many signals and timers a guest may have pending.
pub(crate) const MAX_PENDING_SIGNALS: u64 = 1024;

/// The calls that limit a guest, none of them above what `ceiling` says.
pub(crate) fn limit_calls(
    name: &'static str,
    limits: &GuestLimits,
    beside: u64,
    ceiling: impl Fn(Resource) -> u64,
) -> Vec<Call> {
    let rows = [
        // One byte: a core file cannot hold that, and a host's core handler is not started for it
        // either, as it would be for zero.
        (libc::RLIMIT_CORE, Resource::Core, Some(1)),
        (libc::RLIMIT_CPU, Resource::Cpu, Some(limits.cpu_seconds)),
        (libc::RLIMIT_FSIZE, Resource::Fsize, Some(limits.file_size)),
        (libc::RLIMIT_NOFILE, Resource::Nofile, Some(limits.open_files)),
        (libc::RLIMIT_NPROC, Resource::Nproc, Some(limits.tasks + beside)),
        (libc::RLIMIT_DATA, Resource::Data, limits.data),
        (libc::RLIMIT_MEMLOCK, Resource::Memlock, Some(64 << 10)),
        (libc::RLIMIT_MSGQUEUE, Resource::Msgqueue, Some(819_200)),
        (
            libc::RLIMIT_SIGPENDING,
            Resource::Sigpending,
            Some(MAX_PENDING_SIGNALS),
        ),
        (libc::RLIMIT_NICE, Resource::Nice, Some(0)),
        (libc::RLIMIT_RTPRIO, Resource::Rtprio, Some(0)),
    ];
    let rows = rows.into_iter();
    rows.filter_map(|(number, resource, wanted)| {
        let value = wanted?.min(ceiling(resource));
        Some(limit(name, number, value, value))
    })
    .collect()
}

/// Whether a call sets that limit.
pub(crate) fn is_limit_of(call: &Call, resource: u32) -> bool {
    call.number == libc::SYS_prlimit64 && call.args.get(1) == Some(&Arg::Number(i64::from(resource)))
}

/// Installs a filter.
pub(crate) fn install(program: &Program, name: &'static str) -> Call {
    load(name, program, 0).expect(0)
}

fn load(name: &'static str, program: &Program, flags: i64) -> Call {
    let bytes = program.bytes();
    // The kernel's own struct: a count of instructions, and where they are.
    let mut header = [0u8; 16];
    header[..2].copy_from_slice(&((bytes.len() / 8) as u16).to_ne_bytes());
    let args = [
        i64::from(libc::SECCOMP_SET_MODE_FILTER).into(),
        flags.into(),
        Arg::Bytes(header.to_vec(), vec![(8, bytes.to_vec())]),
    ];
    Call::new(name, libc::SYS_seccomp, args)
}

/// How many processes stand beside a guest without being its own: the holder of a warm one.
const fn beside(start: Start) -> u64 {
    match start {
        Start::Warm { held: true } => 1,
        Start::Exec | Start::Warm { held: false } => 0,
    }
}

fn prctl(name: &'static str, args: [i64; 5]) -> Call {
    Call::new(name, libc::SYS_prctl, args.map(Arg::Number))
}

fn limit(name: &'static str, resource: u32, current: u64, maximum: u64) -> Call {
    let both = [current, maximum].map(u64::to_ne_bytes).concat();
    let args = [0.into(), i64::from(resource).into(), Arg::bytes(both), 0.into()];
    Call::new(name, libc::SYS_prlimit64, args).expect(0)
}
