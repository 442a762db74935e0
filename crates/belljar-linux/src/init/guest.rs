//! From a fork of init to a running guest.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::process::{Resource, Rlimit};
use serde::{Deserialize, Serialize};

use super::landlock;
use super::room::tasks_for;
use super::steps::{GuestStep, guest};
use crate::policies::{FilterOptions, Program};
use crate::sys;
use crate::weaken;
use crate::wire::{self, GuestLimits, GuestSpec, Note, StepFailure};

/// What the fork tells init before it becomes the guest. The channel closes at exec.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum GuestReport {
    /// The walls stand. Descriptor: where new processes ask to be let in, if they are counted.
    Ready {
        notes: Vec<Note>,
    },
    Failed(StepFailure),
}

/// Becomes the guest of `spec`. Never returns.
pub(super) fn become_guest(spec: &GuestSpec, filter: &Program, stdio: &[OwnedFd], channel: &OwnedFd) -> ! {
    let mut becoming = Becoming {
        spec,
        filter,
        stdio,
        channel: channel.as_fd(),
        notes: Vec::new(),
        listener: None,
    };
    for step in guest(spec) {
        if let Err(error) = becoming.perform(&step) {
            let failure = StepFailure {
                step: format!("{step:?}"),
                errno: error.raw_os_error().unwrap_or(0),
            };
            let _ = wire::send(channel, &GuestReport::Failed(failure), &[]);
            break;
        }
    }
    sys::process::exit_now(127)
}

/// Which filter the guest of `spec` has.
pub(super) fn filter_options(spec: &GuestSpec) -> FilterOptions {
    FilterOptions {
        memory_accounted: spec.memory_accounted,
        count_processes: spec.count_processes && !weaken::is_off("countprocesses"),
    }
}

struct Becoming<'a> {
    spec: &'a GuestSpec,
    filter: &'a Program,
    stdio: &'a [OwnedFd],
    channel: BorrowedFd<'a>,
    notes: Vec<Note>,
    listener: Option<OwnedFd>,
}

impl Becoming<'_> {
    fn perform(&mut self, step: &GuestStep) -> io::Result<()> {
        let name = format!("{step:?}").to_lowercase();
        if weaken::is_off(&name) {
            self.notes.push(Note::Weakened(name));
            return Ok(());
        }
        match step {
            GuestStep::Stdio => self.place_stdio(),
            GuestStep::DefaultSignals => {
                sys::process::reset_signals();
                Ok(())
            }
            GuestStep::NewSession => Ok(rustix::process::setsid().map(drop)?),
            GuestStep::WorkDir => {
                rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
                Ok(rustix::process::chdir("/workspace")?)
            }
            GuestStep::FirstToDie => {
                first_to_die();
                Ok(())
            }
            GuestStep::Rlimits => set_rlimits(&self.spec.limits),
            GuestStep::NoCapabilities => {
                sys::process::drop_capabilities()?;
                if sys::process::effective_capabilities()? != 0 {
                    return Err(io::Error::from_raw_os_error(libc::EPERM));
                }
                self.notes.push(Note::NoCapabilities);
                Ok(())
            }
            GuestStep::NoNewPrivileges => {
                rustix::thread::set_no_new_privs(true)?;
                if rustix::thread::no_new_privs()? {
                    self.notes.push(Note::NoNewPrivileges);
                }
                Ok(())
            }
            GuestStep::Landlock => {
                let note = landlock::restrict(self.spec)?;
                self.notes.push(note);
                Ok(())
            }
            GuestStep::CountProcesses => {
                set_process_limit(&self.spec.limits)?;
                // The filter has threads ask for room. Where it is left out, this much of it stays.
                #[cfg(feature = "weaken")]
                if weaken::is_off("seccomp") {
                    self.listen(&crate::policies::count_alone())?;
                }
                Ok(())
            }
            GuestStep::Seccomp => {
                if filter_options(self.spec).count_processes {
                    self.listen(self.filter)?;
                } else {
                    sys::filter::install(self.filter.bytes())?;
                }
                self.notes.push(Note::Seccomp);
                Ok(())
            }
            GuestStep::CloseDescriptors => {
                let report = GuestReport::Ready {
                    notes: std::mem::take(&mut self.notes),
                };
                let fds: Vec<_> = self.listener.iter().map(AsFd::as_fd).collect();
                wire::send(self.channel, &report, &fds)?;
                sys::process::close_from(self.stdio.len() as u32, true)
            }
            GuestStep::Exec => Err(self.exec()),
        }
    }

    /// Installs a filter that hands new threads over to init.
    fn listen(&mut self, filter: &Program) -> io::Result<()> {
        self.listener = Some(sys::filter::install_with_listener(filter.bytes())?);
        self.notes.push(Note::ProcessesCounted);
        Ok(())
    }

    fn place_stdio(&self) -> io::Result<()> {
        for (target, fd) in (0..).zip(self.stdio) {
            sys::process::place(fd.as_fd(), target)?;
        }
        Ok(())
    }

    fn exec(&self) -> io::Error {
        let strings =
            |words: &mut dyn Iterator<Item = String>| words.map(CString::new).collect::<Result<Vec<_>, _>>();
        let argv = strings(&mut self.spec.argv.iter().cloned());
        let env = strings(
            &mut self
                .spec
                .env
                .iter()
                .map(|(name, value)| format!("{name}={value}")),
        );
        let (Ok(argv), Ok(env)) = (argv, env) else {
            return io::ErrorKind::InvalidInput.into();
        };
        let Some(program) = argv.first() else {
            return io::ErrorKind::InvalidInput.into();
        };
        if program.to_bytes().contains(&b'/') {
            return sys::process::exec(program, &argv, &env);
        }
        // As a shell looks for it: the first directory of the guest's own PATH that has it.
        let path = self
            .spec
            .env
            .iter()
            .find(|(name, _)| name == "PATH")
            .map_or("", |(_, value)| value.as_str());
        let mut last = io::Error::from_raw_os_error(libc::ENOENT);
        for dir in path.split(':').filter(|dir| dir.starts_with('/')) {
            let Ok(full) = CString::new([dir.as_bytes(), b"/", program.to_bytes()].concat()) else {
                continue;
            };
            let error = sys::process::exec(&full, &argv, &env);
            if error.raw_os_error() != Some(libc::ENOENT) {
                last = error;
            }
        }
        last
    }
}

