//! From how the kernel and our clock saw something end to what is told of it.

use belljar_core::outcome::Failure;
use belljar_core::provider::Ended;
use belljar_core::{FailureKind, Limits, SandboxStatus, StageKind};

/// A status, an exit code, a signal and a reason.
pub(crate) type Judgement = (SandboxStatus, Option<i32>, Option<i32>, Option<Failure>);

/// From how a stage ended to a status, an exit code, a signal and a reason.
pub(crate) fn judge(stage: StageKind, limits: &Limits, ended: &Ended) -> Judgement {
    const SIGKILL: i32 = 9;
    const SIGXFSZ: i32 = 25;
    const SIGXCPU: i32 = 24;
    let failure = |kind, message: String| Some(Failure { kind, stage, message });
    match ended {
        Ended::Exited(0) => (SandboxStatus::Completed, Some(0), None, None),
        Ended::Exited(code) if stage == StageKind::Compile => {
            let message = format!("the compiler returned {code}");
            (
                SandboxStatus::Failed,
                Some(*code),
                None,
                failure(FailureKind::CompileFailed, message),
            )
        }
        Ended::Exited(code) => {
            let message = format!("the program returned {code}");
            (
                SandboxStatus::Failed,
                Some(*code),
                None,
                failure(FailureKind::ExitCode, message),
            )
        }
        Ended::Signaled(SIGXCPU) | Ended::CpuTime => {
            let message = format!("used up its {} of CPU time", limits.cpu_time());
            (
                SandboxStatus::Timeout,
                None,
                None,
                failure(FailureKind::CpuTime, message),
            )
        }
        Ended::Signaled(SIGXFSZ) => {
            let message = format!("wrote past the file size limit of {}", limits.file_size());
            (
                SandboxStatus::Failed,
                None,
                Some(SIGXFSZ),
                failure(FailureKind::FileSize, message),
            )
        }
        Ended::Signaled(SIGKILL) => {
            let message = "was killed by signal 9".to_owned();
            (
                SandboxStatus::Killed,
                None,
                Some(SIGKILL),
                failure(FailureKind::Signal, message),
            )
        }
        Ended::Signaled(signal) => {
            let message = format!("was ended by signal {signal}");
            (
                SandboxStatus::Failed,
                None,
                Some(*signal),
                failure(FailureKind::Signal, message),
            )
        }
        Ended::WallTime => {
            let message = format!("did not end within {}", limits.wall_time());
            (
                SandboxStatus::Timeout,
                None,
                None,
                failure(FailureKind::Timeout, message),
            )
        }
        Ended::OutOfMemory => {
            let message = format!("needed more than its {} of memory", limits.memory());
            (
                SandboxStatus::Failed,
                None,
                None,
                failure(FailureKind::OutOfMemory, message),
            )
        }
        Ended::Stopped => {
            let message = "was stopped by its caller".to_owned();
            (
                SandboxStatus::Killed,
                None,
                None,
                failure(FailureKind::Cancelled, message),
            )
        }
        Ended::CannotStart(why) => (
            SandboxStatus::Failed,
            None,
            None,
            failure(FailureKind::CannotStart, why.clone()),
        ),
        Ended::Lost(why) => (
            SandboxStatus::Killed,
            None,
            None,
            failure(FailureKind::EngineLost, why.clone()),
        ),
    }
}
