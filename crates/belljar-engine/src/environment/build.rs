//! From a specification to an environment with a name. A build that does not come to its end leaves
//! nothing: everything is made in a directory that goes away with it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use belljar_core::{Access, Mount};
use serde::Deserialize;
use serde_json::json;

use super::error::{EnvironmentError, step};
use super::fetch::{fetch, open_dir, wheel_dir};
use super::interpreter::{self, Python};
use super::manifest::{FORMAT, Manifest, Package, key};
use super::progress::{Cancel, Progress};
use super::sandboxed::{Job, Sandboxed, build_error, bytes_of, mount};
use super::specification::{Module, Specification};
use super::store::{Building, Described, Environments};
use super::tree;
use crate::execute::Engine;

/// Where matplotlib writes; `scripts/startup.py` puts the list of fonts there.
const FONT_DIR: &str = "/tmp/matplotlib";

/// What came of a build.
#[derive(Clone, Debug)]
pub struct Created {
    pub environment: Described,
    /// The same had been built before, under this or another name.
    pub reused: bool,
}

/// Builds what `wanted` says and gives it its name.
pub async fn create(
    engine: &Engine,
    wanted: &Specification,
    progress: &mut dyn Progress,
    cancel: &Cancel,
) -> Result<Created, EnvironmentError> {
    let store = engine.environments()?.prepare()?;
    // A tree is shown where it stands, which is not everywhere possible.
    let place = store.tree_of("key");
    Mount::new(&place, &place, Access::ReadOnly).map_err(|source| EnvironmentError::Place {
        root: store.root().to_owned(),
        source,
    })?;
    store.sweep()?;
    if store.has(&wanted.name) && !wanted.replace {
        return Err(EnvironmentError::Exists {
            name: wanted.name.clone(),
        });
    }
    wanted.check_sources()?;
    if let Some(wheels) = &wanted.wheels {
        wheel_dir(wheels)?;
    }
    let uv = interpreter::in_path("uv");
    let python = interpreter::find(engine, wanted.python.as_ref(), uv.as_deref())?;
    progress.step(&format!(
        "Python {} at {}",
        python.interpreter.version,
        python.interpreter.program.display()
    ));
    let building = store.begin()?;
    let sandboxed = Sandboxed {
        engine,
        interpreter: &python.interpreter,
        name: &wanted.name,
        cancel,
    };
    let packages = fetch(wanted, &python, &sandboxed, &building.dir, progress).await?;
    let preload: Vec<String> = wanted
        .preload
        .iter()
        .map(|module| module.as_str().to_owned())
        .collect();
    let key = key(&python.interpreter, &packages, &preload);
    let existing = store.existing(&key);
    if existing.is_some() {
        progress.step("The same is here already");
        store.publish(&wanted.name, &key, None, wanted.replace)?;
    } else {
        let build = Build {
            store: &store,
            building: &building,
            python: &python,
            uv,
            sandboxed,
            place: store.tree_of(&key),
        };
        build.make(packages, &wanted.preload, progress).await?;
        if cancel.is_cancelled() {
            return Err(EnvironmentError::Cancelled);
        }
        store.publish(&wanted.name, &key, Some(&building), wanted.replace)?;
    }
    Ok(Created {
        environment: store.describe(&wanted.name)?,
        reused: existing.is_some(),
    })
}

/// One build after its wheels are there.
struct Build<'a> {
    store: &'a Environments,
    building: &'a Building,
    python: &'a Python,
    uv: Option<PathBuf>,
    sandboxed: Sandboxed<'a>,
    /// Where the tree will stand, and where sandboxes see it already.
    place: PathBuf,
}

/// What the installer's sandbox tells of each package.
#[derive(Deserialize)]
struct Installed {
    name: String,
    version: String,
}

