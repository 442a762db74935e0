//! Which program `belljar run` is to run, and in which language.

use std::path::{Path, PathBuf};

use belljar::{Error, Language, load};

use super::super::problem::Problem;

/// Code with its language.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) language: Language,
    pub(super) code: Vec<u8>,
    /// Whether our standard input is used up.
    pub(super) came_from_stdin: bool,
}

pub(super) fn find(
    file: Option<PathBuf>,
    code: Option<String>,
    lang: Option<&str>,
    stdin: Option<&Path>,
) -> Result<Program, Problem> {
    let named = lang.map(language).transpose()?;
    match (file, code) {
        (None, None) => Err(Problem::usage("there is nothing to run")
            .hint("name a file, give code with -c, or read it from standard input with -")),
        (None, Some(code)) => {
            let code = code.into_bytes();
            Ok(Program {
                language: named
                    .or_else(|| Language::from_shebang(&code))
                    .unwrap_or(Language::Python),
                code,
                came_from_stdin: false,
            })
        }
        (Some(path), _) if path.as_os_str() == "-" => {
            if stdin.is_some_and(|stdin| stdin.as_os_str() == "-") {
                return Err(
                    Problem::usage("standard input cannot be both the code and its input")
                        .hint("put the code into a file, or the input: --stdin FILE"),
                );
            }
            let shown = Path::new("standard input");
            let code = load::bounded(std::io::stdin().lock(), shown, load::LARGEST_CODE)?;
            let language = named
                .or_else(|| Language::from_shebang(&code))
                .ok_or_else(|| unknown("the code on standard input"))?;
            Ok(Program {
                language,
                code,
                came_from_stdin: true,
            })
        }
        (Some(path), _) => {
            let code = load::code_file(&path).map_err(|error| match error {
                Error::Read { .. } => Problem::from(error)
                    .hint("to run code itself rather than a file, use: belljar run -c CODE"),
                error => error.into(),
            })?;
            let language = match named {
                Some(language) => language,
                None => {
                    load::language_of(&path, &code).map_err(|_| unknown(&format!("`{}`", path.display())))?
                }
            };
            Ok(Program {
                language,
                code,
                came_from_stdin: false,
            })
        }
    }
}

pub(super) fn language(name: &str) -> Result<Language, Problem> {
    Language::from_name(name).ok_or_else(|| {
        let known: Vec<_> = Language::ALL.iter().map(|language| language.word()).collect();
        Problem::usage(format!("--lang: `{name}` is not a language that belljar knows"))
            .hint(format!("use one of {}", known.join(", ")))
    })
}

fn unknown(what: &str) -> Problem {
    Problem::usage(format!("cannot tell which language {what} is written in"))
        .hint("say it with --lang, for example --lang python; `belljar languages` lists all")
}
