//! Wheels out of source archives, where the caller allows it. Building runs the package's own code, so
//! it is done in a sandbox without a network; what that needs is fetched before, as wheels.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use belljar_core::Access;
use belljar_core::request::Content;
use serde::Deserialize;
use serde_json::json;

use super::error::{EnvironmentError, step};
use super::fetch::{Fetch, open_dir, wheel_dir};
use super::progress::Progress;
use super::requirement::{Requirement, RequirementError};
use super::sandboxed::{Job, mount};
use crate::archive;

/// The most that a source archive may unpack to.
const LARGEST_SOURCE: u64 = 512 << 20;

/// What a build needs where it does not say.
const USUAL_TOOLS: [&str; 2] = ["setuptools", "wheel"];

impl Fetch<'_> {
    /// Builds every source archive among the packages; the wheels are in `dir/local` afterwards.
    pub(super) async fn build_sources(&self, progress: &mut dyn Progress) -> Result<(), EnvironmentError> {
        let sources: Vec<&PathBuf> = self
            .wanted
            .packages
            .iter()
            .filter_map(|wanted| match wanted {
                Requirement::Source(path) => Some(path),
                Requirement::Named(_) | Requirement::Wheel(_) => None,
            })
            .collect();
        if sources.is_empty() {
            return Ok(());
        }
        let (dir, tools) = (self.dir.join("sources"), self.dir.join("tools"));
        open_dir(&dir)?;
        open_dir(&tools)?;
        let mut names = Vec::new();
        let mut needed: BTreeSet<String> = BTreeSet::from(["wheel".to_owned()]);
        for path in sources {
            needed.extend(tools_of(path)?);
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            let name = name.unwrap_or_default();
            let target = dir.join(&name);
            fs::copy(path, &target)
                .and_then(|_| fs::set_permissions(&target, fs::Permissions::from_mode(0o644)))
                .map_err(|error| EnvironmentError::io("copy", path, error))?;
            names.push(name);
        }
        if self.wanted.wheels.is_none() {
            progress.step("Gathering what the builds need");
            let lines: String = needed.into_iter().map(|line| line + "\n").collect();
            self.on_host(&lines, "tools", progress).await?;
        }
        match names.len() {
            1 => progress.step("Building 1 package from its source"),
            count => progress.step(&format!("Building {count} packages from their sources")),
        }
        let mut mounts = vec![
            mount(step::BUILD, &dir, Path::new("/sources"), Access::ReadOnly)?,
            mount(step::BUILD, &tools, Path::new("/tools"), Access::ReadOnly)?,
            mount(
                step::BUILD,
                &self.dir.join("local"),
                Path::new("/local"),
                Access::ReadWrite,
            )?,
        ];
        if let Some(wheels) = &self.wanted.wheels {
            mounts.push(mount(
                step::BUILD,
                &wheel_dir(wheels)?,
                Path::new("/index"),
                Access::ReadOnly,
            )?);
        }
        let job = Job {
            step: step::BUILD,
            script: include_str!("scripts/build.py"),
            args: Vec::new(),
            input: json!({"pip": self.pip, "sources": names, "index": self.wanted.wheels.is_some()}),
            program: &self.python.interpreter.program,
            variables: [("PIP_CONFIG_FILE".to_owned(), "/dev/null".to_owned())].into(),
            files: Vec::new(),
            mounts,
            outputs: &[],
        };
        self.sandboxed.run(job, progress).await.map(drop)
    }
}

/// What a source archive says that its build needs. The archive is foreign: what it names is held to
/// the same rules as what a caller names.
fn tools_of(path: &Path) -> Result<Vec<String>, EnvironmentError> {
    #[derive(Default, Deserialize)]
    struct Project {
        #[serde(rename = "build-system")]
        build_system: Option<BuildSystem>,
    }
    #[derive(Deserialize)]
    struct BuildSystem {
        requires: Vec<String>,
    }
    let unusable =
        |why: String| RequirementError::Archive(path.display().to_string().escape_debug().to_string(), why);
    let files = archive::read(path, LARGEST_SOURCE).map_err(|error| unusable(error.to_string()))?;
    let project = files.iter().find_map(|(name, file)| {
        let (_, rest) = name.as_str().split_once('/')?;
        match &file.content {
            Content::Inline(bytes) if rest == "pyproject.toml" => Some(String::from_utf8_lossy(bytes)),
            _ => None,
        }
    });
    let project: Project = match project {
        Some(text) => toml::from_str(&text).map_err(|error| unusable(error.message().to_owned()))?,
        None => Project::default(),
    };
    let Some(system) = project.build_system else {
        return Ok(USUAL_TOOLS.map(str::to_owned).into());
    };
    for text in &system.requires {
        if !matches!(Requirement::parse(text, Path::new("/"))?, Requirement::Named(_)) {
            return Err(unusable(format!("its build needs `{}`", text.escape_debug())).into());
        }
    }
    Ok(system.requires)
}
