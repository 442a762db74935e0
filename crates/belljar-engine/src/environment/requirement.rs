//! What packages are asked for: names with versions and extras, or wheel files.
//!
//! Everything is read here before a tool sees it: an option, an address, a directory or a source
//! archive would make pip build something.

use std::path::{Path, PathBuf};

/// One wanted package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// `numpy`, `pandas>=2,<3`, `package[extra]; python_version < '3.12'`, with hashes if any.
    Named(String),
    /// A wheel file of this machine.
    Wheel(PathBuf),
    /// A source archive of this machine, to be built.
    Source(PathBuf),
}

/// Why a requirement was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequirementError {
    #[error("`{0}` is not a package: a name starts with a letter or digit")]
    Form(String),
    #[error("`{0}` is an option, not a package")]
    Option(String),
    #[error("`{0}` is an address; packages come from the index or from wheel files")]
    Address(String),
    #[error("`{0}` is a directory or no archive that could be built")]
    Source(String),
    #[error("`{0}` would have to be built, which runs its code")]
    Build(String),
    #[error("`{0}` is not a source archive that can be built: {1}")]
    Archive(String, String),
    #[error("`{0}` is not a wheel file that can be read: {1}")]
    Wheel(String, String),
    #[error("cannot read requirements from {0}: {1}")]
    File(String, String),
    #[error("cannot take wheels from {0}: {1}")]
    Directory(String, String),
    #[error("{0}:{1}: {2}")]
    Line(String, usize, Box<Self>),
}

/// The largest requirements file that is read.
const LARGEST_FILE: u64 = 1 << 20;
/// The endings of source archives.
const SOURCE_ENDINGS: [&str; 3] = [".tar.gz", ".tgz", ".zip"];
/// The longest requirement.
const LONGEST: usize = 4096;

impl RequirementError {
    pub(super) fn hint(&self) -> &'static str {
        match self {
            Self::Form(_) | Self::Address(_) => {
                "name packages as in numpy, pandas>=2,<3 or ./dist/mine-1.0-py3-none-any.whl"
            }
            Self::Option(_) => "packages and --hash can stand here; belljar decides about pip's options",
            Self::Source(_) => "name a wheel, or a source archive (.tar.gz, .zip) with --allow-build",
            Self::Build(_) => "give a wheel of it, or have it built in a sandbox with --allow-build",
            Self::Wheel(..) | Self::Archive(..) | Self::File(..) | Self::Directory(..) => {
                "check that the path is right and may be read"
            }
            Self::Line(_, _, error) => error.hint(),
        }
    }
}

impl Requirement {
    /// Reads one requirement; a relative path is taken from `base`.
    pub fn parse(text: &str, base: &Path) -> Result<Self, RequirementError> {
        let text = text.trim();
        let shown = || {
            text.chars()
                .take(80)
                .collect::<String>()
                .escape_debug()
                .to_string()
        };
        let is_path = text.starts_with(['.', '/', '~']) || (text.contains('/') && !text.contains(['@', ';']));
        let lower = text.to_ascii_lowercase();
        if text.starts_with('-') {
            Err(RequirementError::Option(shown()))
        } else if text.len() > LONGEST || text.chars().any(char::is_control) {
            Err(RequirementError::Form(shown()))
        } else if text.contains("://") || text.contains('@') {
            Err(RequirementError::Address(shown()))
        } else if lower.ends_with(".whl") {
            Self::wheel(&base.join(text))
        } else if SOURCE_ENDINGS.iter().any(|end| lower.ends_with(end)) {
            Self::source(&base.join(text))
        } else if is_path {
            Err(RequirementError::Source(shown()))
        } else if !text.starts_with(|c: char| c.is_ascii_alphanumeric()) || !options_are_hashes(text) {
            Err(RequirementError::Form(shown()))
        } else {
            Ok(Self::Named(text.to_owned()))
        }
    }

