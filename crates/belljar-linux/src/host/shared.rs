//! What all sandboxes of a provider have in common: the launcher, nurseries, what was found of the machine.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use belljar_core::{
    Capabilities, Control, IsolationLevel, Language, NetworkPolicy, Plan, ProviderError, ProviderName,
    Support, Toolchain, Weight,
};

use super::bury::Undertaker;
use super::cgroup::{self, Hierarchy, NoHierarchy};
use super::launcher::Launcher;
use super::nursery::Nursery;
use super::pool::{Pool, PoolSettings};
use super::rootfs::HostRoot;
use super::shown::{self, Shown};
use super::spec::{self, Machine};
use super::warm::Breed;
use super::zygote::Zygote;
use super::{probe, toolchain};
use crate::wire::{HostIds, RootSpec};

/// How long a toolchain that was found is taken to be there.
const FOUND: Duration = Duration::from_secs(2);

/// What all sandboxes of a provider have in common.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    launcher: Mutex<LauncherState>,
    hierarchy: OnceLock<Result<Box<dyn Hierarchy>, NoHierarchy>>,
    controls: OnceLock<BTreeMap<Control, Support>>,
    root: OnceLock<HostRoot>,
    /// Nurseries by what their root shows beyond what every root does.
    nurseries: Mutex<HashMap<Vec<Shown>, Arc<Nursery>>>,
    /// Part of the names of this provider's groups.
    tag: OnceLock<String>,
    pub(super) zygotes: Mutex<HashMap<Breed, Arc<Zygote>>>,
    pool: Arc<Pool>,
    settings: PoolSettings,
    toolchains: Mutex<HashMap<Language, (Instant, Option<Toolchain>)>>,
    pub(super) undertaker: Undertaker,
    /// Whether sandboxes have a `/proc` here, once one was seen.
    has_proc: OnceLock<bool>,
    /// Whether sandboxes have had different weights.
    weighs: AtomicBool,
}

/// Where the launcher is in its life.
#[derive(Debug, Default)]
enum LauncherState {
    #[default]
    None,
    Starting(JoinHandle<io::Result<Arc<Launcher>>>),
    Running(Arc<Launcher>),
}

/// The controls without which this wall is none.
const ESSENTIAL: [Control; 11] = [
    Control::UserNamespace,
    Control::MountNamespace,
    Control::PidNamespace,
    Control::NetworkNamespace,
    Control::IpcNamespace,
    Control::UtsNamespace,
    Control::PrivateRoot,
    Control::NoCapabilities,
    Control::NoNewPrivileges,
    Control::Seccomp,
    Control::Rlimits,
];

impl Drop for Shared {
    fn drop(&mut self) {
        let state = self.launcher.get_mut().unwrap_or_else(PoisonError::into_inner);
        // One that nobody came to need has to be seen off all the same.
        if let LauncherState::Starting(thread) = std::mem::take(state) {
            drop(thread.join());
        }
    }
}

impl Shared {
    pub(crate) fn new(settings: PoolSettings) -> Self {
        let mut shared = Self::default();
        shared.settings = settings;
        shared
    }

