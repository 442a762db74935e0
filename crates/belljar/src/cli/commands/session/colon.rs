//! The commands of the prompt, which begin with a colon.

use std::path::PathBuf;

use belljar::GuestPath;
use belljar_core::command::split;

use crate::cli::problem::Problem;

pub(super) const HELP: &str = "\
Type code; its last expression is shown. An open bracket, string or block goes on in the next line,
and an empty line ends a block. Ctrl-C interrupts a cell and keeps its state, or clears the line;
twice within two seconds it starts a new interpreter. Ctrl-D leaves.

  :files               list the files of the work directory
  :put HOST [GUEST]    copy a file into the work directory
  :get GUEST [HOST]    copy a file out of it; nothing is written over
  :logs                show again what was printed
  :reset               start a new interpreter: variables go, files stay
  :limits              what each cell may use
  :receipt             which controls held for the last cell
  :help                show this
  :quit                leave
";

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Colon {
    Help,
    Files,
    Put { host: PathBuf, guest: GuestPath },
    Get { guest: GuestPath, host: PathBuf },
    Logs,
    Reset,
    Limits,
    Receipt,
    Quit,
}

impl Colon {
    /// Reads a line that begins with a colon.
    pub(super) fn read(line: &str) -> Result<Self, Problem> {
        const PATHS: &str = "for example :put data.csv, or :get out/plot.png plot.png";
        let name = line.split_whitespace().next().unwrap_or(line);
        let arguments = line.trim_start().strip_prefix(name).unwrap_or_default();
        let words = if arguments.trim().is_empty() {
            Vec::new()
        } else {
            split(arguments).map_err(|error| Problem::usage(format!("{name}: {error}")).hint(PATHS))?
        };
        let guest = |text: &str| {
            GuestPath::new(text).map_err(|error| Problem::usage(format!("{name}: {error}")).hint(PATHS))
        };
        let plain = match name {
            ":help" | ":h" | ":?" => Some(Self::Help),
            ":files" => Some(Self::Files),
            ":logs" => Some(Self::Logs),
            ":reset" => Some(Self::Reset),
            ":limits" => Some(Self::Limits),
            ":receipt" => Some(Self::Receipt),
            ":quit" | ":q" | ":exit" => Some(Self::Quit),
            ":put" | ":get" => None,
            _ => {
                return Err(Problem::usage(format!("there is no command `{name}`"))
                    .hint(":help lists them; code does not begin with a colon"));
            }
        };
        match (plain, name, words.as_slice()) {
            (Some(plain), _, []) => Ok(plain),
            (Some(_), ..) => {
                Err(Problem::usage(format!("{name} takes nothing after it")).hint(":help tells more"))
            }
            (None, ":put", [host] | [host, _]) => {
                let host = PathBuf::from(host);
                let named = words.get(1).cloned();
                let last = || Some(host.file_name()?.to_str()?.to_owned());
                let name = named.or_else(last).unwrap_or_default();
                Ok(Self::Put {
                    guest: guest(&name)?,
                    host,
                })
            }
            (None, ":get", [from] | [from, _]) => {
                let from = guest(from)?;
                let last = from.as_str().rsplit('/').next().unwrap_or_default();
                let host = words.get(1).map_or_else(|| PathBuf::from(last), PathBuf::from);
                Ok(Self::Get { guest: from, host })
            }
            _ => Err(Problem::usage(format!("{name} takes one path or two")).hint(PATHS)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read() {
        let path = |text| GuestPath::new(text).unwrap();
        assert_eq!(Colon::read(":files"), Ok(Colon::Files));
        assert_eq!(Colon::read(" :quit "), Ok(Colon::Quit));
        assert_eq!(
            Colon::read(":put '/tmp/my data.csv'"),
            Ok(Colon::Put {
                host: "/tmp/my data.csv".into(),
                guest: path("my data.csv")
            })
        );
        assert_eq!(
            Colon::read(":get a/b.png"),
            Ok(Colon::Get {
                guest: path("a/b.png"),
                host: "b.png".into()
            })
        );
        assert_eq!(
            Colon::read(":get a /tmp/c"),
            Ok(Colon::Get {
                guest: path("a"),
                host: "/tmp/c".into()
            })
        );
    }

    #[test]
    fn others_get_a_hint() {
        for bad in [
            ":",
            ":nope",
            ":files x",
            ":put",
            ":put a b c",
            ":get ../x",
            ":put 'open",
            ":put /",
            ":get /etc/passwd",
        ] {
            let problem = Colon::read(bad).unwrap_err();
            assert!(problem.hint.is_some(), "{bad}");
        }
    }
}
