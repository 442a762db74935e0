//! Finding what runs a language on this machine.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use belljar_core::language::Recipe;
use belljar_core::{Language, Toolchain};

use super::rootfs::{is_private, is_system, prefix_of};

/// The first recipe whose programs are all here. Asks for versions only where the recipe depends
/// on one, or where `with_version` says so: asking means starting the program.
pub fn find(language: Language, with_version: bool) -> Option<Toolchain> {
    language
        .spec()
        .recipes
        .iter()
        .find_map(|recipe| try_recipe(recipe, with_version))
}

fn try_recipe(recipe: &'static Recipe, with_version: bool) -> Option<Toolchain> {
    let mut programs = Vec::new();
    let mut shows = Vec::new();
    let mut env = BTreeMap::new();
    for names in recipe.programs {
        let found = names.iter().find_map(|name| locate(name))?;
        shows.extend(found.shows);
        env.extend(found.env);
        programs.push(found.program);
    }
    let version = if with_version || recipe.least_version.is_some() {
        ask_version(programs.first()?, recipe.version)
    } else {
        String::new()
    };
    if recipe
        .least_version
        .is_some_and(|least| parse_version(&version).is_none_or(|found| found < least))
    {
        return None;
    }
    let dirs: Vec<_> = programs
        .iter()
        .filter(|program| !is_system(program))
        .filter_map(|p| p.parent())
        .collect();
    if !dirs.is_empty() {
        let dirs = dirs.iter().map(|dir| dir.to_string_lossy().into_owned());
        let path: Vec<String> = dirs.chain(["/usr/local/bin:/usr/bin:/bin".to_owned()]).collect();
        env.insert("PATH".to_owned(), path.join(":"));
    }
    shows.sort();
    shows.dedup();
    Some(Toolchain {
        recipe,
        programs,
        version,
        shows,
        env,
    })
}

struct Located {
    program: PathBuf,
    shows: Vec<PathBuf>,
    env: BTreeMap<String, String>,
}

/// Looks a program up as a shell would, and sees through the stand-ins of version managers.
fn locate(name: &str) -> Option<Located> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    std::env::split_paths(&path)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(name))
        .filter(|candidate| is_executable(candidate))
        .find_map(|candidate| resolve(&candidate, name))
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

fn resolve(candidate: &Path, name: &str) -> Option<Located> {
    let program = through_shims(candidate, name)
        .or_else(|| through_rustup(candidate, name))
        .unwrap_or_else(|| candidate.to_path_buf());
    if program == candidate && is_shim(candidate) {
        return None;
    }
    let real = fs::canonicalize(&program).ok()?;
    let mut shows: Vec<PathBuf> = prefix_of(&real).into_iter().collect();
    // A virtual environment is known by the place from which its interpreter is started, so the
    // link must stay the program.
    if let Some(venv) = program
        .parent()
        .and_then(Path::parent)
        .filter(|dir| dir.join("pyvenv.cfg").is_file() && !is_private(dir))
    {
        shows.push(venv.to_path_buf());
        shows.extend(
            link_targets(&program)
                .iter()
                .filter_map(|target| prefix_of(target)),
        );
        return Some(Located {
            program,
            shows,
            env: BTreeMap::new(),
        });
    }
    Some(Located {
        program: real,
        shows,
        env: BTreeMap::new(),
    })
}

/// Every stop on the way from a link to what it means.
fn link_targets(program: &Path) -> Vec<PathBuf> {
    let mut stops = Vec::new();
    let mut here = program.to_path_buf();
    while let (Ok(target), true) = (fs::read_link(&here), stops.len() < 16) {
        here = here
            .parent()
            .map_or_else(|| target.clone(), |dir| dir.join(&target));
        stops.push(here.clone());
    }
    stops
}

/// pyenv and its kin put scripts into `shims/` that look up the version in charge.
fn is_shim(candidate: &Path) -> bool {
    candidate.parent().is_some_and(|dir| dir.ends_with("shims"))
}

fn through_shims(candidate: &Path, name: &str) -> Option<PathBuf> {
    if !is_shim(candidate) {
        return None;
    }
    let root = candidate.parent()?.parent()?;
    let chosen = std::env::var("PYENV_VERSION")
        .ok()
        .or_else(|| fs::read_to_string(root.join("version")).ok())?;
    chosen
        .split([':', '\n'])
        .map(|version| root.join("versions").join(version.trim()).join("bin").join(name))
        .find(|program| is_executable(program))
}

/// rustup's `rustc` is rustup itself; the compiler is in the toolchain it would pick.
fn through_rustup(candidate: &Path, name: &str) -> Option<PathBuf> {
    let dir = candidate.parent()?;
    if !dir.join("rustup").exists() {
        return None;
    }
    let home = std::env::var_os("RUSTUP_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(dir.parent()?.parent()?.join(".rustup")))?;
    let chosen = std::env::var("RUSTUP_TOOLCHAIN").ok().or_else(|| {
        let settings = fs::read_to_string(home.join("settings.toml")).ok()?;
        let line = settings
            .lines()
            .find(|line| line.starts_with("default_toolchain"))?;
        Some(line.split('"').nth(1)?.to_owned())
    })?;
    let program = home.join("toolchains").join(chosen).join("bin").join(name);
    is_executable(&program).then_some(program)
}

/// The first line of what a program says of its version.
fn ask_version(program: &Path, arguments: &[&str]) -> String {
    if arguments.is_empty() {
        return String::new();
    }
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output();
    let Ok(output) = output else { return String::new() };
    // Some print it as an error.
    let text = if output.stdout.is_empty() {
        output.stderr
    } else {
        output.stdout
    };
    let text = String::from_utf8_lossy(&text);
    text.lines()
        .next()
        .unwrap_or_default()
        .trim()
        .chars()
        .filter(|c| !c.is_control())
        .take(80)
        .collect()
}

/// The first `N.N` in a text.
fn parse_version(text: &str) -> Option<(u32, u32)> {
    let start = text.find(|c: char| c.is_ascii_digit())?;
    let mut numbers = text[start..].split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_out_of_what_programs_say() {
        assert_eq!(parse_version("v20.20.2"), Some((20, 20)));
        assert_eq!(parse_version("Python 3.11.7"), Some((3, 11)));
        assert_eq!(parse_version("Version 5.9"), Some((5, 9)));
        assert_eq!(parse_version("none"), None);
        assert_eq!(parse_version("7"), None);
    }

    #[test]
    fn a_shell_is_found() {
        let shell = find(Language::Shell, false).unwrap();
        assert!(shell.programs[0].is_absolute());
    }
}
