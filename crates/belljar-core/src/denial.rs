//! Refusals that explain themselves.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::status::words;

words! {
    /// Stable codes: programs may match on them.
    DenialCode {
        LanguageNotAllowed = "language_not_allowed",
        LanguageUnavailable = "language_unavailable",
        LanguageHasNoSessions = "language_has_no_sessions",
        EnvironmentNotAllowed = "environment_not_allowed",
        EnvironmentUnavailable = "environment_unavailable",
        LimitExceedsPolicy = "limit_exceeds_policy",
        NetworkNotAllowed = "network_not_allowed",
        NetworkUnavailable = "network_unavailable",
        HostNotAllowed = "host_not_allowed",
        SecretUnavailable = "secret_unavailable",
        IsolationUnavailable = "isolation_unavailable",
        ProviderNotAllowed = "provider_not_allowed",
        ImageNotAllowed = "image_not_allowed",
        ImageUnavailable = "image_unavailable",
        ControlUnavailable = "control_unavailable",
        MountNotAllowed = "mount_not_allowed",
        FileWriteNotAllowed = "file_write_not_allowed",
        ImportNotAllowed = "import_not_allowed",
        FilesTooLarge = "files_too_large",
        CommandNotAllowed = "command_not_allowed",
        CommandDangerous = "command_dangerous",
        CommandMalformed = "command_malformed",
        PathNotAllowed = "path_not_allowed",
        EnvironmentInvalid = "environment_invalid",
        ArgumentInvalid = "argument_invalid",
        CodeEmpty = "code_empty",
        ApprovalRequired = "approval_required",
        ApprovalDenied = "approval_denied",
        ApprovalExpired = "approval_expired",
        PolicyNotAllowed = "policy_not_allowed",
        QuotaExceeded = "quota_exceeded",
    }
}

/// Why a request was refused, and the smallest change that would allow it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Denial {
    pub code: DenialCode,
    /// The policy field or check that fired.
    pub rule: String,
    /// The value that broke it.
    pub value: String,
    /// One sentence for people.
    pub message: String,
    /// The smallest change that would allow it.
    pub fix: String,
}

impl Denial {
    pub fn new(
        code: DenialCode,
        rule: impl Into<String>,
        value: impl Into<String>,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self {
            code,
            rule: visible(rule.into()),
            value: visible(value.into()),
            message: visible(message.into()),
            fix: visible(fix.into()),
        }
    }
}

/// Control characters escaped: a denial is printed and logged, and its value came from a caller (P52).
fn visible(text: String) -> String {
    if !text.chars().any(char::is_control) {
        return text;
    }
    text.chars().fold(String::new(), |mut shown, c| {
        if c.is_control() {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
        shown
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_cannot_fake_a_line_of_its_own() {
        let denial = Denial::new(DenialCode::CommandNotAllowed, "r", "é\r\nok \x1b[2J", "a\nb", "f");
        assert_eq!(denial.value, "é\\r\\nok \\u{1b}[2J");
        assert_eq!(denial.to_string(), "a\\nb");
    }
}
