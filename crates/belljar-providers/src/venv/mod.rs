//! Trusted mode: no walls at all. The host's interpreter, or a virtual environment made for the moment, with limits, a session of
//! its own and an environment that holds nothing of the caller's. Every receipt says that there was no wall.

mod place;
mod python;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use belljar_core::language::RUNNER_DIR;
use belljar_core::plan::WORK_DIR;
use belljar_core::provider::BoxFuture;
use belljar_core::request::Workspace;
use belljar_core::{
    Capabilities, Control, IsolationLevel, Language, NetworkPolicy, Plan, Provider, ProviderError,
    ProviderName, Sandbox, Support,
};
use belljar_linux::agent::{Surroundings, runner_files};
use belljar_linux::groups::{Beside, Groups};
use tempfile::TempDir;

use crate::agent::{AgentSandbox, Counters, Held, Made, Seen};
use crate::background::Background;
use crate::program::AgentProgram;
use place::VenvPlace;

/// Runs code that is trusted, without a wall.
#[derive(Debug, Default)]
pub struct VenvProvider {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    background: Background,
    groups: Groups,
    program: OnceLock<AgentProgram>,
    /// The runners' files, written when they are first needed.
    runners: Mutex<Option<Arc<TempDir>>>,
}

impl VenvProvider {
    pub fn new() -> Self {
        Self::default()
    }
}

impl Shared {
    fn program(&self) -> io::Result<PathBuf> {
        if let Some(program) = self.program.get() {
            return Ok(program.path());
        }
        let program = AgentProgram::new()?;
        Ok(self.program.get_or_init(|| program).path())
    }

    fn runners(&self) -> io::Result<Arc<TempDir>> {
        let mut runners = self.runners.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(dir) = &*runners {
            return Ok(Arc::clone(dir));
        }
        let dir = Arc::new(crate::scratch::directory("runners")?);
        for (name, content) in runner_files() {
            let below = name.strip_prefix(RUNNER_DIR).unwrap_or(&name);
            let path = dir.path().join(below.trim_start_matches('/'));
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(path, content)?;
        }
        Ok(Arc::clone(runners.insert(dir)))
    }

    async fn open(self: Arc<Self>, id: String, plan: Arc<Plan>) -> Result<Box<dyn Sandbox>, ProviderError> {
        if !plan.mounts().is_empty() {
            return Err(ProviderError::ControlMissing {
                control: Control::MountNamespace,
                why: "without a wall there is nothing that a mount could be seen in".to_owned(),
                fix: "use the host's own path, or another provider".to_owned(),
            });
        }
        let failed = |operation, source| ProviderError::Io {
            operation,
            object: "a place without walls".to_owned(),
            source,
        };
        let dirs = Dirs::make(&plan, self.runners().map_err(|error| failed("make", error))?)
            .map_err(|error| failed("make", error))?;
        let python = python::fresh(&plan, dirs.own.path()).map_err(|error| failed("make", error))?;
        let beside = Beside {
            memory: 4 << 20,
            tasks: Some(2),
        };
        let group = self.groups.make(&id, plan.limits(), beside)?;
        let program = self.program().map_err(|error| failed("hold", error))?;
        let mut places = dirs.places();
        places.extend(python.places);
        let mut variables = python.variables;
        variables.push(dirs.temporary());
        let (place, connected) = VenvPlace::start(&self.background, &program, dirs, group)
            .await
            .map_err(|error| failed("start", error))?;
        let seen = Seen::look(&connected).await;
        let bounded = |control| {
            let found = place.group_controls();
            found.get(&control).is_some_and(Support::is_present)
        };
        let held = Held {
            memory: !bounded(Control::MemoryCgroup),
            processes: !bounded(Control::PidsCgroup),
        };
        let made = Made {
            surroundings: Surroundings {
                work_dir: place.work_dir(),
                places,
                variables,
                landlock: 0,
                ceilings: seen.ceilings,
                memory_accounted: !held.memory,
                walls: false,
                users: None,
            },
            place: Box::new(place),
            connected,
            counters: Counters::default(),
            held,
        };
        let name = ProviderName::Venv.word();
        Ok(Box::new(AgentSandbox::open(id, name, plan, made).await?))
    }
}

/// The directories of one place.
#[derive(Debug)]
struct Dirs {
    own: TempDir,
    work: PathBuf,
    runners: Arc<TempDir>,
}

impl Dirs {
    fn make(plan: &Plan, runners: Arc<TempDir>) -> io::Result<Self> {
        let own = crate::scratch::directory("venv")?;
        fs::create_dir(own.path().join("tmp"))?;
        let work = match plan.workspace() {
            Workspace::Directory(dir) => dir.clone(),
            Workspace::Scratch => {
                let work = own.path().join("work");
                fs::create_dir(&work)?;
                work
            }
        };
        Ok(Self { own, work, runners })
    }

    /// A directory for its temporary files: `/tmp` itself is the host's.
    fn temporary(&self) -> (String, String) {
        let path = self.own.path().join("tmp");
        ("TMPDIR".to_owned(), path.to_string_lossy().into_owned())
    }

    /// Where what every guest knows by a fixed name is here.
    fn places(&self) -> Vec<(String, String)> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        vec![
            (WORK_DIR.to_owned(), text(&self.work)),
            (RUNNER_DIR.to_owned(), text(self.runners.path())),
        ]
    }
}

impl Provider for VenvProvider {
    fn name(&self) -> ProviderName {
        ProviderName::Venv
    }

    fn capabilities(&self, languages: &[Language]) -> Capabilities {
        let mut controls = self.shared.groups.controls();
        controls.insert(
            Control::Rlimits,
            Support::Present {
                detail: "cpu, file size, files, tasks, core".to_owned(),
            },
        );
        for control in Control::ALL {
            controls.entry(*control).or_insert_with(|| Support::Absent {
                why: "this provider has no walls".to_owned(),
                fix: "use another provider".to_owned(),
            });
        }
        Capabilities {
            provider: ProviderName::Venv,
            isolation: IsolationLevel::None,
            controls,
            essential: [Control::Rlimits].into(),
            // It has all of the host's, so that is all it can honestly give.
            networks: [NetworkPolicy::Full].into(),
            languages: languages
                .iter()
                .filter_map(|language| Some((*language, belljar_linux::find_toolchain(*language, false)?)))
                .collect(),
            environments: BTreeMap::new(),
        }
    }

    fn open(&self, id: String, plan: Arc<Plan>) -> BoxFuture<'_, Result<Box<dyn Sandbox>, ProviderError>> {
        Box::pin(Arc::clone(&self.shared).open(id, plan))
    }
}
