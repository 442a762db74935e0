//! From a line to a request: every field checked, and what is wrong said by name.

#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use belljar_core::request::{FileIn, Stdin};
use belljar_core::{Comparison, GuestPath, Language, LimitOverrides, Request, Source};
use belljar_engine::Case;
use serde_json::Value;

use super::fields::{Fields, Wrong};
use super::lines::{LARGEST_LINE, Line};
use super::strict::Strict;
use crate::error::Error;
use crate::load;

/// Every field of a line.
const FIELDS: &[&str] = &[
    "id", "language", "code", "file", "command", "stdin", "args", "env", "files", "limits", "cases",
    "compare",
];
/// Every field of a case.
const CASE_FIELDS: &[&str] = &["stdin", "args", "expected_stdout"];
/// Every limit, under the name of its option on the command line, with an example.
const LIMITS: &[&str] = &[
    "memory",
    "timeout",
    "cpu_seconds",
    "processes",
    "open_files",
    "file_size",
    "disk",
    "output_limit",
    "cpu_percent",
];

/// A line that could not be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct LineError {
    pub line: u64,
    pub message: String,
    pub hint: String,
}

/// What a line asks for.
#[derive(Debug)]
pub(super) struct Wish {
    pub(super) request: Request,
    pub(super) cases: Vec<Case>,
    pub(super) comparison: Comparison,
}

/// Reads a line. `defaults` has what a line need not say. The id comes first: it is told even where
/// the rest is wrong.
pub(super) fn read(line: &Line, defaults: &Request) -> (Option<Value>, Result<Wish, Error>) {
    let wrong = |wrong: Wrong| {
        Error::from(LineError {
            line: line.number,
            message: wrong.message,
            hint: wrong.hint,
        })
    };
    let value = match parse(line) {
        Ok(value) => value,
        Err(error) => return (None, Err(wrong(error))),
    };
    let id = value.get("id").filter(|id| is_id(id)).cloned();
    let wish = fields(value)
        .and_then(|fields| wish(fields, defaults))
        .map_err(wrong);
    (id, wish)
}

fn parse(line: &Line) -> Result<Value, Wrong> {
    let Some(text) = &line.text else {
        return Err(Wrong::new(
            format!("it is longer than {LARGEST_LINE}, the longest that is read"),
            "show large data with --mount, or split its cases over several lines",
        ));
    };
    // Some editors begin a file with a mark of its encoding.
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let Ok(text) = std::str::from_utf8(text) else {
        return Err(Wrong::new("it is not text in UTF-8", "save the file as UTF-8"));
    };
    let Strict(value) = serde_json::from_str(text).map_err(|error| {
        // The line that the parser counts is always its first: ours is said already.
        let message = error.to_string();
        let message = message.replace(" at line 1 column ", " at column ");
        Wrong::new(
            format!("it is not JSON: {message}"),
            "write one JSON object on each line, such as {\"language\": \"python\", \"code\": \"print(1)\"}",
        )
    })?;
    Ok(value)
}

fn is_id(value: &Value) -> bool {
    value.is_string() || value.is_i64() || value.is_u64()
}

fn fields(value: Value) -> Result<Fields, Wrong> {
    let mut fields = Fields::of("", value, FIELDS)?;
    match fields.take("id") {
        Some(id) if !is_id(&id) => Err(fields.wrong_type("id", "text or a whole number", &id, "\"a-17\"")),
        _ => Ok(fields),
    }
}

fn wish(mut fields: Fields, defaults: &Request) -> Result<Wish, Wrong> {
    let source = source(&mut fields)?;
    let mut request = Request {
        source,
        ..defaults.clone()
    };
    if let Some(stdin) = fields.text("stdin")? {
        request.stdin = Stdin::Bytes(stdin.into_bytes().into());
    }
    request.args = fields.texts("args")?.unwrap_or_default();
    request.env.extend(fields.named_texts("env")?);
    files(&mut fields, &mut request)?;
    if let Some(value) = fields.take("limits") {
        limits(Fields::of("limits.", value, LIMITS)?, &mut request.limits)?;
    }
    let cases = cases(&mut fields)?;
    let comparison = comparison(&mut fields, &cases)?;
    Ok(Wish {
        request,
        cases,
        comparison,
    })
}

fn source(fields: &mut Fields) -> Result<Source, Wrong> {
    let (code, file, command) = (
        fields.text("code")?,
        fields.text("file")?,
        fields.texts("command")?,
    );
    let language = fields.text("language")?.map(|name| language(&name)).transpose()?;
    let only_one = "give one of code, file and command";
    match (code, file, command) {
        (Some(code), None, None) => {
            let code = code.into_bytes();
            let language = language
                .or_else(|| Language::from_shebang(&code))
                .unwrap_or(Language::Python);
            Ok(Request::code(language, code).source)
        }
        (None, Some(path), None) => {
            let path = Path::new(&path);
            plain_file(path)?;
            let code = load::code_file(path).map_err(|error| unusable(&error))?;
            let language = match language {
                Some(language) => language,
                None => load::language_of(path, &code).map_err(|error| unusable(&error))?,
            };
            Ok(Request::code(language, code).source)
        }
        (None, None, Some(_)) if language.is_some() => Err(Wrong::new(
            "a command has no `language`",
            "leave `language` out, or give `code` instead of `command`",
        )),
        (None, None, Some(argv)) => Ok(Source::Command { argv }),
        (None, None, None) => Err(Wrong::new("there is nothing to run", only_one)),
        _ => Err(Wrong::new("there is more than one program", only_one)),
    }
}

