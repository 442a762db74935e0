//! The rule for ids that people choose, of policies, tenants and environments: each can stand in a path, an address, a
//! command line and a log without being anything else there.

/// Why a text cannot be an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentifierError {
    #[error("must not be empty")]
    Empty,
    #[error("must have at most {max} characters, not {len}")]
    TooLong { len: usize, max: usize },
    #[error("must be letters, digits, `-`, `_` and `.`, and begin with a letter, a digit or `_`")]
    Characters,
}

/// Checks a text that is to be an id. `.`, `..`, separators of paths, spaces, control characters and whatever is not ASCII
/// are in none; one that began with `-` would be an option on a command line.
pub fn check_identifier(text: &str, max: usize) -> Result<(), IdentifierError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if text.is_empty() {
        Err(IdentifierError::Empty)
    } else if text.len() > max {
        Err(IdentifierError::TooLong { len: text.len(), max })
    } else if text.starts_with(['.', '-']) || !text.chars().all(is_plain) {
        Err(IdentifierError::Characters)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s5_an_id_is_no_path_no_option_and_no_control_sequence() {
        for good in [
            "a",
            "0",
            "_x",
            "team-one",
            "v1.2_x",
            "a..b",
            "exe-0123456789abcdef",
        ] {
            assert_eq!(check_identifier(good, 64), Ok(()), "{good}");
        }
        let bad = [
            ".",
            "..",
            "...",
            ".a",
            "-a",
            "--help",
            "a/b",
            "/",
            "../a",
            "a\\b",
            "a b",
            " ",
            "a\n",
            "a\r",
            "\0",
            "\u{1b}[31m",
            "\u{7f}",
            "\u{85}",
            "é",
            "\u{202e}a",
            "a%2f",
            "a?b",
            "a#b",
            "a:b",
            "*",
        ];
        for bad in bad {
            assert_eq!(
                check_identifier(bad, 64),
                Err(IdentifierError::Characters),
                "{bad:?}"
            );
        }
        assert_eq!(check_identifier("", 64), Err(IdentifierError::Empty));
        assert_eq!(check_identifier(&"a".repeat(64), 64), Ok(()));
        let too_long = IdentifierError::TooLong { len: 65, max: 64 };
        assert_eq!(check_identifier(&"a".repeat(65), 64), Err(too_long));
    }
}