    fn source(path: &Path) -> Result<Self, RequirementError> {
        let shown = || path.display().to_string().escape_debug().to_string();
        let refused = |why: &str| RequirementError::Archive(shown(), why.to_owned());
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) || !name.chars().all(is_plain) {
            return Err(refused("its name has characters that no package has"));
        }
        match std::fs::metadata(path) {
            Ok(found) if found.is_file() => Ok(Self::Source(path.to_owned())),
            Ok(_) => Err(refused("it is not a regular file")),
            Err(error) => Err(refused(&error.to_string())),
        }
    }

    fn wheel(path: &Path) -> Result<Self, RequirementError> {
        let shown = || path.display().to_string().escape_debug().to_string();
        let refused = |why: &str| RequirementError::Wheel(shown(), why.to_owned());
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if !is_wheel_name(name) {
            return Err(refused(
                "its name is not that of a wheel: NAME-VERSION-TAG-TAG-TAG.whl",
            ));
        }
        match std::fs::metadata(path) {
            Ok(found) if found.is_file() => Ok(Self::Wheel(path.to_owned())),
            Ok(_) => Err(refused("it is not a regular file")),
            Err(error) => Err(refused(&error.to_string())),
        }
    }

    /// Reads a file of requirements, one on each line, as pip has them.
    pub fn read_file(path: &Path) -> Result<Vec<Self>, RequirementError> {
        let shown = || path.display().to_string().escape_debug().to_string();
        let unreadable = |why: String| RequirementError::File(shown(), why);
        let found = std::fs::metadata(path).map_err(|error| unreadable(error.to_string()))?;
        if !found.is_file() || found.len() > LARGEST_FILE {
            return Err(unreadable("it is not a file of at most 1 MiB".to_owned()));
        }
        let text = std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
        let base = path.parent().unwrap_or(Path::new("."));
        let mut wanted = Vec::new();
        for (number, line) in logical_lines(&text) {
            let read = Self::parse(&line, base)
                .map_err(|error| RequirementError::Line(shown(), number, Box::new(error)))?;
            wanted.push(read);
        }
        Ok(wanted)
    }
}

/// Whether all that looks like an option behind the requirement is a hash.
fn options_are_hashes(text: &str) -> bool {
    text.split_whitespace()
        .filter(|word| word.starts_with('-'))
        .all(|word| word.starts_with("--hash=sha"))
}

/// A character of a plain file's name, which means nothing elsewhere.
const fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '+' | '!')
}

/// A plain wheel's name: five or six parts, and no character that means anything elsewhere.
pub(super) fn is_wheel_name(name: &str) -> bool {
    let Some(stem) = name.strip_suffix(".whl") else {
        return false;
    };
    let parts = stem.split('-').count();
    name.len() <= 255
        && name.chars().all(is_plain)
        && (5..=6).contains(&parts)
        && !stem.split('-').any(str::is_empty)
        && stem.starts_with(|c: char| c.is_ascii_alphanumeric())
}

/// Lines without comments, joined where they end in a backslash, each with the number it starts on.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (number, line) in text.lines().enumerate() {
        let line = line
            .split(" #")
            .next()
            .filter(|line| !line.trim_start().starts_with('#'))
            .unwrap_or_default();
        let (start, mut whole) = open.take().unwrap_or((number + 1, String::new()));
        whole.push_str(line.trim_end().trim_end_matches('\\'));
        if line.trim_end().ends_with('\\') {
            whole.push(' ');
            open = Some((start, whole));
        } else {
            lines.push((start, whole));
        }
    }
    lines.extend(open);
    lines.retain(|(_, line)| !line.trim().is_empty());
    lines
}

