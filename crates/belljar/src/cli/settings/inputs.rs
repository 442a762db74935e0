//! Variables, files, mounts and outputs, from their written forms.

use std::collections::BTreeMap;
use std::env::VarError;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use belljar::{FileIn, GuestPath, Mount, Request, Source};
use belljar_core::egress::{Rule, RuleError};
use belljar_core::status::UnknownWord;

use super::super::args::WallArgs;
use super::super::problem::Problem;

/// A file or directory to take out of the work directory, and where to.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) guest: GuestPath,
    /// Opened before anything runs: a guest that may write to a mount cannot redirect it any more.
    pub(crate) directory: File,
    pub(crate) name: OsString,
    /// For messages.
    pub(crate) shown: PathBuf,
}

/// `NAME=VALUE`, or `NAME` for the value it has here.
pub(super) fn variables(texts: &[String]) -> Result<BTreeMap<String, String>, Problem> {
    const FORM: &str = "write --env NAME=VALUE, or --env NAME to copy it from this environment";
    let mut variables = BTreeMap::new();
    for text in texts {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => (text.as_str(), inherited(text)?),
        };
        if name.is_empty() {
            return Err(Problem::usage(format!("--env: `{text}` has no name")).hint(FORM));
        }
        variables.insert(name.to_owned(), value);
    }
    Ok(variables)
}

fn inherited(name: &str) -> Result<String, Problem> {
    if name.is_empty() || name.contains('\0') {
        return Err(Problem::usage("--env: a variable needs a name").hint("write --env NAME=VALUE"));
    }
    std::env::var(name).map_err(|error| match error {
        VarError::NotPresent => {
            Problem::usage(format!("--env: `{name}` is not set here, so it cannot be copied"))
                .hint(format!("write --env {name}=VALUE"))
        }
        VarError::NotUnicode(_) => {
            Problem::usage(format!("--env: the value of `{name}` is not text in UTF-8"))
                .hint("pass binary data as a file or on standard input")
        }
    })
}

/// `PATH[=HOST]`, into the work directory.
pub(super) fn files(texts: &[String]) -> Result<BTreeMap<GuestPath, FileIn>, Problem> {
    let mut files = BTreeMap::new();
    for text in texts {
        let (guest, host) = text.split_once('=').unwrap_or((text, text));
        let guest = guest_path(
            guest,
            "--file",
            "write --file NAME=HOST, such as --file data.csv=/srv/data.csv",
        )?;
        let host = Path::new(host);
        let executable = plain_file(host)?;
        let file = FileIn {
            executable,
            ..FileIn::host(host)
        };
        if files.insert(guest.clone(), file).is_some() {
            return Err(twice(guest.as_str()));
        }
    }
    Ok(files)
}

/// Whether a host file is executable; an error unless it is a plain file.
fn plain_file(host: &Path) -> Result<bool, Problem> {
    let metadata = fs::metadata(host).map_err(|error| {
        Problem::usage(format!("--file: cannot read {}: {error}", host.display()))
            .hint("--file PATH[=HOST]: PATH is in the work directory, HOST is the file to copy")
    })?;
    if !metadata.is_file() {
        return Err(
            Problem::usage(format!("--file: {} is not a plain file", host.display()))
                .hint("show a directory with --mount HOST:GUEST, or pack it and use --unpack"),
        );
    }
    Ok(metadata.permissions().mode() & 0o111 != 0)
}

/// `PATH[=HOST]`, out of the work directory.
pub(super) fn outputs(texts: &[String]) -> Result<Vec<Output>, Problem> {
    texts
        .iter()
        .map(|text| {
            let (guest, host) = match text.split_once('=') {
                Some((guest, host)) => (guest, Some(host)),
                None => (text.as_str(), None),
            };
            let guest = guest_path(
                guest,
                "--out",
                "write --out PATH=HOST, such as --out plots/a.png=/tmp/a.png",
            )?;
            let (directory, name) = destination(&guest, host.map(Path::new))?;
            let opened =
                File::open(&directory).map_err(|error| unwritable(&directory, &error.to_string()))?;
            Ok(Output {
                guest,
                shown: directory.join(&name),
                directory: opened,
                name,
            })
        })
        .collect()
}