/// Where memory runs out the kernel should pick the guest before init. Without a private `/proc`
/// it picks by size, which comes to the same.
fn first_to_die() {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    // The file belongs to root as long as this process is not dumpable. Nothing else runs in the
    // sandbox at this moment that could make use of it.
    let _ = set_dumpable_behavior(DumpableBehavior::Dumpable);
    let file = rustix::fs::openat(
        rustix::fs::CWD,
        "/proc/self/oom_score_adj",
        rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    );
    if let Ok(file) = file {
        let _ = rustix::io::write(&file, b"1000");
    }
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// From here on the kernel lets in so many processes; init makes room for threads.
fn set_process_limit(limits: &GuestLimits) -> io::Result<()> {
    let maximum = rustix::process::getrlimit(Resource::Nproc).maximum;
    let current = Some(tasks_for(limits.processes).min(maximum.unwrap_or(u64::MAX)));
    Ok(rustix::process::setrlimit(
        Resource::Nproc,
        Rlimit { current, maximum },
    )?)
}

fn set_rlimits(limits: &GuestLimits) -> io::Result<()> {
    let rows = [
        // One byte: a core file cannot hold that, and a host's core handler is not started for it
        // either, as it would be for zero.
        (Resource::Core, Some(1)),
        (Resource::Cpu, Some(limits.cpu_seconds)),
        (Resource::Fsize, Some(limits.file_size)),
        (Resource::Nofile, Some(limits.open_files)),
        (Resource::Nproc, Some(limits.tasks)),
        (Resource::Data, limits.data),
        (Resource::Memlock, Some(64 << 10)),
        (Resource::Msgqueue, Some(819_200)),
        (Resource::Sigpending, Some(1024)),
        (Resource::Nice, Some(0)),
        (Resource::Rtprio, Some(0)),
    ];
    for (resource, wanted) in rows {
        let Some(wanted) = wanted else { continue };
        // A lower limit of the host's own stays: it cannot be raised without privileges.
        let value = match rustix::process::getrlimit(resource).maximum {
            Some(maximum) => wanted.min(maximum),
            None => wanted,
        };
        rustix::process::setrlimit(
            resource,
            Rlimit {
                current: Some(value),
                maximum: Some(value),
            },
        )?;
    }
    Ok(())
}
