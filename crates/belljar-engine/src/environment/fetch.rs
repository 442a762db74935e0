//! Gathering wheels, without running anything that is in them.
//!
//! From an index, pip fetches on the host, since a sandbox has no network: wheels only, and by way of
//! `scripts/fetch.py`, which lets it start no other program. Where all is on this machine already, even
//! that happens in a sandbox.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use belljar_core::Access;
use belljar_core::provider::Stream;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

use super::error::{EnvironmentError, step};
use super::interpreter::Python;
use super::manifest::{Package, hex};
use super::progress::{Lines, Progress, reason};
use super::requirement::{Requirement, RequirementError, is_wheel_name};
use super::sandboxed::{Job, Sandboxed, build_error, mount};
use super::specification::Specification;
use super::tree::hash_file;

const SCRIPT: &str = include_str!("scripts/fetch.py");

/// What every `pip download` is told. Nothing is ever built.
const DOWNLOAD: [&str; 7] = [
    "download",
    "--only-binary=:all:",
    "--disable-pip-version-check",
    "--no-input",
    "--progress-bar=off",
    "--no-cache-dir",
    "--dest",
];

/// One gathering of wheels.
pub(super) struct Fetch<'a> {
    pub(super) wanted: &'a Specification,
    pub(super) python: &'a Python,
    pub(super) pip: &'a Path,
    pub(super) sandboxed: &'a Sandboxed<'a>,
    /// The build's own directory.
    pub(super) dir: &'a Path,
}

/// Fills `dir/wheels` with all that `wanted` needs, and lists it.
pub(super) async fn fetch(
    wanted: &Specification,
    python: &Python,
    sandboxed: &Sandboxed<'_>,
    dir: &Path,
    progress: &mut dyn Progress,
) -> Result<Vec<Package>, EnvironmentError> {
    let (wheels, local) = (dir.join("wheels"), dir.join("local"));
    for dir in [&wheels, &local] {
        open_dir(dir)?;
    }
    if wanted.packages.is_empty() {
        return Ok(Vec::new());
    }
    let pip = python.pip.as_deref().ok_or_else(|| EnvironmentError::Python {
        program: python.interpreter.program.clone(),
        why: "it has no pip; install python3-pip or python3-venv".to_owned(),
    })?;
    let fetch = Fetch {
        wanted,
        python,
        pip,
        sandboxed,
        dir,
    };
    copy_local(wanted, &local)?;
    fetch.build_sources(progress).await?;
    // A build may have put anything there.
    let local = list(&local)?;
    if wanted.is_local() {
        progress.step("Gathering wheels from this machine");
        fetch.in_sandbox(&local, progress).await?;
    } else {
        progress.step("Gathering wheels from the index");
        let lines = requirements(wanted, &local, "./local");
        fetch.on_host(&lines, "wheels", progress).await?;
    }
    list(&wheels)
}

/// Copies wheel files beside each other, so that only plain names are left to name them by.
fn copy_local(wanted: &Specification, to: &Path) -> Result<(), EnvironmentError> {
    for requirement in &wanted.packages {
        let Requirement::Wheel(path) = requirement else {
            continue;
        };
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_default();
        let target = to.join(&name);
        fs::copy(path, &target)
            .and_then(|_| fs::set_permissions(&target, fs::Permissions::from_mode(0o644)))
            .map_err(|error| EnvironmentError::io("copy", path, error))?;
    }
    Ok(())
}

/// The requirements as pip reads them, with local wheels below `local`.
fn requirements(wanted: &Specification, files: &[Package], local: &str) -> String {
    let named = wanted
        .packages
        .iter()
        .filter_map(|requirement| match requirement {
            Requirement::Named(text) => Some(text.clone()),
            Requirement::Wheel(_) | Requirement::Source(_) => None,
        });
    let files = files.iter().map(|file| format!("{local}/{}", file.wheel));
    named.chain(files).map(|line| line + "\n").collect()
}

