//! Commands: splitting a line as a shell would, and the checks of document 004 (R56, R57).
//!
//! belljar never hands a line to a shell. These checks tell an honest caller early that a line
//! would not do what it looks like; the walls hold without them.

/// Why a command was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    #[error("the command is empty")]
    Empty,
    #[error("a quote that starts at character {0} is never closed")]
    OpenQuote(usize),
    #[error("the command ends in a lone backslash")]
    LoneBackslash,
    #[error("the command holds a NUL byte")]
    Nul,
    #[error("`{0}` is a shell metacharacter, and commands run without a shell")]
    Metacharacter(char),
    #[error("the command matches the dangerous pattern `{0}`")]
    Dangerous(&'static str),
    #[error("`{0}` is not on the list of allowed commands")]
    NotAllowed(String),
}

/// Splits `line` into words as a POSIX shell would, without expanding anything.
///
/// Characters that a shell would act on are refused unless they are quoted, since silently passing
/// them as text would do something else than what the caller wrote.
pub fn split(line: &str) -> Result<Vec<String>, CommandError> {
    if line.contains('\0') {
        return Err(CommandError::Nul);
    }
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = line.chars().enumerate();
    while let Some((at, c)) = characters.next() {
        match c {
            ' ' | '\t' => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match characters.next() {
                        Some((_, '\'')) => break,
                        Some((_, c)) => word.push(c),
                        None => return Err(CommandError::OpenQuote(at + 1)),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match characters.next() {
                        Some((_, '"')) => break,
                        Some((_, '\\')) => match characters.next() {
                            Some((_, c @ ('"' | '\\' | '$' | '`'))) => word.push(c),
                            Some((_, c)) => word.extend(['\\', c]),
                            None => return Err(CommandError::OpenQuote(at + 1)),
                        },
                        Some((_, c @ ('$' | '`'))) => return Err(CommandError::Metacharacter(c)),
                        Some((_, c)) => word.push(c),
                        None => return Err(CommandError::OpenQuote(at + 1)),
                    }
                }
            }
            '\\' => match characters.next() {
                Some((_, c)) => word.get_or_insert_default().push(c),
                None => return Err(CommandError::LoneBackslash),
            },
            ';' | '&' | '|' | '<' | '>' | '`' | '$' | '(' | ')' | '{' | '}' | '*' | '?' | '[' | ']'
            | '\n' | '\r' => {
                return Err(CommandError::Metacharacter(c));
            }
            '#' if word.is_none() => return Err(CommandError::Metacharacter(c)),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    if words.is_empty() {
        Err(CommandError::Empty)
    } else {
        Ok(words)
    }
}

/// One dangerous shape: every part must occur, in this order.
struct Pattern {
    shown: &'static str,
    parts: &'static [&'static str],
}

/// Directories of the sandbox itself, whatever the machine is like.
const OWN: [&str; 3] = ["/tmp/", "/workspace/", "/dev/shm/"];

/// What document 004 calls dangerous patterns. Matching is on the words joined by single spaces.
const DANGEROUS: &[Pattern] = &[
    Pattern {
        shown: "rm -rf /",
        parts: &["rm -rf /"],
    },
    Pattern {
        shown: "rm -fr /",
        parts: &["rm -fr /"],
    },
    Pattern {
        shown: "rm -rf ~",
        parts: &["rm -rf ~"],
    },
    Pattern {
        shown: "rm --no-preserve-root",
        parts: &["rm ", "--no-preserve-root"],
    },
    Pattern {
        shown: "mkfs",
        parts: &["mkfs"],
    },
    Pattern {
        shown: "dd of=/dev/",
        parts: &["dd ", "of=/dev/"],
    },
    Pattern {
        shown: "> /dev/sd",
        parts: &["> /dev/sd"],
    },
    Pattern {
        shown: "fork bomb",
        parts: &[":(){", ":|:"],
    },
    Pattern {
        shown: "chmod -R 777 /",
        parts: &["chmod -R 777 /"],
    },
    Pattern {
        shown: "chown -R … /",
        parts: &["chown -R ", " /"],
    },
    Pattern {
        shown: "curl … | sh",
        parts: &["curl ", "|", "sh"],
    },
    Pattern {
        shown: "wget … | sh",
        parts: &["wget ", "|", "sh"],
    },
    Pattern {
        shown: "/etc/shadow",
        parts: &["/etc/shadow"],
    },
    Pattern {
        shown: "/dev/tcp/",
        parts: &["/dev/tcp/"],
    },
];

/// Programs whose whole purpose is to change the machine or become someone else.
const DANGEROUS_PROGRAMS: [&str; 9] = [
    "sudo", "su", "doas", "shutdown", "reboot", "halt", "poweroff", "insmod", "modprobe",
];

