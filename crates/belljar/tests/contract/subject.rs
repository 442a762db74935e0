//! What the contract is held against: a provider, and how it is asked for.

use std::path::Path;
use std::sync::Arc;

use belljar::environment::{Cancel, Environments, ImportLimits, Quiet, import};
use belljar::{Engine, EnvironmentName, ProviderName, Request, Session, SessionBuilder};
use belljar_providers::{DockerProvider, DockerSettings};

/// What a check relies on, beyond running programs and telling the truth about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// Every provider keeps it.
    Always,
    /// It takes a wall.
    Wall,
    /// Memory and tasks are bounded by the kernel for the sandbox as a whole.
    Bounds,
    /// Processor time is counted by the kernel for the sandbox as a whole.
    Counts,
    /// The work directory has a size.
    Disk,
    /// Host directories can be shown inside.
    Mounts,
    /// Hosts can be named.
    Hosts,
}

/// One provider, ready to be used.
#[derive(Debug)]
pub(crate) struct Subject {
    pub label: &'static str,
    pub engine: Engine,
    pub provider: ProviderName,
    pub image: Option<String>,
    pub environment: Option<EnvironmentName>,
    pub promised: &'static [Promise],
}

const ALL: &[Promise] = &[
    Promise::Always,
    Promise::Wall,
    Promise::Bounds,
    Promise::Counts,
    Promise::Disk,
    Promise::Mounts,
    Promise::Hosts,
];

const WITHOUT_MOUNTS: &[Promise] = &[Promise::Always, Promise::Wall, Promise::Bounds, Promise::Disk];

impl Subject {
    pub(crate) fn native() -> Self {
        Self {
            label: "native",
            engine: belljar::native_engine(),
            provider: ProviderName::Native,
            image: None,
            environment: None,
            promised: ALL,
        }
    }

    pub(crate) fn gvisor() -> Self {
        Self {
            label: "gvisor",
            engine: belljar::native_engine(),
            provider: ProviderName::Gvisor,
            image: None,
            environment: None,
            promised: ALL,
        }
    }

    pub(crate) fn venv() -> Self {
        Self {
            label: "venv",
            engine: belljar::native_engine(),
            provider: ProviderName::Venv,
            image: None,
            environment: None,
            promised: &[Promise::Always, Promise::Bounds, Promise::Counts],
        }
    }

    /// An engine that answers on this socket.
    pub(crate) fn docker(label: &'static str, socket: &Path, runtime: Option<&str>) -> Self {
        let settings = DockerSettings {
            host: Some(format!("unix://{}", socket.display())),
            runtime: runtime.map(str::to_owned),
            ..DockerSettings::default()
        };
        Self {
            label,
            engine: Engine::new(Arc::new(DockerProvider::new(settings))),
            provider: ProviderName::Docker,
            image: Some(super::engines::IMAGE.to_owned()),
            environment: None,
            // What is mounted is looked at from inside, and such a kernel has names of its own for files and networks.
            promised: if runtime.is_some() { WITHOUT_MOUNTS } else { ALL },
        }
    }

    /// Without control groups: an agent counts what it is told of.
    pub(crate) fn without_groups(self) -> Self {
        Self {
            promised: &[
                Promise::Always,
                Promise::Wall,
                Promise::Bounds,
                Promise::Disk,
                Promise::Mounts,
                Promise::Hosts,
            ],
            ..self
        }
    }

    /// The same in an environment that is the root file system in this archive, kept below `base`.
    pub(crate) fn rooted(self, label: &'static str, archive: &Path, base: &Path) -> Self {
        let store = Environments::below(base);
        let name = EnvironmentName::new("rooted").expect("a name");
        if store.describe(&name).is_err() {
            let archive = std::fs::File::open(archive).expect("an archive");
            import(
                &store,
                &name,
                true,
                archive,
                ImportLimits::default(),
                &mut Quiet,
                &Cancel::default(),
            )
            .expect("an import");
        }
        Self {
            label,
            engine: self.engine.with_environments(store),
            image: None,
            environment: Some(name),
            ..self
        }
    }

    /// Whether this machine has it; said where it has not.
    pub(crate) fn is_present(&self) -> bool {
        let presence = self
            .engine
            .provider(self.provider)
            .map(|provider| provider.presence());
        let present = matches!(presence, Some(Ok(_)));
        if !present {
            super::show(&format!("not tested here: {}: {presence:?}", self.label));
        }
        present
    }

    pub(crate) fn promises(&self, promise: Promise) -> bool {
        self.promised.contains(&promise)
    }

    /// A request as this provider is to be asked.
    pub(crate) fn asked(&self, mut request: Request) -> Request {
        request.provider = Some(self.provider);
        request.image.clone_from(&self.image);
        request.environment.clone_from(&self.environment);
        request.approved = self.provider == ProviderName::Venv;
        request
    }

    pub(crate) fn session(&self) -> SessionBuilder {
        let builder = Session::builder().engine(&self.engine).provider(self.provider);
        let builder = match &self.image {
            Some(image) => builder.image(image),
            None => builder,
        };
        let builder = match &self.environment {
            Some(name) => builder.environment(name.as_str()),
            None => builder,
        };
        if self.provider == ProviderName::Venv {
            builder.approve()
        } else {
            builder
        }
    }
}
