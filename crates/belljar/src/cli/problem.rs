//! What the command line says when it cannot go on: a kind, a sentence, a hint.

use belljar::{DenialCode, Error, ErrorKind};
use serde::Serialize;

use super::{messages, stdout};

/// Why a command ended before its work was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Problem {
    pub(crate) kind: ErrorKind,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl Problem {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            hint: None,
        }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, message)
    }

    pub(crate) fn engine(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Engine, message)
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Tells people or a program about it, and gives the exit code.
    pub(crate) fn report(&self, json: bool) -> u8 {
        if json {
            #[derive(Serialize)]
            struct Wire<'a> {
                error: &'a Problem,
            }
            // The exit code still tells where standard output cannot.
            let _ = stdout::json(&Wire { error: self });
        } else {
            messages::tell(&self.message);
            if let Some(hint) = &self.hint {
                messages::hint(hint);
            }
        }
        self.kind.exit_code()
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let problem = Self::new(error.kind(), error.to_string());
        // A service asks its approvers instead, so this is for runs on this machine.
        if let Error::Denied { denial, .. } = &error
            && denial.code == DenialCode::ApprovalRequired
        {
            let fix = denial.fix.trim_start_matches("have it approved, or ");
            return problem.hint(format!("read it, then say so with --trust; or {fix}"));
        }
        match error.hint() {
            Some(hint) => problem.hint(hint),
            None => problem,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar::Lifecycle;

    #[test]
    fn a_library_error_keeps_its_kind_and_hint() {
        let problem = Problem::from(Error::UnknownPolicy { name: "x".to_owned() });
        assert_eq!(problem.kind, ErrorKind::Usage);
        assert!(problem.hint.is_some());
        let problem = Problem::from(Error::NotReady(Lifecycle::Error));
        assert_eq!(problem.message, "a sandbox in state error cannot run anything");
    }
}