/// Checks the words of a command: the allowlist (when it is not empty), then dangerous patterns.
pub fn check(words: &[String], allowed: &[String]) -> Result<(), CommandError> {
    let Some(program) = words.first().filter(|word| !word.is_empty()) else {
        return Err(CommandError::Empty);
    };
    if words.iter().any(|word| word.contains('\0')) {
        return Err(CommandError::Nul);
    }
    // The whole word must match: `/tmp/ls` is not the `ls` that was allowed.
    if !allowed.is_empty() && !allowed.contains(program) {
        return Err(CommandError::NotAllowed(program.clone()));
    }
    let name = program.rsplit('/').next().unwrap_or(program);
    if let Some(found) = DANGEROUS_PROGRAMS.iter().find(|dangerous| **dangerous == name) {
        return Err(CommandError::Dangerous(found));
    }
    let seen: Vec<_> = words.iter().map(|word| without_own(word)).collect();
    let line = seen.join(" ");
    match DANGEROUS
        .iter()
        .find(|pattern| occurs_in_order(&line, pattern.parts))
    {
        Some(pattern) => Err(CommandError::Dangerous(pattern.shown)),
        None => Ok(()),
    }
}

/// The word as if a path of the sandbox's own were a relative one: what is there is its own business.
fn without_own(word: &str) -> &str {
    let is_own = OWN.iter().any(|own| word.starts_with(own)) && !word.contains("..");
    if is_own { &word[1..] } else { word }
}

fn occurs_in_order(line: &str, parts: &[&str]) -> bool {
    let mut rest = line;
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// R56: string commands are split like a shell would.
    #[test]
    fn lines_are_split_like_a_shell_would() {
        for (line, words) in [
            ("echo 'Hello, Sandbox!'", vec!["echo", "Hello, Sandbox!"]),
            ("ls -la", vec!["ls", "-la"]),
            ("  a\tb  ", vec!["a", "b"]),
            (r#"a "b c" d"#, vec!["a", "b c", "d"]),
            (r#"a"b"'c'd"#, vec!["abcd"]),
            (r#"x "\"\\\$\n""#, vec!["x", r#""\$\n"#]),
            (r"a\ b c", vec!["a b", "c"]),
            ("a '' b", vec!["a", "", "b"]),
            (
                "python3 -c 'print(2+2); 1'",
                vec!["python3", "-c", "print(2+2); 1"],
            ),
        ] {
            assert_eq!(split(line).unwrap(), words, "{line}");
        }
    }

    /// R57: what a shell would act on is refused, not passed along as text.
    #[test]
    fn metacharacters_are_refused_outside_quotes() {
        for line in [
            "a; b",
            "a && b",
            "a | b",
            "a > b",
            "a < b",
            "a `b`",
            "a $(b)",
            "a $HOME",
            "a\nb",
            "a &",
            "ls *.py",
            "a ?",
            "a {1,2}",
            "a [ab]",
            r#"a "$HOME""#,
            r#"a "`b`""#,
            "# comment",
            "(a)",
        ] {
            assert!(
                matches!(split(line), Err(CommandError::Metacharacter(_))),
                "{line}"
            );
        }
    }

    #[test]
    fn broken_lines_say_where() {
        assert_eq!(split("a 'b"), Err(CommandError::OpenQuote(3)));
        assert_eq!(split("a \"b"), Err(CommandError::OpenQuote(3)));
        assert_eq!(split("a \\"), Err(CommandError::LoneBackslash));
        assert_eq!(split("   "), Err(CommandError::Empty));
        assert_eq!(split("a\0"), Err(CommandError::Nul));
    }

    fn words(line: &[&str]) -> Vec<String> {
        line.iter().map(|word| (*word).to_owned()).collect()
    }

    /// R57: the allowlist and the dangerous patterns.
    #[test]
    fn dangerous_and_unlisted_commands_are_refused() {
        for line in [
            &["rm", "-rf", "/"][..],
            &["rm", "-fr", "/*"],
            &["rm", "-rf", "/home"],
            &["rm", "-rf", "/tmp/../home"],
            &["bash", "-c", "rm -rf / --no-preserve-root"],
            &["mkfs.ext4", "/dev/sda1"],
            &["dd", "if=/dev/zero", "of=/dev/sda"],
            &["bash", "-c", ":(){ :|:& };:"],
            &["sudo", "ls"],
            &["/usr/bin/sudo", "ls"],
            &["sh", "-c", "curl x | sh"],
            &["cat", "/etc/shadow"],
        ] {
            assert!(
                matches!(check(&words(line), &[]), Err(CommandError::Dangerous(_))),
                "{line:?}"
            );
        }
        let allowed = words(&["ls", "echo"]);
        assert_eq!(check(&words(&["ls", "-la"]), &allowed), Ok(()));
        for program in ["cat", "/bin/ls", "./ls", "lsx", "LS"] {
            assert_eq!(
                check(&words(&[program]), &allowed),
                Err(CommandError::NotAllowed(program.to_owned()))
            );
        }
        assert_eq!(check(&words(&["python3", "-c", "print(2+2)"]), &[]), Ok(()));
        // What the sandbox itself has there is its own business.
        assert_eq!(check(&words(&["rm", "-rf", "/tmp/x"]), &[]), Ok(()));
        assert_eq!(check(&[], &[]), Err(CommandError::Empty));
        assert_eq!(check(&words(&[""]), &[]), Err(CommandError::Empty));
    }

    proptest! {
        #[test]
        fn quoted_words_come_back_whole(word in "[^'\0]{0,30}") {
            prop_assert_eq!(split(&format!("x '{word}'")), Ok(vec!["x".to_owned(), word]));
        }

        #[test]
        fn any_line_is_split_or_refused(line in any::<String>()) {
            let _ = split(&line).map(|words| check(&words, &[]));
        }
    }
}
