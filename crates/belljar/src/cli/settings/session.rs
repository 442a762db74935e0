//! What `belljar session …` means.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};

use belljar::batch::Lines;
use belljar::{Error, Language, Limits, Request, load};
use rustix::fs::{Mode as FileMode, OFlags};

use super::super::args::{ExecutionArgs, SessionArgs};
use super::super::problem::Problem;
use super::{By, Here, own_stdin, program, resolve};

/// All that `session` needs to go ahead.
#[derive(Debug)]
pub(crate) struct SessionSettings {
    pub(crate) request: Request,
    pub(crate) by: By,
    pub(crate) language: Language,
    pub(crate) pictures: Directory,
    pub(crate) mode: Mode,
}

/// Where cells come from.
#[derive(Debug)]
pub(crate) enum Mode {
    /// A person types them.
    Prompt {
        /// Where to keep what was typed, if anywhere.
        history: Option<PathBuf>,
    },
    /// All of standard input is one.
    Cell(String),
    /// A program writes them on lines, as JSON.
    Lines(Lines<File>),
}

/// A directory of the host, opened before anything runs: a guest that may write to a mount cannot
/// redirect it any more.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) handle: File,
    /// For messages.
    pub(crate) shown: PathBuf,
}

impl SessionSettings {
    /// The limits that each cell has, where this machine says.
    pub(crate) fn limits(&self) -> Option<Limits> {
        match &self.by {
            By::Us(policy) => Some(policy.limits.lowered(&self.request.limits)),
            By::Service { .. } => None,
        }
    }
}

pub(crate) fn session(args: SessionArgs, here: &Here) -> Result<SessionSettings, Problem> {
    let language = match args.lang.as_deref() {
        Some(name) => program::language(name)?,
        None => Language::Python,
    };
    let pictures = directory(args.pictures.as_deref())?;
    let mut request = Request::interpreter(language);
    if !args.allow_import.is_empty() {
        request.session.imports = Some(modules(&args.allow_import)?);
    }
    let execution = ExecutionArgs {
        env: args.env,
        file: args.file,
        unpack: args.unpack,
        environment: args.environment,
        mount: args.mount,
        network: args.network,
        allow_host: args.allow_host,
        wall: args.wall,
        limits: args.limits,
        policy: args.policy,
        by: args.by,
        require: args.require,
        caller: args.caller,
        ..ExecutionArgs::default()
    };
    let settings = resolve(request, execution, Vec::new(), true, here)?;
    let mode = if args.json {
        Mode::Lines(Lines::new(own_stdin()?))
    } else if here.stdin_is_terminal {
        let history = if args.no_history { None } else { history() };
        Mode::Prompt { history }
    } else {
        Mode::Cell(standard_input()?)
    };
    Ok(SessionSettings {
        request: settings.request,
        by: settings.by,
        language,
        pictures,
        mode,
    })
}

fn modules(texts: &[String]) -> Result<Vec<String>, Problem> {
    let names: Vec<_> = texts.iter().map(|text| text.trim().to_owned()).collect();
    if names.iter().any(String::is_empty) {
        return Err(Problem::usage("--allow-import: a module needs a name")
            .hint("for example --allow-import math,json"));
    }
    Ok(names)
}

fn directory(asked: Option<&Path>) -> Result<Directory, Problem> {
    let shown = asked.unwrap_or(Path::new(".")).to_path_buf();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::open(&shown, flags, FileMode::empty()) {
        Ok(handle) => Ok(Directory {
            handle: handle.into(),
            shown,
        }),
        Err(error) => Err(
            Problem::usage(format!("--pictures: cannot use {}: {error}", shown.display()))
                .hint("name a directory that is there"),
        ),
    }
}

fn standard_input() -> Result<String, Problem> {
    let shown = Path::new("standard input");
    let bytes = load::bounded(std::io::stdin().lock(), shown, load::LARGEST_CODE)?;
    String::from_utf8(bytes).map_err(|_| {
        let path = shown.to_path_buf();
        Problem::from(Error::NotText { path })
    })
}

/// `$XDG_STATE_HOME/belljar/history`, or below `~/.local/state`; none where there is no home.
fn history() -> Option<PathBuf> {
    history_below(std::env::var_os("XDG_STATE_HOME"), std::env::var_os("HOME"))
}

fn history_below(state: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let state = state
        .and_then(absolute)
        .or_else(|| Some(home.and_then(absolute)?.join(".local/state")))?;
    Some(state.join("belljar/history"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_is_kept_where_state_belongs() {
        let found = |state: Option<&str>, home: Option<&str>| {
            history_below(state.map(OsString::from), home.map(OsString::from))
        };
        assert_eq!(found(Some("/s"), Some("/h")), Some("/s/belljar/history".into()));
        let below_home = Some("/h/.local/state/belljar/history".into());
        for unusable in [None, Some(""), Some("relative")] {
            assert_eq!(found(unusable, Some("/h")), below_home);
            assert_eq!(found(unusable, None), None);
        }
        assert_eq!(found(None, Some("")), None);
    }

    #[test]
    fn modules_have_names() {
        let texts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(modules(&texts(&["math", " json"])), Ok(texts(&["math", "json"])));
        assert!(modules(&texts(&["math", ""])).is_err());
    }
}