/// The directory to write to and the name there. Like `cp`: what goes to an existing directory
/// keeps its own name.
fn destination(guest: &GuestPath, host: Option<&Path>) -> Result<(PathBuf, OsString), Problem> {
    let own_name = || OsString::from(guest.name());
    let (directory, name) = match host {
        None => (PathBuf::from("."), own_name()),
        Some(host) if host.is_dir() => (host.to_owned(), own_name()),
        Some(host) => match (host.parent(), host.file_name()) {
            (Some(parent), Some(name)) => (Path::new(".").join(parent), name.to_owned()),
            _ => return Err(unwritable(host, "it has no name")),
        },
    };
    if !directory.is_dir() {
        return Err(unwritable(&directory, "there is no such directory"));
    }
    // A file takes its name by being renamed: over a device such as /dev/null that would remove it.
    let place = directory.join(&name);
    match fs::symlink_metadata(&place) {
        Ok(found) if !(found.is_file() || found.is_dir() || found.is_symlink()) => {
            Err(unwritable(&place, "it is not a plain file"))
        }
        _ => Ok((directory, name)),
    }
}

fn unwritable(host: &Path, why: &str) -> Problem {
    Problem::usage(format!("--out: cannot write to `{}`: {why}", host.display()))
        .hint("--out PATH[=HOST]: HOST is the file to write, in a directory that exists")
}

/// `HOST:GUEST[:ro|rw]`; a relative host path is taken from here.
pub(super) fn mounts(texts: &[String], directory: &Path) -> Result<Vec<Mount>, Problem> {
    const FORM: &str = "for example --mount ./data:/workspace/data, or with :rw at the end to let it write";
    texts
        .iter()
        .map(|text| {
            let mount = Mount::parse(text, directory)
                .map_err(|error| Problem::usage(format!("--mount: {error}")).hint(FORM))?;
            // Whoever types the path means where it leads. Below this, nothing follows a link: a policy
            // permits paths, and a guest may have planted the link.
            match fs::canonicalize(mount.host()) {
                Ok(host) => Mount::new(&host, mount.guest(), mount.access())
                    .map_err(|error| Problem::usage(format!("--mount: {error}")).hint(FORM)),
                Err(error) => Err(Problem::usage(format!(
                    "--mount: cannot show {}: {error}",
                    mount.host().display()
                ))
                .hint(FORM)),
            }
        })
        .collect()
}

/// Hosts that may be reached; none were named: whatever the policy has.
pub(super) fn hosts(texts: &[String]) -> Result<Option<Vec<Rule>>, Problem> {
    let rules = texts.iter().map(|text| {
        text.parse().map_err(|error: RuleError| {
            Problem::usage(format!("--allow-host: {error}"))
                .hint("for example --allow-host api.example.com:443, or '*.example.com' for all below it")
        })
    });
    let rules: Vec<Rule> = rules.collect::<Result<_, _>>()?;
    Ok((!rules.is_empty()).then_some(rules))
}

/// The wall that was asked for, and whether the code is trusted.
pub(super) fn wall(args: &WallArgs, request: &mut Request) -> Result<(), Problem> {
    request.provider = args
        .provider
        .as_deref()
        .map(|name| word(name, "--provider"))
        .transpose()?;
    request.image = args.image.as_deref().map(image).transpose()?;
    request.approved = args.trust;
    Ok(())
}

/// The name of an image, as engines write it.
pub(crate) fn image(name: &str) -> Result<String, Problem> {
    let plain = |c: char| c.is_ascii_graphic();
    // With a dash in front it is an option that was forgotten.
    if name.is_empty() || name.starts_with('-') || !name.chars().all(plain) {
        let shown = name.escape_default();
        return Err(Problem::usage(format!("--image: `{shown}` is no image's name"))
            .hint("write NAME, NAME:TAG or NAME@DIGEST, such as python:3.12-slim"));
    }
    Ok(name.to_owned())
}

/// The code has a file of its own in the work directory, which no other may replace.
pub(super) fn check_code_name(request: &Request) -> Result<(), Problem> {
    let Source::Code { language, .. } = &request.source else {
        return Ok(());
    };
    let name = language.spec().file;
    if request.files.keys().any(|path| path.as_str() == name) {
        return Err(Problem::usage(format!(
            "`{name}` in the work directory is the {language} code itself"
        ))
        .hint("give the other file another name, or run it with: belljar exec -- CMD"));
    }
    Ok(())
}

/// A word of one of belljar's vocabularies.
pub(super) fn word<T: FromStr<Err = UnknownWord>>(text: &str, flag: &str) -> Result<T, Problem> {
    text.parse().map_err(|error: UnknownWord| {
        Problem::usage(format!("{flag}: `{text}` is not known"))
            .hint(format!("use one of {}", error.known.join(", ")))
    })
}

pub(super) fn twice(guest: &str) -> Problem {
    Problem::usage(format!("`{guest}` is put into the work directory twice"))
        .hint("give each file a name of its own: --file NAME=HOST")
}

fn guest_path(text: &str, flag: &str, hint: &str) -> Result<GuestPath, Problem> {
    GuestPath::new(text).map_err(|error| Problem::usage(format!("{flag}: {error}")).hint(hint))
}
