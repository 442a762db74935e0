//! gVisor: `runsc` on a bundle of its own, without an engine. The guest's kernel is a program of ours there.
//!
//! The root is put together as the native provider's is, out of what the host shows; the agent is pid 1 and, in a kernel
//! that is its own, root. Everything of the host's that belongs to it is in one control group and on one leash.

mod bundle;
mod place;
mod runsc;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use belljar_core::guard::Missing;
use belljar_core::provider::BoxFuture;
use belljar_core::request::Workspace;
use belljar_core::{
    Capabilities, Control, IsolationLevel, Language, NetworkPolicy, Plan, Provider, ProviderError,
    ProviderName, Sandbox, Support,
};
use belljar_linux::groups::Groups;
use tempfile::TempDir;

use crate::agent::AgentSandbox;
use crate::background::Background;
use crate::believed::Believed;
use crate::clearing::Clearing;
use crate::pool::{Make, Pool, made};
use crate::program::AgentProgram;
use bundle::Shape;
use place::Raised;
use runsc::Runsc;

/// How long what was found out about `runsc` is believed.
const BELIEVED: Duration = Duration::from_secs(30);

/// How `runsc` is found and used.
#[derive(Clone, Debug, Default)]
pub struct GvisorSettings {
    /// The program; unset: the first on the path.
    pub program: Option<PathBuf>,
    /// How it gets hold of the guest: `systrap`, `kvm` or `ptrace`; unset: the best that is there.
    pub platform: Option<String>,
    /// How many sandboxes wait for each kind of request that came before.
    pub stock: Option<usize>,
}

/// Sandboxes with a kernel of their own.
#[derive(Debug)]
pub struct GvisorProvider {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    settings: GvisorSettings,
    background: Background,
    groups: Groups,
    program: OnceLock<AgentProgram>,
    /// Where `runsc` keeps its state, and bundles are.
    dir: Mutex<Option<Arc<TempDir>>>,
    found: Believed<Result<Arc<Runsc>, Missing>>,
    pool: Pool<Shape, Raised>,
    clearing: Clearing,
}

impl Default for GvisorProvider {
    fn default() -> Self {
        Self::new(GvisorSettings::default())
    }
}

impl GvisorProvider {
    pub fn new(settings: GvisorSettings) -> Self {
        let stock = settings.stock.unwrap_or(1);
        Self {
            shared: Arc::new(Shared {
                settings,
                background: Background::default(),
                groups: Groups::default(),
                program: OnceLock::new(),
                dir: Mutex::new(None),
                found: Believed::new(BELIEVED),
                pool: Pool::new(stock),
                clearing: Clearing::default(),
            }),
        }
    }
}

impl Drop for GvisorProvider {
    fn drop(&mut self) {
        self.shared.pool.close(&self.shared.background);
        self.shared.clearing.finish(&self.shared.background);
    }
}

impl Shared {
    fn runsc(&self) -> Result<Arc<Runsc>, Missing> {
        self.found.get(|_| Runsc::find(&self.settings).map(Arc::new))
    }

    fn program(&self) -> io::Result<&AgentProgram> {
        if let Some(program) = self.program.get() {
            return Ok(program);
        }
        let program = AgentProgram::new()?;
        Ok(self.program.get_or_init(|| program))
    }

    fn dir(&self) -> io::Result<Arc<TempDir>> {
        let mut dir = self.dir.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever tidies up temporary files may have taken it.
        if let Some(dir) = dir.as_ref().filter(|dir| dir.path().is_dir()) {
            return Ok(Arc::clone(dir));
        }
        let made = Arc::new(crate::scratch::directory("gvisor")?);
        Ok(Arc::clone(dir.insert(made)))
    }

    async fn open(self: Arc<Self>, id: String, plan: Arc<Plan>) -> Result<Box<dyn Sandbox>, ProviderError> {
        let runsc = self.runsc().map_err(|missing| ProviderError::Engine {
            engine: "gvisor".to_owned(),
            why: missing.why,
            fix: missing.fix,
        })?;
        if let Workspace::Directory(_) = plan.workspace() {
            return Err(ProviderError::ControlMissing {
                control: Control::PrivateRoot,
                why: "the work directory of a kernel of its own is its own".to_owned(),
                fix: "mount the directory somewhere else, or use the native provider".to_owned(),
            });
        }
        let shape = Shape::new(&plan);
        let (shared, wanted) = (Arc::clone(&self), shape.clone());
        let make: Make<Raised> = Arc::new(move |name| {
            let (shared, runsc, shape) = (Arc::clone(&shared), Arc::clone(&runsc), wanted.clone());
            Box::pin(async move { Raised::raise(&shared, &runsc, &shape, &name).await })
        });
        let (raised, waited) = if shape.can_wait() {
            self.pool.take(&self.background, &shape, &id, make).await?
        } else {
            (made(&self.background, make(id.clone())).await?, false)
        };
        let origin = if waited { "started ahead" } else { "made on demand" };
        let name = ProviderName::Gvisor.word();
        let sandbox = AgentSandbox::open(id, name, plan, raised.into_made(origin)).await?;
        Ok(Box::new(sandbox))
    }
}

impl Provider for GvisorProvider {
    fn name(&self) -> ProviderName {
        ProviderName::Gvisor
    }

    fn presence(&self) -> Result<String, Missing> {
        self.shared.runsc().map(|runsc| runsc.words())
    }

    fn capabilities(&self, languages: &[Language]) -> Capabilities {
        let present = |detail: &str| Support::Present {
            detail: detail.to_owned(),
        };
        let mut controls = self.shared.groups.controls();
        controls.insert(
            Control::PidsCgroup,
            Support::Absent {
                why: "its own kernel counts tasks, the host's sees others".to_owned(),
                fix: "use another provider".to_owned(),
            },
        );
        for control in ESSENTIAL {
            controls.insert(control, present("of its own kernel"));
        }
        for control in [
            Control::FreshUid,
            Control::PrivateProc,
            Control::IpcNamespace,
            Control::UtsNamespace,
            Control::CgroupNamespace,
            Control::UserNamespace,
        ] {
            controls.insert(control, present("looked at in each sandbox"));
        }
        for control in Control::ALL {
            controls.entry(*control).or_insert_with(|| Support::Absent {
                why: "its own kernel has none".to_owned(),
                fix: "use another provider".to_owned(),
            });
        }
        Capabilities {
            provider: ProviderName::Gvisor,
            isolation: IsolationLevel::Container,
            controls,
            essential: ESSENTIAL.into(),
            networks: NetworkPolicy::ALL.iter().copied().collect(),
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

const ESSENTIAL: [Control; 9] = [
    Control::OwnKernel,
    Control::MountNamespace,
    Control::PidNamespace,
    Control::NetworkNamespace,
    Control::PrivateRoot,
    Control::NoCapabilities,
    Control::NoNewPrivileges,
    Control::Seccomp,
    Control::Rlimits,
];
