//! Finding a Python to base an environment on.
//!
//! Only interpreters of this machine are started here, to ask what they are; see `scripts/facts.py`.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use belljar_core::Language;
use serde::Deserialize;

use super::error::EnvironmentError;
use super::manifest::Interpreter;
use super::specification::PythonWish;
use crate::execute::Engine;

/// What an interpreter says of itself.
#[derive(Debug, Deserialize)]
pub(super) struct Facts {
    version: String,
    implementation: String,
    program: PathBuf,
    prefixes: Vec<PathBuf>,
    library: PathBuf,
    /// Where pip can be run from: its package, or a wheel of it.
    pub(super) pip: Option<PathBuf>,
}

/// A Python that will do.
#[derive(Debug)]
pub(super) struct Python {
    pub(super) interpreter: Interpreter,
    pub(super) pip: Option<PathBuf>,
}

/// The least that works: its audit hooks keep the fetching from starting anything.
const LEAST: (u32, u32) = (3, 8);

/// Finds the wanted Python.
pub(super) fn find(
    engine: &Engine,
    wish: Option<&PythonWish>,
    uv: Option<&Path>,
) -> Result<Python, EnvironmentError> {
    match wish {
        Some(PythonWish::Program(path)) => {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            match ask(&path) {
                Ok(facts) => accept(facts),
                Err(why) => Err(EnvironmentError::Python { program: path, why }),
            }
        }
        Some(PythonWish::Version(version)) => {
            let facts = candidates(version, uv)
                .into_iter()
                .filter_map(|program| ask(&program).ok())
                .find(|facts| is_version(&facts.version, version));
            accept(facts.ok_or_else(|| EnvironmentError::NoPython {
                wanted: format!("Python {version}"),
            })?)
        }
        None => {
            let host = engine.usual_provider().and_then(|provider| {
                provider
                    .capabilities(&[Language::Python])
                    .languages
                    .remove(&Language::Python)
            });
            let host = host
                .as_ref()
                .and_then(|found| found.programs.first())
                .ok_or_else(|| EnvironmentError::NoPython {
                    wanted: "Python".to_owned(),
                })?;
            let facts = ask(host).map_err(|why| EnvironmentError::Python {
                program: host.clone(),
                why,
            })?;
            accept(facts)
        }
    }
}

/// A program in PATH.
pub(super) fn in_path(name: &str) -> Option<PathBuf> {
    path_dirs()
        .into_iter()
        .map(|dir| dir.join(name))
        .find(|path| is_executable(path))
}

fn accept(facts: Facts) -> Result<Python, EnvironmentError> {
    let refused = |why: String| EnvironmentError::Python {
        program: facts.program.clone(),
        why,
    };
    if facts.implementation != "cpython" {
        return Err(refused(format!("it is {}, not CPython", facts.implementation)));
    }
    let numbers: Vec<u32> = facts
        .version
        .split('.')
        .filter_map(|part| part.parse().ok())
        .collect();
    let version = (
        numbers.first().copied().unwrap_or(0),
        numbers.get(1).copied().unwrap_or(0),
    );
    if version < LEAST {
        return Err(refused(format!(
            "it is Python {}, and {}.{} is the oldest that can be",
            facts.version, LEAST.0, LEAST.1
        )));
    }
    let mut shows = Vec::new();
    for needed in facts.prefixes.iter().chain([&facts.library, &facts.program]) {
        if is_system(needed) || shows.iter().any(|shown: &PathBuf| needed.starts_with(shown)) {
            continue;
        }
        if is_private(needed) {
            return Err(refused(format!(
                "{} would have to be shown to guests as a whole, and it holds a person's things",
                needed.display()
            )));
        }
        shows.push(needed.clone());
    }
    Ok(Python {
        interpreter: Interpreter {
            version: facts.version,
            program: facts.program,
            shows,
        },
        pip: facts.pip,
    })
}