impl Build<'_> {
    async fn make(
        &self,
        packages: Vec<Package>,
        preload: &[Module],
        progress: &mut dyn Progress,
    ) -> Result<(), EnvironmentError> {
        debug_assert!(self.place.starts_with(self.store.root()));
        open_dir(&self.tree())?;
        let installed = self.install(&packages, progress).await?;
        let has_fonts = installed
            .iter()
            .any(|package| package.name.eq_ignore_ascii_case("matplotlib"));
        let mut variables: BTreeMap<String, String> = [
            ("PATH".to_owned(), self.search_path()),
            (
                "VIRTUAL_ENV".to_owned(),
                self.place.to_string_lossy().into_owned(),
            ),
        ]
        .into();
        if !packages.is_empty() {
            progress.step("Compiling to bytecode");
            self.compile(progress).await?;
        }
        if has_fonts {
            progress.step("Making matplotlib's list of fonts");
            self.fonts(&variables, progress).await?;
            variables.insert("MPLCONFIGDIR".to_owned(), FONT_DIR.to_owned());
        }
        progress.step("Sealing");
        let sum = self.seal().await?;
        if !preload.is_empty() {
            let names: Vec<_> = preload.iter().map(Module::as_str).collect();
            progress.step(&format!("Importing {}", names.join(", ")));
            self.check(preload, &variables, progress).await?;
        }
        let mut manifest = Manifest {
            format: FORMAT,
            digest: String::new(),
            place: self.place.clone(),
            created_at: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
            interpreter: self.python.interpreter.clone(),
            packages: named_as_installed(packages, &installed),
            preload: preload.iter().map(|module| module.as_str().to_owned()).collect(),
            variables,
            installer: if self.uv.is_some() { "uv" } else { "pip" }.to_owned(),
            tree: sum,
            root: None,
        };
        manifest.digest = manifest.computed_digest();
        let path = self.content().join("manifest.json");
        let text = serde_json::to_vec_pretty(&manifest).map_err(|error| build_error(step::SEAL, &error))?;
        fs::write(&path, text).map_err(|error| EnvironmentError::io("write", &path, error))
    }

    fn content(&self) -> PathBuf {
        self.building.dir.join("content")
    }

    /// The tree while it is built, on the host.
    fn tree(&self) -> PathBuf {
        self.content().join("tree")
    }

    fn search_path(&self) -> String {
        format!("{}/bin:/usr/local/bin:/usr/bin:/bin", self.place.display())
    }

    async fn install(
        &self,
        packages: &[Package],
        progress: &mut dyn Progress,
    ) -> Result<Vec<Installed>, EnvironmentError> {
        match packages.len() {
            0 => progress.step("Making the environment"),
            1 => progress.step("Installing 1 package"),
            count => progress.step(&format!("Installing {count} packages")),
        }
        let wheels = self.building.dir.join("wheels");
        let mut mounts = vec![
            mount(step::INSTALL, &self.tree(), &self.place, Access::ReadWrite)?,
            mount(step::INSTALL, &wheels, Path::new("/wheels"), Access::ReadOnly)?,
        ];
        if let Some(uv) = &self.uv {
            let uv = fs::canonicalize(uv).map_err(|error| EnvironmentError::io("open", uv, error))?;
            mounts.push(mount(step::INSTALL, &uv, Path::new("/uv"), Access::ReadOnly)?);
        }
        let wheels: Vec<_> = packages
            .iter()
            .map(|package| json!({"name": package.name, "version": package.version}))
            .collect();
        let job = Job {
            step: step::INSTALL,
            script: include_str!("scripts/install.py"),
            args: Vec::new(),
            input: json!({
                "tree": self.place,
                "wheels": wheels,
                "pip": self.python.pip,
                "uv": self.uv.as_ref().map(|_| "/uv"),
                "startup": include_str!("scripts/startup.py"),
            }),
            program: &self.python.interpreter.program,
            variables: [("PIP_CONFIG_FILE".to_owned(), "/dev/null".to_owned())].into(),
            files: Vec::new(),
            mounts,
            outputs: &["result.json"],
        };
        let files = self.sandboxed.run(job, progress).await?;
        let result = bytes_of(&files, "result.json").unwrap_or_default();
        serde_json::from_slice(result).map_err(|error| build_error(step::INSTALL, &error))
    }

    async fn compile(&self, progress: &mut dyn Progress) -> Result<(), EnvironmentError> {
        let job = Job {
            step: step::COMPILE,
            script: include_str!("scripts/compile.py"),
            args: Vec::new(),
            input: json!({"tree": self.place}),
            program: &self.python.interpreter.program,
            variables: BTreeMap::new(),
            files: Vec::new(),
            mounts: vec![mount(
                step::COMPILE,
                &self.tree(),
                &self.place,
                Access::ReadWrite,
            )?],
            outputs: &[],
        };
        self.sandboxed.run(job, progress).await.map(drop)
    }

    /// The first code of a package that runs; from here on the tree cannot be written to.
    async fn fonts(
        &self,
        variables: &BTreeMap<String, String>,
        progress: &mut dyn Progress,
    ) -> Result<(), EnvironmentError> {
        let program = self.place.join("bin/python");
        let mut variables = variables.clone();
        variables.insert("MPLCONFIGDIR".to_owned(), "/workspace/fonts".to_owned());
        let job = Job {
            step: step::FONTS,
            script: include_str!("scripts/fonts.py"),
            args: Vec::new(),
            input: serde_json::Value::Null,
            program: &program,
            variables,
            files: Vec::new(),
            mounts: vec![mount(step::FONTS, &self.tree(), &self.place, Access::ReadOnly)?],
            outputs: &["fonts"],
        };
        let files = self.sandboxed.run(job, progress).await?;
        let to = self.tree().join("share/belljar/matplotlib");
        fs::create_dir_all(&to).map_err(|error| EnvironmentError::io("create", &to, error))?;
        for file in &files {
            let name = file.path.strip_prefix("fonts/").unwrap_or_default();
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
            let is_list = name.starts_with("fontlist-") && name.ends_with(".json") && name.chars().all(plain);
            if let Some(bytes) = bytes_of(&files, &file.path).filter(|_| is_list) {
                let path = to.join(name);
                fs::write(&path, bytes).map_err(|error| EnvironmentError::io("write", &path, error))?;
            }
        }
        Ok(())
    }

    async fn seal(&self) -> Result<super::manifest::TreeSum, EnvironmentError> {
        let tree = self.tree();
        let sealed = tokio::task::spawn_blocking(move || {
            tree::seal(&tree)?;
            tree::sum(&tree)
        });
        match sealed.await {
            Ok(Ok(sum)) => Ok(sum),
            Ok(Err(error)) => Err(build_error(step::SEAL, &error)),
            Err(error) => Err(build_error(step::SEAL, &error)),
        }
    }

    /// Imports what is to be preloaded, as every later run will.
    async fn check(
        &self,
        preload: &[Module],
        variables: &BTreeMap<String, String>,
        progress: &mut dyn Progress,
    ) -> Result<(), EnvironmentError> {
        let program = self.place.join("bin/python");
        let job = Job {
            step: step::CHECK,
            script: include_str!("scripts/preload.py"),
            args: preload.iter().map(|module| module.as_str().to_owned()).collect(),
            input: serde_json::Value::Null,
            program: &program,
            variables: variables.clone(),
            files: Vec::new(),
            mounts: vec![mount(step::CHECK, &self.tree(), &self.place, Access::ReadOnly)?],
            outputs: &[],
        };
        self.sandboxed.run(job, progress).await.map(drop)
    }
}

/// The packages under the names that they give themselves.
fn named_as_installed(packages: Vec<Package>, installed: &[Installed]) -> Vec<Package> {
    let plain = |name: &str| name.to_ascii_lowercase().replace(['-', '.'], "_");
    packages
        .into_iter()
        .map(|package| {
            let own = installed
                .iter()
                .find(|found| plain(&found.name) == plain(&package.name));
            match own {
                Some(found) => Package {
                    name: found.name.clone(),
                    version: found.version.clone(),
                    ..package
                },
                None => package,
            }
        })
        .collect()
}