/// Splits `numpy,pandas>=2,<3,x[a,b]` into its three packages: a comma also stands within versions
/// and extras.
pub fn split_packages(text: &str) -> Vec<String> {
    let mut packages: Vec<String> = Vec::new();
    let mut depth = 0_usize;
    let mut current = String::new();
    let mut finish = |current: &mut String| {
        let piece = std::mem::take(current);
        let continues = piece.trim_start().starts_with(['<', '>', '=', '!', '~']);
        match packages.last_mut() {
            Some(last) if continues => {
                last.push(',');
                last.push_str(piece.trim());
            }
            _ if piece.trim().is_empty() => {}
            _ => packages.push(piece.trim().to_owned()),
        }
    };
    for c in text.chars() {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                finish(&mut current);
                continue;
            }
            _ => {}
        }
        current.push(c);
    }
    finish(&mut current);
    packages
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Requirement, RequirementError> {
        Requirement::parse(text, Path::new("/nonexistent"))
    }

    #[test]
    fn packages_are_split_where_people_mean_it() {
        for (text, packages) in [
            ("numpy", &["numpy"][..]),
            ("numpy,pandas , x", &["numpy", "pandas", "x"]),
            ("pandas>=2,<3,numpy", &["pandas>=2,<3", "numpy"]),
            ("a[b,c]==1,d~=2,!=2.1", &["a[b,c]==1", "d~=2,!=2.1"]),
            ("", &[]),
            (",,", &[]),
            ("<3", &["<3"]),
        ] {
            assert_eq!(split_packages(text), packages, "{text}");
        }
    }

    #[test]
    fn names_with_versions_and_extras_are_taken() {
        for good in [
            "numpy",
            "pandas>=2,<3",
            "x[a,b]==1.0",
            "tomli; python_version < '3.11'",
            "a==1 --hash=sha256:00 --hash=sha256:11",
        ] {
            assert_eq!(parse(good), Ok(Requirement::Named(good.to_owned())));
        }
    }

    /// Whatever could make pip build, fetch from elsewhere, or read as an option is refused here.
    #[test]
    fn everything_else_is_refused() {
        for bad in [
            "",
            "-e .",
            "--index-url=http://x",
            "-r x",
            "numpy --index-url http://x",
            "git+https://x/y",
            "x @ https://y/z.whl",
            "x@file:///etc",
            "https://x/y.whl",
            ".",
            "./x",
            "../x",
            "/etc",
            "~/x",
            "a/b",
            "x.tar.gz",
            "x-1.zip",
            "a\nb",
            "a\0",
            "<3",
            "[x]",
            "$(id)",
            "a b --pre",
            "absent-1-py3-none-any.whl",
            "x.whl",
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_file_is_read_line_by_line_and_errors_name_the_line() {
        let dir = std::env::temp_dir().join(crate::fresh_id("belljar-requirements"));
        std::fs::create_dir(&dir).unwrap();
        let path = dir.join("r.txt");
        std::fs::write(&path, "# all\nnumpy==1 \\\n  --hash=sha256:00\n\npandas  # why\n").unwrap();
        let read = Requirement::read_file(&path).unwrap();
        assert_eq!(
            read,
            [
                Requirement::Named("numpy==1    --hash=sha256:00".to_owned()),
                Requirement::Named("pandas".to_owned())
            ]
        );
        std::fs::write(&path, "numpy\n\n--extra-index-url http://x\n").unwrap();
        let error = Requirement::read_file(&path).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("r.txt:3: `--extra-index-url http://x` is an option"),
            "{error}"
        );
        assert!(Requirement::read_file(&dir).is_err());
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn wheel_names_are_plain() {
        assert!(
            is_wheel_name("a-1.0-py3-none-any.whl")
                && is_wheel_name("a_b-1.0+cpu-1-cp311-abi3-linux_x86_64.whl")
        );
        for bad in [
            "a.whl",
            "a-1-py3-none.whl",
            "-1-py3-none-any.whl",
            "a-1-py3-none-any.zip",
            "a b-1-py3-none-any.whl",
            "a-1-py3-none-a/y.whl",
            "a-1--none-any.whl",
            "a-1-py3-none-any;x.whl",
            "../a-1-py3-none-any.whl",
        ] {
            assert!(!is_wheel_name(bad), "{bad}");
        }
    }
}