/// Asks an interpreter what it is.
fn ask(program: &Path) -> Result<Facts, String> {
    let started = |error: std::io::Error| format!("it cannot be started: {error}");
    // -I: nothing of the directory, the user or the environment decides what it loads.
    let mut child = Command::new(program)
        .args(["-I", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(started)?;
    if let Some(mut stdin) = child.stdin.take() {
        // What does not read it does not answer either.
        let _ = stdin.write_all(include_bytes!("scripts/facts.py"));
    }
    let output = child.wait_with_output().map_err(started)?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let last: String = text
            .lines()
            .last()
            .unwrap_or("it failed")
            .chars()
            .take(200)
            .collect();
        return Err(format!("it does not answer as Python 3 does: {last}"));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("it does not answer as Python 3 does: {error}"))
}

/// Where a Python of that version may be, the likeliest first.
fn candidates(version: &str, uv: Option<&Path>) -> Vec<PathBuf> {
    let minor: Vec<&str> = version.split('.').take(2).collect();
    let name = format!("python{}", minor.join("."));
    let mut found: Vec<PathBuf> = path_dirs()
        .into_iter()
        // What lies there is a script that picks a version by itself.
        .filter(|dir| !dir.ends_with("shims"))
        .map(|dir| dir.join(&name))
        .collect();
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let pyenv = std::env::var_os("PYENV_ROOT")
        .map(PathBuf::from)
        .or_else(|| Some(home.as_ref()?.join(".pyenv")))
        .or_else(|| Some(in_path("pyenv")?.parent()?.parent()?.to_owned()));
    let uv_pythons = home.map(|home| home.join(".local/share/uv/python"));
    for (dir, prefix) in [
        (pyenv.map(|root| root.join("versions")), ""),
        (uv_pythons, "cpython-"),
    ] {
        let Some(dir) = dir else { continue };
        let mut versions: Vec<OsString> = fs::read_dir(&dir)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name())
            .filter(|entry| {
                let entry = entry.to_string_lossy();
                entry
                    .strip_prefix(prefix)
                    .is_some_and(|entry| entry.starts_with(version))
            })
            .collect();
        versions.sort();
        found.extend(
            versions
                .into_iter()
                .rev()
                .map(|entry| dir.join(entry).join("bin").join(&name)),
        );
    }
    found.retain(|path| is_executable(path));
    if let Some(uv) = uv {
        let answer = Command::new(uv)
            .args(["python", "find", "--no-project", version])
            .stdin(Stdio::null())
            .output();
        if let Some(answer) = answer.ok().filter(|answer| answer.status.success()) {
            found.push(PathBuf::from(String::from_utf8_lossy(&answer.stdout).trim()));
        }
    }
    found
}

/// Whether `found` is the wanted version or a patch of it.
fn is_version(found: &str, wanted: &str) -> bool {
    found
        .strip_prefix(wanted)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn path_dirs() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    std::env::split_paths(&path)
        .filter(|dir| dir.is_absolute())
        .collect()
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Whether every guest sees it anyway.
fn is_system(path: &Path) -> bool {
    ["/usr", "/bin", "/sbin", "/lib", "/lib64"]
        .iter()
        .any(|top| path.starts_with(top))
}

/// Whether showing it would show a home, what holds homes, or the whole machine.
fn is_private(path: &Path) -> bool {
    let home = std::env::var_os("HOME")
        .map(PathBuf::from)
        .filter(|home| home.is_absolute());
    let homes = [home, Some(PathBuf::from("/root"))];
    path.components().count() < 3
        || path.parent() == Some(Path::new("/home"))
        || homes
            .iter()
            .flatten()
            .any(|home| home.starts_with(path) || path == home.join(".local"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_matched_by_its_parts() {
        assert!(is_version("3.11.7", "3.11") && is_version("3.11.7", "3.11.7") && is_version("3.11.7", "3"));
        assert!(!is_version("3.11.7", "3.1") && !is_version("3.11.70", "3.11.7"));
    }

    #[test]
    fn no_home_is_shown_for_an_interpreter() {
        let facts = |prefix: &str, version: &str| Facts {
            version: version.to_owned(),
            implementation: "cpython".to_owned(),
            program: PathBuf::from(prefix).join("bin/python3"),
            prefixes: vec![PathBuf::from(prefix)],
            library: PathBuf::from(prefix).join("lib/python3.11"),
            pip: None,
        };
        for private in ["/root", "/", "/home/someone", "/opt", "/root/.local"] {
            assert!(accept(facts(private, "3.11.7")).is_err(), "{private}");
        }
        let python = accept(facts("/opt/python", "3.11.7")).unwrap();
        assert_eq!(python.interpreter.shows, [PathBuf::from("/opt/python")]);
        assert!(
            accept(facts("/usr", "3.11.7"))
                .unwrap()
                .interpreter
                .shows
                .is_empty()
        );
        assert!(accept(facts("/usr", "3.7.16")).is_err());
    }
}
