//! Explains states of the kernel in which no sandbox can be started.
//!
//! Two are known, and any program on the machine can cause them by attaching thousands of socket filters (guests cannot: the system-call table
//! refuses them). Every system-call filter is compiled into memory of which the machine has a fixed budget; once that is used up,
//! installing one fails with errno 524. And a deadlock between the mutex of that memory and the work queue that frees it
//! leaves every process that installs a filter in uninterruptible sleep, until the machine is restarted.

use std::fs;
use std::time::Duration;

use belljar_core::ProviderError;

use super::tree::descendants;

/// The kernel's own "not supported", which no C library knows.
pub(super) const ENOTSUPP: i32 = 524;
/// How long a sandbox may take to start before its processes are looked at. A busy machine takes seconds.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(20);
/// How long processes may take to die once they are killed.
pub(super) const KILL_TIMEOUT: Duration = Duration::from_secs(20);

/// The start timeout of this process. Tests that switch the start off do not wait as long.
pub(super) fn start_timeout() -> Duration {
    if crate::weaken::is_off("start") {
        Duration::from_secs(1)
    } else {
        START_TIMEOUT
    }
}

/// The error where the machine's memory for compiled filters is used up.
pub(super) fn no_filter_memory() -> ProviderError {
    const LIMIT: &str = "/proc/sys/net/core/bpf_jit_limit";
    let limit = fs::read_to_string(LIMIT)
        .ok()
        .and_then(|text| text.trim().parse::<u64>().ok())
        .map_or_else(String::new, |limit| format!(" of {limit} bytes"));
    ProviderError::Kernel {
        why: format!(
            "the machine's memory{limit} for compiled filters (net.core.bpf_jit_limit) is used up (errno {ENOTSUPP})"
        ),
        fix: "end the programs that hold many socket or seccomp filters, or raise net.core.bpf_jit_limit with sysctl; then \
              run `belljar doctor`"
            .to_owned(),
    }
}

/// The error where the sandbox below `init` neither starts nor fails to start, or does not die. `what` it did not do.
pub(super) fn hung(init: Option<i32>, what: &str, after: Duration) -> ProviderError {
    let seconds = after.as_secs();
    let Some((pid, place)) = init.and_then(find_hung) else {
        return ProviderError::Kernel {
            why: format!("it did not {what} within {seconds} s"),
            fix: "the machine may be overloaded: look at its load and try again; `belljar doctor` makes a trial sandbox"
                .to_owned(),
        };
    };
    ProviderError::Kernel {
        why: format!(
            "it did not {what} within {seconds} s: process {pid} is in uninterruptible sleep in `{place}`"
        ),
        fix: "if `belljar doctor` reports the same, the kernel is deadlocked and only a restart of the machine helps".to_owned(),
    }
}

/// A process of the sandbox that is in uninterruptible sleep, and the kernel function it sleeps in.
fn find_hung(init: i32) -> Option<(i32, String)> {
    descendants(vec![init]).into_iter().find_map(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in parentheses, may hold anything; the state comes after it.
        let state = stat.rsplit_once(") ")?.1.chars().next()?;
        let place = fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
        let place = if place.is_empty() || place == "0" {
            "an unknown function".to_owned()
        } else {
            place
        };
        (state == 'D').then_some((pid, place))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::probe::explain;
    use crate::wire::StepFailure;

    #[test]
    fn p55_used_up_filter_memory_is_explained() {
        for step in ["Seccomp", "CountProcesses", "Adopt"] {
            let failure = StepFailure {
                step: step.to_owned(),
                errno: ENOTSUPP,
            };
            let ProviderError::Kernel { why, fix } = explain(&failure) else {
                panic!("{step} is explained otherwise");
            };
            assert!(why.contains("net.core.bpf_jit_limit"), "{why}");
            assert!(fix.contains("belljar doctor"), "{fix}");
        }
    }

    #[test]
    fn a_process_that_runs_is_not_hung() {
        assert_eq!(find_hung(std::process::id() as i32), None);
        let error = hung(None, "start", Duration::from_secs(20)).to_string();
        assert!(error.contains("did not start within 20 s"), "{error}");
    }
}