fn unusable(error: &Error) -> Wrong {
    let hint = error.hint().unwrap_or("give the code itself as `code`");
    Wrong::new(format!("`file`: {error}"), hint)
}

/// A pipe or a terminal could be waited for without end, and everything else with it.
fn plain_file(path: &Path) -> Result<(), Wrong> {
    match std::fs::metadata(path) {
        Ok(found) if !found.is_file() => Err(Wrong::new(
            format!("`file`: {} is not a plain file", path.display()),
            "give the code itself as `code`",
        )),
        // What cannot be looked at cannot be read either, and that says why.
        _ => Ok(()),
    }
}

fn language(name: &str) -> Result<Language, Wrong> {
    Language::from_name(name).ok_or_else(|| {
        let known: Vec<_> = Language::ALL.iter().map(|language| language.word()).collect();
        let name: String = name.chars().take(60).collect();
        Wrong::new(
            format!("`language`: `{name}` is not a language that belljar knows"),
            format!("use one of {}", known.join(", ")),
        )
    })
}

fn files(fields: &mut Fields, request: &mut Request) -> Result<(), Wrong> {
    let code = request.language().map(|language| language.spec().file);
    for (name, text) in fields.named_texts("files")? {
        let path = GuestPath::new(&name).map_err(|error| {
            Wrong::new(
                format!("`files`: {error}"),
                "name files relative to the work directory, such as data/input.csv",
            )
        })?;
        if code == Some(path.as_str()) {
            return Err(Wrong::new(
                format!("`files`: `{path}` in the work directory is the code itself"),
                "give the other file another name",
            ));
        }
        request.files.insert(path, FileIn::inline(text.into_bytes()));
    }
    Ok(())
}

fn limits(mut fields: Fields, limits: &mut LimitOverrides) -> Result<(), Wrong> {
    const SIZE: &str = "\"64M\"";
    const TIME: &str = "\"2s\"";
    set(&mut limits.memory, &mut fields, "memory", SIZE)?;
    set(&mut limits.wall_time, &mut fields, "timeout", TIME)?;
    set(&mut limits.cpu_time, &mut fields, "cpu_seconds", TIME)?;
    set(&mut limits.processes, &mut fields, "processes", "20")?;
    set(&mut limits.open_files, &mut fields, "open_files", "512")?;
    set(&mut limits.file_size, &mut fields, "file_size", SIZE)?;
    set(&mut limits.disk, &mut fields, "disk", SIZE)?;
    set(&mut limits.output, &mut fields, "output_limit", SIZE)?;
    set(&mut limits.cpu_percent, &mut fields, "cpu_percent", "50")
}

/// Sets a limit that the line has; what it does not have stays.
fn set<T>(target: &mut Option<T>, fields: &mut Fields, name: &str, example: &str) -> Result<(), Wrong>
where
    T: FromStr,
    T::Err: Display,
{
    if let Some(text) = fields.quantity(name, example)? {
        let value = text.parse().map_err(|error: T::Err| {
            Wrong::new(
                format!("{}: `{text}`: {error}", fields.named(name)),
                format!("for example \"{name}\": {example}"),
            )
        })?;
        *target = Some(value);
    }
    Ok(())
}

fn cases(fields: &mut Fields) -> Result<Vec<Case>, Wrong> {
    let Some(items) = fields.list("cases")? else {
        return Ok(Vec::new());
    };
    if items.is_empty() {
        return Err(Wrong::new(
            "`cases` is empty",
            "leave it out to run the program once, or give it a case: [{\"stdin\": \"…\"}]",
        ));
    }
    let case = |(index, item): (usize, Value)| {
        let mut fields = Fields::of(&format!("cases[{index}]."), item, CASE_FIELDS)?;
        let bytes = |text: String| -> Arc<[u8]> { text.into_bytes().into() };
        Ok(Case {
            stdin: fields.text("stdin")?.map(bytes),
            args: fields.texts("args")?,
            expected_stdout: fields.text("expected_stdout")?.map(bytes),
        })
    };
    items.into_iter().enumerate().map(case).collect()
}

fn comparison(fields: &mut Fields, cases: &[Case]) -> Result<Comparison, Wrong> {
    let Some(word) = fields.text("compare")? else {
        return Ok(Comparison::Trimmed);
    };
    if cases.is_empty() {
        return Err(Wrong::new(
            "`compare` says how cases are compared, and there are no `cases`",
            "leave it out",
        ));
    }
    word.parse().map_err(|_| {
        let known: Vec<_> = Comparison::ALL.iter().map(|value| value.word()).collect();
        Wrong::new(
            "`compare` is not a known way to compare",
            format!("use one of {}", known.join(", ")),
        )
    })
}