    /// The running launcher; a new one where there was none or it was lost.
    pub(crate) fn launcher(&self) -> Result<Arc<Launcher>, ProviderError> {
        let mut state = self.launcher.lock().unwrap_or_else(PoisonError::into_inner);
        if let LauncherState::Running(launcher) = &*state
            && !launcher.is_lost()
        {
            return Ok(Arc::clone(launcher));
        }
        let started = match std::mem::take(&mut *state) {
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
        if let Ok(hierarchy) = self.hierarchy() {
            // Where this does not arrive, the launcher is lost, which is noticed soon enough.
            let _ = launcher.tell_groups(&hierarchy.subtrees(), self.tag());
        }
        *state = LauncherState::Running(Arc::clone(&launcher));
        Ok(launcher)
    }

    /// The nursery for the sandbox of `plan`: one that others share, unless it shows what is private.
    pub(crate) fn nursery(&self, plan: &Plan) -> Result<Arc<Nursery>, ProviderError> {
        if spec::has_private_root(plan) {
            let root = self.root_of(plan.root());
            return self.new_nursery(spec::root(plan, root, self.machine()));
        }
        self.nursery_showing(&Shown::of(plan))
    }

    /// The nursery whose root shows these on top of what every root does.
    pub(crate) fn nursery_showing(&self, shows: &[Shown]) -> Result<Arc<Nursery>, ProviderError> {
        let mut nurseries = self.nurseries.lock().unwrap_or_else(PoisonError::into_inner);
        match nurseries.get(shows) {
            Some(nursery) if !nursery.is_lost() => Ok(Arc::clone(nursery)),
            _ => {
                let own = shows.iter().find(|shown| shown.is_root()).map(Shown::path);
                let parts = shows.iter().filter(|shown| !shown.is_root());
                let paths: Vec<_> = parts.map(|shown| shown.path().to_owned()).collect();
                let spec = spec::shared_root(&paths, self.root_of(own), self.machine());
                let nursery = self.new_nursery(spec)?;
                nurseries.retain(|other, _| !shown::is_outdated(other, shows));
                nurseries.insert(shows.to_vec(), Arc::clone(&nursery));
                Ok(nursery)
            }
        }
    }

    pub(crate) const fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    pub(crate) const fn pool_settings(&self) -> &PoolSettings {
        &self.settings
    }

    /// Whether interpreters may wait: they are started before it is known what a sandbox will have, so
    /// one must have been seen.
    pub(crate) fn is_warm(&self) -> bool {
        self.settings.warm && self.has_proc.get().is_some()
    }

    pub(crate) fn saw_proc(&self, there: bool) {
        let _ = self.has_proc.set(there);
    }

    /// From the first sandbox on that weighs less than another, each is made so that it can be weighed.
    pub(crate) fn saw_weight(&self, weight: Weight) {
        if weight != Weight::FULL {
            self.weighs.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn weighs(&self) -> bool {
        self.weighs.load(Ordering::Relaxed)
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
    pub(crate) fn warm_up(&self) {
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

    /// The root that stands there on the host, or what the host itself shows.
    pub(crate) fn root_of(&self, own: Option<&Path>) -> HostRoot {
        own.map_or_else(|| self.root().clone(), HostRoot::of)
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
            count_processes: self.has(Control::ProcessCount) && *self.has_proc.get().unwrap_or(&true),
        }
    }

    /// What runs a language here. Looking takes longer than many a run, so what was found a moment ago will
    /// do.
    fn toolchain(&self, language: Language, with_version: bool) -> Option<Toolchain> {
        if with_version {
            return toolchain::find(language, true);
        }
        let mut found = self.toolchains.lock().unwrap_or_else(PoisonError::into_inner);
        match found.get(&language) {
            Some((when, toolchain)) if when.elapsed() < FOUND => toolchain.clone(),
            _ => {
                let toolchain = toolchain::find(language, false);
                found.insert(language, (Instant::now(), toolchain.clone()));
                toolchain
            }
        }
    }

    pub(crate) fn capabilities(&self, languages: &[Language], with_versions: bool) -> Capabilities {
        Capabilities {
            provider: ProviderName::Native,
            isolation: IsolationLevel::Process,
            controls: self.controls().clone(),
            essential: ESSENTIAL.into(),
            networks: [
                NetworkPolicy::None,
                NetworkPolicy::Local,
                NetworkPolicy::Restricted,
                NetworkPolicy::Full,
            ]
            .into(),
            languages: languages
                .iter()
                .filter_map(|language| Some((*language, self.toolchain(*language, with_versions)?)))
                .collect(),
            environments: BTreeMap::new(),
        }
    }
}
