//! Turns a fork of init into a running guest.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use serde::{Deserialize, Serialize};

use super::plan::Plan;
use crate::policies::FilterOptions;
use crate::sys;
use crate::weaken;
use crate::wire::{self, GuestSpec, StepFailure};

/// What the fork tells init before it becomes the guest. The channel closes at exec.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum GuestReport {
    /// Every restriction is in force but the late ones. Descriptor: the listener of its filter, if processes are counted.
    Ready,
    Failed(StepFailure),
}

/// Becomes the guest of `spec`. Never returns.
pub(super) fn become_guest(spec: &GuestSpec, plan: &Plan, streams: &[OwnedFd], channel: &OwnedFd) -> ! {
    let failure = match try_become(spec, plan, streams, channel) {
        Err(failure) => failure,
        Ok(error) => StepFailure::new("Exec", error),
    };
    let _ = wire::send(channel, &GuestReport::Failed(failure), &[]);
    sys::process::exit_now(127)
}

/// Returns only why the program could not be started, or which step failed before.
fn try_become(
    spec: &GuestSpec,
    plan: &Plan,
    streams: &[OwnedFd],
    channel: &OwnedFd,
) -> Result<io::Error, StepFailure> {
    // For the test of a kernel that never finishes a start.
    while weaken::is_off("start") {
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
    if !weaken::is_off("defaultsignals") {
        sys::process::reset_signals();
    }
    let failed = |failed: sys::calls::Failed| StepFailure {
        step: failed.step.to_owned(),
        errno: failed.errno,
    };
    let performed = sys::calls::perform(&plan.calls, &plan.fds(streams)).map_err(failed)?;
    let fds: Vec<_> = performed.sent.iter().map(AsFd::as_fd).collect();
    wire::send(channel, &GuestReport::Ready, &fds).map_err(|error| StepFailure::new("Report", error))?;
    performed.finish().map_err(failed)?;
    if !weaken::is_off("closedescriptors") {
        sys::process::close_from(streams.len() as u32, true)
            .map_err(|error| StepFailure::new("CloseDescriptors", error))?;
    }
    Ok(exec(spec))
}

/// Which filter the guest of `spec` has.
pub(super) fn filter_options(spec: &GuestSpec) -> FilterOptions {
    FilterOptions {
        memory_accounted: spec.memory_accounted,
        supervised: spec.count_processes && !weaken::is_off("countprocesses"),
    }
}

/// Replaces this process. Returns only the error.
fn exec(spec: &GuestSpec) -> io::Error {
    let strings =
        |words: &mut dyn Iterator<Item = String>| words.map(CString::new).collect::<Result<Vec<_>, _>>();
    let argv = strings(&mut spec.argv.iter().cloned());
    let env = strings(&mut spec.env.iter().map(|(name, value)| format!("{name}={value}")));
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
    let path = spec
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
