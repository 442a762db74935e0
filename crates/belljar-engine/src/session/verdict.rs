//! What is told of an execution, from how it ended.

use belljar_core::outcome::Failure;
use belljar_core::provider::Ended;
use belljar_core::{Exception, FailureKind, Limits, SandboxStatus, StageKind, Value};

use super::message::{CommandEnd, End};
use crate::judge::{Judgement, judge};

/// How an execution came to its end.
#[derive(Debug)]
pub(super) enum Over {
    /// The runner said so.
    Said(End),
    /// The provider said so, and it is true.
    Ended(Ended),
    /// It sent what is no message, so that nothing it says can be understood any more.
    Broken(String),
    /// The session became too old.
    Aged,
    /// Nobody waits for it any more, and it did not mind an interrupt.
    Abandoned,
}

impl Over {
    /// Whether the interpreter is still of use.
    pub(super) const fn keeps_state(&self) -> bool {
        matches!(self, Self::Said(_))
    }

    /// Why an interpreter that has not said that it is ready never will; none where a limit ended it, as it may any code.
    pub(super) fn why_not_started(&self) -> Option<String> {
        match self {
            Self::Broken(why) | Self::Ended(Ended::CannotStart(why) | Ended::Lost(why)) => Some(why.clone()),
            Self::Ended(Ended::Exited(code)) => Some(format!("it exited with {code}")),
            Self::Ended(Ended::Signaled(signal)) => Some(format!("it was ended by signal {signal}")),
            _ => None,
        }
    }

    /// Status, exit code, signal and reason; value; exception.
    pub(super) fn verdict(self, limits: &Limits) -> (Judgement, Option<Value>, Option<Exception>) {
        let failed = |status, exit_code, kind, message: String| -> Judgement {
            let stage = StageKind::Interpreter;
            (status, exit_code, None, Some(Failure { kind, stage, message }))
        };
        match self {
            Self::Said(End::Ok(value)) => ((SandboxStatus::Completed, Some(0), None, None), value, None),
            Self::Said(End::Command(end)) => {
                let ended = match end {
                    CommandEnd::Exited(code) => Ended::Exited(code),
                    CommandEnd::Signaled(signal) => Ended::Signaled(signal),
                    // A guest's text, for people.
                    CommandEnd::CannotStart(why) => Ended::CannotStart(why.chars().take(300).collect()),
                };
                (judge(StageKind::Run, limits, &ended), None, None)
            }
            Self::Said(End::Exit(0)) => ((SandboxStatus::Completed, Some(0), None, None), None, None),
            Self::Said(End::Exit(code)) => {
                let message = format!("the code asked to exit with {code}");
                let verdict = failed(SandboxStatus::Failed, Some(code), FailureKind::ExitCode, message);
                (verdict, None, None)
            }
            Self::Said(End::Raised(exception)) => {
                let message = format!("raised {}", name(&exception.kind));
                let verdict = failed(SandboxStatus::Failed, Some(1), FailureKind::Exception, message);
                (verdict, None, Some(exception))
            }
            Self::Said(End::Interrupted(exception)) => {
                let message = "was interrupted by its caller".to_owned();
                let verdict = failed(SandboxStatus::Killed, None, FailureKind::Interrupted, message);
                (verdict, None, Some(exception))
            }
            Self::Said(End::Refused(exception)) => {
                let message = format!("was refused before anything ran: {}", name(&exception.kind));
                let verdict = failed(SandboxStatus::Failed, None, FailureKind::Refused, message);
                (verdict, None, Some(exception))
            }
            Self::Ended(ended) => (judge(StageKind::Interpreter, limits, &ended), None, None),
            Self::Broken(why) => {
                let message = format!("broke the protocol of its control channel: {why}");
                let verdict = failed(SandboxStatus::Failed, None, FailureKind::Protocol, message);
                (verdict, None, None)
            }
            Self::Aged => {
                let message = "the session reached its greatest age".to_owned();
                let verdict = failed(SandboxStatus::Timeout, None, FailureKind::Timeout, message);
                (verdict, None, None)
            }
            Self::Abandoned => {
                let message = "was stopped by its caller".to_owned();
                let verdict = failed(SandboxStatus::Killed, None, FailureKind::Cancelled, message);
                (verdict, None, None)
            }
        }
    }
}

/// The name of an exception's type, as far as a record may hold a guest's text.
fn name(kind: &str) -> String {
    kind.chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, '_' | '.'))
        .take(100)
        .collect()
}
