//! The provider itself: capabilities, and sandboxes out of plans.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use belljar_core::provider::BoxFuture;
use belljar_core::{
    Capabilities, Control, IsolationLevel, Language, NetworkPolicy, Plan, Provider, ProviderError, Sandbox,
    Support,
};

use super::cgroup::{self, Hierarchy, NoHierarchy};
use super::launcher::Launcher;
use super::nursery::Nursery;
use super::rootfs::HostRoot;
use super::sandbox::NativeSandbox;
use super::spec::{self, Machine};
use super::{probe, toolchain};
use crate::wire::{HostIds, RootSpec};

/// Sandboxes out of namespaces on this machine's own kernel.
///
/// Making one is cheap: the machine is looked at when first needed, and the launcher is started
/// with the first sandbox.
#[derive(Debug, Default)]
pub struct NativeProvider {
    shared: Arc<Shared>,
}

/// What all sandboxes of a provider have in common.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    launcher: Mutex<LauncherState>,
    hierarchy: OnceLock<Result<Box<dyn Hierarchy>, NoHierarchy>>,
    controls: OnceLock<BTreeMap<Control, Support>>,
    root: OnceLock<HostRoot>,
    /// Nurseries by what their root shows beyond what every root does.
    nurseries: Mutex<HashMap<Vec<PathBuf>, Arc<Nursery>>>,
    /// Part of the names of this provider's groups.
    tag: OnceLock<String>,
}

/// Where the launcher is in its life.
#[derive(Debug, Default)]
enum LauncherState {
    #[default]
    None,
    Starting(JoinHandle<io::Result<Arc<Launcher>>>),
    Running(Arc<Launcher>),
}

impl Drop for Shared {
    fn drop(&mut self) {
        let state = self.launcher.get_mut().unwrap_or_else(PoisonError::into_inner);
        // One that nobody came to need has to be seen off all the same.
        if let LauncherState::Starting(thread) = std::mem::take(state) {
            drop(thread.join());
        }
    }
}

impl NativeProvider {
    pub fn new() -> Self {
        Self::default()
    }
}

impl Shared {
    /// The running launcher; a new one where there was none or it was lost.
    pub(crate) fn launcher(&self) -> Result<Arc<Launcher>, ProviderError> {
        let mut state = self.launcher.lock().unwrap_or_else(PoisonError::into_inner);
        let started = match std::mem::take(&mut *state) {
            LauncherState::Running(launcher) if !launcher.is_lost() => Ok(launcher),
            LauncherState::Starting(thread) => thread
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("its start broke off"))),
            LauncherState::None | LauncherState::Running(_) => Launcher::start(),
        };
        let launcher = started.map_err(|source| ProviderError::Io {
            operation: "start",
            object: "the launcher".to_owned(),
            source,
        })?;
        if let (LauncherState::None, Ok(hierarchy)) = (&*state, self.hierarchy()) {
            // Where this does not arrive, the launcher is lost, which is noticed soon enough.
            let _ = launcher.tell_groups(&hierarchy.subtrees(), self.tag());
        }
        *state = LauncherState::Running(Arc::clone(&launcher));
        Ok(launcher)
    }

    /// The nursery for the sandbox of `plan`: one that others share, unless it shows what is private.
    pub(crate) fn nursery(&self, plan: &Plan) -> Result<Arc<Nursery>, ProviderError> {
        let spec = || spec::root(plan, self.root().clone(), self.machine());
        if spec::has_private_root(plan) {
            return self.new_nursery(spec());
        }
        let mut nurseries = self.nurseries.lock().unwrap_or_else(PoisonError::into_inner);
        match nurseries.get(plan.shows()) {
            Some(nursery) if !nursery.is_lost() => Ok(Arc::clone(nursery)),
            _ => {
                let nursery = self.new_nursery(spec())?;
                nurseries.insert(plan.shows().to_vec(), Arc::clone(&nursery));
                Ok(nursery)
            }
        }
    }

    pub(crate) fn new_nursery(&self, spec: RootSpec) -> Result<Arc<Nursery>, ProviderError> {
        Nursery::start(self.launcher()?, spec).map_err(|source| ProviderError::Io {
            operation: "ask",
            object: "the launcher".to_owned(),
            source,
        })
    }

    /// What the names of this provider's groups have in common.
    pub(crate) fn tag(&self) -> &str {
        self.tag.get_or_init(cgroup::fresh_tag)
    }

    /// Starts the launcher in the background.
    fn warm_up(&self) {
        let mut state = self.launcher.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, LauncherState::None) {
            let start = std::thread::Builder::new()
                .name("belljar-start".to_owned())
                .spawn(Launcher::start);
            // Where no thread can be had, the first sandbox starts it.
            if let Ok(thread) = start {
                *state = LauncherState::Starting(thread);
            }
        }
    }

    pub(crate) fn hierarchy(&self) -> Result<&dyn Hierarchy, &NoHierarchy> {
        let found = self.hierarchy.get_or_init(|| {
            let found = cgroup::find();
            if let Ok(hierarchy) = &found {
                cgroup::sweep(&**hierarchy);
            }
            found
        });
        found.as_ref().map(|hierarchy| &**hierarchy)
    }

    pub(crate) fn controls(&self) -> &BTreeMap<Control, Support> {
        self.controls.get_or_init(|| {
            let cgroup = self
                .hierarchy()
                .map(|hierarchy| (hierarchy.version(), hierarchy.bounds()));
            probe::controls(cgroup)
        })
    }

    pub(crate) fn has(&self, control: Control) -> bool {
        self.controls().get(&control).is_some_and(Support::is_present)
    }

    pub(crate) fn root(&self) -> &HostRoot {
        self.root.get_or_init(HostRoot::look)
    }

    pub(crate) fn machine(&self) -> Machine {
        let host_ids = if self.has(Control::FreshUid) {
            HostIds::Fresh
        } else {
            HostIds::Own {
                uid: rustix::process::geteuid().as_raw(),
                gid: rustix::process::getegid().as_raw(),
            }
        };
        Machine {
            host_ids,
            memory_accounted: self.has(Control::MemoryCgroup),
            count_processes: self.has(Control::ProcessCount),
        }
    }

    fn capabilities(&self, languages: &[Language], with_versions: bool) -> Capabilities {
        Capabilities {
            provider: "native",
            isolation: IsolationLevel::Process,
            controls: self.controls().clone(),
            networks: [NetworkPolicy::None, NetworkPolicy::Local].into(),
            languages: languages
                .iter()
                .filter_map(|language| Some((*language, toolchain::find(*language, with_versions)?)))
                .collect(),
        }
    }
}

impl Provider for NativeProvider {
    fn capabilities(&self, languages: &[Language]) -> Capabilities {
        self.shared.capabilities(languages, false)
    }

    fn warm_up(&self) {
        self.shared.warm_up();
    }

    fn examine(&self) -> Capabilities {
        let mut found = self.shared.capabilities(Language::ALL, true);
        super::trial::apply(&self.shared, &mut found.controls);
        found
    }

    fn open(&self, id: String, plan: Arc<Plan>) -> BoxFuture<'_, Result<Box<dyn Sandbox>, ProviderError>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let sandbox = NativeSandbox::open(shared, id, plan).await?;
            Ok(Box::new(sandbox) as Box<dyn Sandbox>)
        })
    }
}
