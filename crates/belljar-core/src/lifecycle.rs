//! The states of a sandbox and the only ways between them (R50).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::status::words;

words! {
    /// Where a sandbox is in its life.
    Lifecycle {
        Setup = "setup",
        Ready = "ready",
        Running = "running",
        Teardown = "teardown",
        Error = "error",
    }
}

/// A step that the state machine does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a sandbox in state {from} cannot go to {to}")]
pub struct IllegalTransition {
    pub from: Lifecycle,
    pub to: Lifecycle,
}

impl Lifecycle {
    /// `setup -> ready -> running -> teardown`, `running -> ready` when a sandbox is kept for more
    /// work, and `error -> teardown` from wherever something failed. Teardown is the end.
    pub const fn may_go_to(self, to: Self) -> bool {
        use Lifecycle::{Error, Ready, Running, Setup, Teardown};
        matches!(
            (self, to),
            (Setup, Ready | Error | Teardown)
                | (Ready, Running | Error | Teardown)
                | (Running, Ready | Error | Teardown)
                | (Error, Teardown)
        )
    }

    /// Moves to `to`, or says why not and stays.
    pub fn go(&mut self, to: Self) -> Result<(), IllegalTransition> {
        if self.may_go_to(to) {
            *self = to;
            Ok(())
        } else {
            Err(IllegalTransition { from: *self, to })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Lifecycle::*;

    /// R50: only legal transitions. The whole table, so a new arrow is a visible change.
    #[test]
    fn only_legal_transitions() {
        let legal: Vec<_> = Lifecycle::ALL
            .iter()
            .flat_map(|from| Lifecycle::ALL.iter().map(move |to| (*from, *to)))
            .filter(|(from, to)| from.may_go_to(*to))
            .collect();
        assert_eq!(
            legal,
            [
                (Setup, Ready),
                (Setup, Teardown),
                (Setup, Error),
                (Ready, Running),
                (Ready, Teardown),
                (Ready, Error),
                (Running, Ready),
                (Running, Teardown),
                (Running, Error),
                (Error, Teardown),
            ]
        );
    }

    #[test]
    fn an_illegal_step_changes_nothing() {
        let mut state = Teardown;
        assert_eq!(
            state.go(Ready),
            Err(IllegalTransition {
                from: Teardown,
                to: Ready
            })
        );
        assert_eq!(state, Teardown);
    }
}
