//! The provider itself: capabilities, and sandboxes out of plans.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use belljar_core::provider::BoxFuture;
use belljar_core::{
    Capabilities, Control, IsolationLevel, Language, NetworkPolicy, Plan, Provider, ProviderError, Sandbox, Support,
};

use super::cgroup::{self, Hierarchy, NoHierarchy};
use super::launcher::Launcher;
use super::rootfs::HostRoot;
use super::sandbox::NativeSandbox;
use super::spec::Machine;
use super::{probe, toolchain};
use crate::wire::HostIds;

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
    launcher: Mutex<Option<Arc<Launcher>>>,
    hierarchy: OnceLock<Result<Box<dyn Hierarchy>, NoHierarchy>>,
    controls: OnceLock<BTreeMap<Control, Support>>,
    root: OnceLock<HostRoot>,
}

impl NativeProvider {
    pub fn new() -> Self {
        Self::default()
    }
}

impl Shared {
    /// The running launcher; a new one where there was none or it was lost.
    pub(crate) fn launcher(&self) -> Result<Arc<Launcher>, ProviderError> {
        let mut current = self.launcher.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(launcher) = current.as_ref().filter(|launcher| !launcher.is_lost()) {
            return Ok(Arc::clone(launcher));
        }
        let launcher = Launcher::start().map_err(|source| ProviderError::Io {
            operation: "start",
            object: "the launcher".to_owned(),
            source,
        })?;
        *current = Some(Arc::clone(&launcher));
        Ok(launcher)
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
            let cgroup = self.hierarchy().map(|hierarchy| (hierarchy.version(), hierarchy.bounds()));
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
        let host_ids = if probe::is_root() {
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