impl Fetch<'_> {
    /// Downloads the wheels for `lines` into `to` below the build's directory, on the host.
    pub(super) async fn on_host(
        &self,
        lines: &str,
        to: &str,
        progress: &mut dyn Progress,
    ) -> Result<(), EnvironmentError> {
        let dir = self.dir;
        let list = dir.join("requirements.txt");
        fs::write(&list, lines).map_err(|error| EnvironmentError::io("write", &list, error))?;
        let program = &self.python.interpreter.program;
        let mut command = Command::new(program);
        command
            .args(["-I", "-c", SCRIPT])
            .arg(self.pip)
            .arg(std::process::id().to_string())
            .args(DOWNLOAD)
            .args([to, "-r", "requirements.txt"])
            .current_dir(dir)
            // The caller's own pip settings decide about index and proxy, but not about building.
            .env_remove("PIP_NO_BINARY")
            .env_remove("PIP_REQUIREMENT")
            .env_remove("PIP_CONSTRAINT")
            .env("TMPDIR", dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command
            .spawn()
            .map_err(|error| EnvironmentError::io("start", program, error))?;
        let mut lines = Lines::new(progress);
        let ended = tokio::select! {
            ended = watch(&mut child, &mut lines) => Some(ended),
            () = self.sandboxed.cancel.wait() => None,
        };
        let output = lines.finish();
        match ended {
            None => {
                // It is gone before its directory is removed.
                let _ = child.kill().await;
                Err(EnvironmentError::Cancelled)
            }
            Some(Ok(true)) => Ok(()),
            Some(Ok(false)) => Err(EnvironmentError::Build {
                step: step::FETCH,
                why: reason(&output),
                output,
            }),
            Some(Err(error)) => Err(EnvironmentError::io("watch", program, error)),
        }
    }

    /// The same without a network, in a sandbox.
    async fn in_sandbox(
        &self,
        local: &[Package],
        progress: &mut dyn Progress,
    ) -> Result<(), EnvironmentError> {
        let mut mounts = vec![
            mount(
                step::FETCH,
                &self.dir.join("wheels"),
                Path::new("/wheels"),
                Access::ReadWrite,
            )?,
            mount(
                step::FETCH,
                &self.dir.join("local"),
                Path::new("/local"),
                Access::ReadOnly,
            )?,
        ];
        let mut args: Vec<String> = [self.pip.to_string_lossy().into_owned(), "0".to_owned()].into();
        args.extend(DOWNLOAD.map(str::to_owned));
        args.extend(["/wheels", "--no-index", "-r", "requirements.txt"].map(str::to_owned));
        if let Some(wheels) = &self.wanted.wheels {
            let place = wheel_dir(wheels)?;
            mounts.push(mount(step::FETCH, &place, Path::new("/index"), Access::ReadOnly)?);
            args.extend(["--find-links", "/index"].map(str::to_owned));
        }
        let job = Job {
            step: step::FETCH,
            script: SCRIPT,
            args,
            input: serde_json::Value::Null,
            program: &self.python.interpreter.program,
            variables: [("PIP_CONFIG_FILE".to_owned(), "/dev/null".to_owned())].into(),
            files: vec![("requirements.txt", requirements(self.wanted, local, "/local"))],
            mounts,
            outputs: &[],
        };
        self.sandboxed.run(job, progress).await.map(drop)
    }
}

/// Shows what a child prints, until it ends; whether it ended well.
async fn watch(child: &mut Child, lines: &mut Lines<'_>) -> std::io::Result<bool> {
    let (Some(mut stdout), Some(mut stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(std::io::Error::other("it has no output"));
    };
    let (mut first, mut second) = ([0; 4096], [0; 4096]);
    let (mut open_first, mut open_second) = (true, true);
    while open_first || open_second {
        tokio::select! {
            count = stdout.read(&mut first), if open_first => {
                let count = count?;
                open_first = count > 0;
                lines.take(Stream::Stdout, &first[..count]);
            }
            count = stderr.read(&mut second), if open_second => {
                let count = count?;
                open_second = count > 0;
                lines.take(Stream::Stderr, &second[..count]);
            }
        }
    }
    Ok(child.wait().await?.success())
}

/// The directory of wheels, by a path without links: walls follow none.
pub(super) fn wheel_dir(path: &Path) -> Result<PathBuf, RequirementError> {
    let refused =
        |why: String| RequirementError::Directory(path.display().to_string().escape_debug().to_string(), why);
    let place = fs::canonicalize(path).map_err(|error| refused(error.to_string()))?;
    if place.is_dir() {
        Ok(place)
    } else {
        Err(refused("it is not a directory".to_owned()))
    }
}

/// A directory that a sandbox can write to also where owners cannot be mapped. Nobody else comes
/// this far: the one above it is closed.
pub(super) fn open_dir(dir: &Path) -> Result<(), EnvironmentError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o777)
        .create(dir)
        .and_then(|()| fs::set_permissions(dir, fs::Permissions::from_mode(0o777)))
        .map_err(|error| EnvironmentError::io("create", dir, error))
}

/// What was fetched. Names come from whoever made the wheels, so only plain ones are taken.
fn list(wheels: &Path) -> Result<Vec<Package>, EnvironmentError> {
    let failed = |error: std::io::Error| EnvironmentError::io("read", wheels, error);
    let mut packages = Vec::new();
    for entry in fs::read_dir(wheels).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let wheel = entry.file_name().to_string_lossy().into_owned();
        let is_file = entry.file_type().map_err(failed)?.is_file();
        if !is_file || !is_wheel_name(&wheel) {
            let error = std::io::Error::other(format!("`{}` is not a wheel", wheel.escape_debug()));
            return Err(build_error(step::FETCH, &error));
        }
        let (sha256, _) = hash_file(&entry.path()).map_err(failed)?;
        let mut parts = wheel.split('-');
        packages.push(Package {
            name: parts.next().unwrap_or_default().replace('_', "-"),
            version: parts.next().unwrap_or_default().replace('_', "-"),
            sha256: hex(&sha256),
            wheel: wheel.clone(),
        });
    }
    packages.sort();
    Ok(packages)
}
