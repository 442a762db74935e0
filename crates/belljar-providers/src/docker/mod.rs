//! Containers of a Docker engine, or of one that speaks its language as Podman does.
//!
//! A sandbox is a container of its own whose first process is the agent. What the agent and the runners need is put into an image
//! made of the one that was asked for, once; so no path of the host is shown, and the engine may be on another machine.

mod closure;
mod connect;
mod container;
mod image;
mod import;
mod owner;
mod place;
mod problem;
mod trust;

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use belljar_core::guard::Missing;
use belljar_core::provider::BoxFuture;
use belljar_core::request::Workspace;
use belljar_core::{
    Capabilities, Control, Footing, IsolationLevel, Language, NetworkPolicy, Plan, Provider, ProviderError,
    ProviderName, Sandbox, Support,
};

use crate::agent::AgentSandbox;
use crate::background::Background;
use crate::believed::Believed;
use crate::clearing::Clearing;
use crate::pool::{Make, Pool, made};
use connect::{Connection, connect};
use container::Shape;
use image::Images;
use place::Raised;
use trust::TrustFiles;

/// How long what was found out about an engine is believed.
const BELIEVED: Duration = Duration::from_secs(5);

/// What is told while something takes long.
pub type Progress = Arc<dyn Fn(&str) + Send + Sync>;

/// How the engine is reached, and what is asked of it.
#[derive(Clone, Default)]
pub struct DockerSettings {
    /// Where it listens, as `DOCKER_HOST` has it; unset: that variable, else the usual sockets of Docker and Podman.
    pub host: Option<String>,
    /// Another runtime than its usual one, such as `runsc`.
    pub runtime: Option<String>,
    /// The image of a request that names none.
    pub image: Option<String>,
    /// How many containers wait for each kind of request that came before.
    pub stock: Option<usize>,
    /// Is told of what takes long.
    pub progress: Option<Progress>,
}

impl fmt::Debug for DockerSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DockerSettings")
            .field("host", &self.host)
            .field("runtime", &self.runtime)
            .field("image", &self.image)
            .finish_non_exhaustive()
    }
}

/// Document 004's.
const USUAL_IMAGE: &str = "python:3.11-slim";

/// Sandboxes that are containers.
#[derive(Debug)]
pub struct DockerProvider {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    settings: DockerSettings,
    background: Background,
    connection: Believed<Result<Arc<Connection>, Missing>>,
    images: Images,
    trust: TrustFiles,
    pool: Pool<Shape, Raised>,
    clearing: Clearing,
}

impl Default for DockerProvider {
    fn default() -> Self {
        Self::new(DockerSettings::default())
    }
}

impl DockerProvider {
    pub fn new(settings: DockerSettings) -> Self {
        let stock = settings.stock.unwrap_or(1);
        Self {
            shared: Arc::new(Shared {
                settings,
                background: Background::default(),
                connection: Believed::new(BELIEVED),
                images: Images::default(),
                trust: TrustFiles::default(),
                pool: Pool::new(stock),
                clearing: Clearing::default(),
            }),
        }
    }
}

impl DockerProvider {
    /// The root file system of an image, as a tar; what is not there is fetched. Blocks.
    pub fn export(&self, image: &str) -> Result<impl Read + use<>, ProviderError> {
        let connection = self.shared.reached()?;
        let (shared, name) = (Arc::clone(&self.shared), image.to_owned());
        let background = self.shared.background.clone();
        let exported = background.wait(async move { import::export(&shared, connection, &name).await });
        exported.map_err(|source| ProviderError::Io {
            operation: "export",
            object: "an image".to_owned(),
            source,
        })?
    }
}

impl Drop for DockerProvider {
    fn drop(&mut self) {
        // Sandboxes in use may outlive the provider; those that wait for use do not.
        self.shared.pool.close(&self.shared.background);
        self.shared.clearing.finish(&self.shared.background);
    }
}

impl Shared {
    /// The engine, as it answered a moment ago. Blocks for as long as it takes to ask.
    fn connection(&self) -> Result<Arc<Connection>, Missing> {
        self.connection.get(|before| {
            let settings = self.settings.clone();
            let found = self.background.wait(async move {
                match before {
                    // The same connection serves as long as it answers.
                    Some(Ok(connection)) if connection.answers().await => Ok(connection),
                    _ => connect(&settings).await.map(Arc::new),
                }
            });
            found.unwrap_or_else(|error| {
                Err(Missing {
                    why: error.to_string(),
                    fix: String::new(),
                })
            })
        })
    }

    fn tell(&self, text: &str) {
        if let Some(progress) = &self.settings.progress {
            progress(text);
        }
    }

    fn image(&self, named: Option<&str>) -> String {
        named
            .or(self.settings.image.as_deref())
            .unwrap_or(USUAL_IMAGE)
            .to_owned()
    }

    /// The engine, or why a sandbox cannot be made without it.
    fn reached(&self) -> Result<Arc<Connection>, ProviderError> {
        self.connection().map_err(|missing| ProviderError::Engine {
            engine: "docker".to_owned(),
            why: missing.why,
            fix: missing.fix,
        })
    }

    async fn open(self: Arc<Self>, id: String, plan: Arc<Plan>) -> Result<Box<dyn Sandbox>, ProviderError> {
        let connection = {
            let shared = Arc::clone(&self);
            let reached = tokio::task::spawn_blocking(move || shared.reached()).await;
            reached.map_err(|_| ProviderError::Protocol("asking the engine broke off".to_owned()))??
        };
        let image = match (plan.root(), plan.environment()) {
            (Some(root), Some(environment)) => {
                let (shared, engine) = (Arc::clone(&self), Arc::clone(&connection));
                let (root, digest) = (root.to_owned(), environment.digest.clone());
                let importing = async move { import::of_root(&shared, &engine, root, &digest).await };
                made(&self.background, Box::pin(importing)).await?
            }
            (None, Some(environment)) => {
                let (shared, engine) = (Arc::clone(&self), Arc::clone(&connection));
                let (shows, digest) = (plan.shows().to_vec(), environment.digest.clone());
                import::check_places(environment.name.as_str(), &shows)?;
                let importing = async move {
                    shared
                        .images
                        .of_environment(&shared, &engine, shows, &digest)
                        .await
                };
                made(&self.background, Box::pin(importing)).await?
            }
            _ => self.image(plan.image()),
        };
        let (raised, waited) = self.take(&connection, &image, &id, &plan).await?;
        let origin = if waited {
            "container started ahead"
        } else {
            "made on demand"
        };
        let name = ProviderName::Docker.word();
        let sandbox = AgentSandbox::open(id, name, plan, raised.into_made(origin)).await?;
        Ok(Box::new(sandbox))
    }

    /// A container for `plan`, and whether it waited.
    async fn take(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        image: &str,
        id: &str,
        plan: &Plan,
    ) -> Result<(Raised, bool), ProviderError> {
        if let Workspace::Directory(_) = plan.workspace() {
            return Err(ProviderError::ControlMissing {
                control: Control::PrivateRoot,
                why: "a container's work directory is its own".to_owned(),
                fix: "mount the directory somewhere else, or use the native provider".to_owned(),
            });
        }
        let runtime = self.settings.runtime.as_deref();
        if !plan.mounts().is_empty() && runtime.is_some_and(container::has_own_kernel) {
            return Err(ProviderError::ControlMissing {
                control: Control::PrivateRoot,
                why: "what an engine mounts cannot be looked at from a kernel of its own".to_owned(),
                fix: "use the gvisor provider for mounts".to_owned(),
            });
        }
        let (shared, engine, asked) = (Arc::clone(self), Arc::clone(connection), image.to_owned());
        let fetch = plan.may_fetch_image();
        let acquainting = async move { shared.images.acquaint(&shared, &engine, &asked, fetch).await };
        let image = made(&self.background, Box::pin(acquainting)).await?;
        let trust = plan.trust().map(|content| self.trust.with(content)).transpose();
        let trust = trust.map_err(|source| ProviderError::Io {
            operation: "write",
            object: "whom guests trust".to_owned(),
            source,
        })?;
        let shape = Shape::new(&image.derived, plan, self.settings.runtime.as_deref(), trust);
        let (shared, engine, wanted) = (Arc::clone(self), Arc::clone(connection), shape.clone());
        let make: Make<Raised> = Arc::new(move |name| {
            let (shared, engine, shape) = (Arc::clone(&shared), Arc::clone(&engine), wanted.clone());
            Box::pin(async move { Raised::raise(&shared, &engine, &shape, &name).await })
        });
        if shape.can_wait() {
            return self.pool.take(&self.background, &shape, id, make).await;
        }
        Ok((made(&self.background, make(id.to_owned())).await?, false))
    }
}

impl Provider for DockerProvider {
    fn name(&self) -> ProviderName {
        ProviderName::Docker
    }

    fn presence(&self) -> Result<String, Missing> {
        self.shared
            .connection()
            .map(|connection| connection.version.clone())
    }

    fn capabilities(&self, languages: &[Language]) -> Capabilities {
        self.capabilities_of(Footing::Usual, languages)
            .unwrap_or_else(|_| capabilities(BTreeMap::new()))
    }

    fn capabilities_of(
        &self,
        footing: Footing<'_>,
        languages: &[Language],
    ) -> Result<Capabilities, ProviderError> {
        if languages.is_empty() {
            return Ok(capabilities(BTreeMap::new()));
        }
        let (image, fetch) = match footing {
            Footing::Usual => (None, true),
            Footing::Image { name, fetch } => (Some(name), fetch),
            Footing::Environment(_) => return Ok(capabilities(closure::languages(languages))),
        };
        let connection = self.shared.reached()?;
        let shared = Arc::clone(&self.shared);
        let image = self.shared.image(image);
        let found = self
            .shared
            .background
            .wait(async move { shared.images.acquaint(&shared, &connection, &image, fetch).await });
        let found = found.map_err(|source| ProviderError::Io {
            operation: "look into",
            object: "an image".to_owned(),
            source,
        })??;
        let toolchains = found.toolchains.iter();
        let wanted = toolchains
            .filter(|(language, _)| languages.contains(language))
            .map(|(language, toolchain)| (*language, toolchain.clone()));
        Ok(capabilities(wanted.collect()))
    }

    fn examine(&self) -> Capabilities {
        // Looking into an image could mean fetching it.
        capabilities(BTreeMap::new())
    }

    fn open(&self, id: String, plan: Arc<Plan>) -> BoxFuture<'_, Result<Box<dyn Sandbox>, ProviderError>> {
        Box::pin(Arc::clone(&self.shared).open(id, plan))
    }
}

/// What every engine can be asked for. What it then really does is seen from inside of each container.
fn capabilities(languages: BTreeMap<Language, belljar_core::Toolchain>) -> Capabilities {
    let present = |detail: &str| Support::Present {
        detail: detail.to_owned(),
    };
    let mut controls: BTreeMap<Control, Support> = ESSENTIAL
        .map(|control| {
            (
                control,
                present("asked of the engine, looked at in each container"),
            )
        })
        .into();
    for control in [
        Control::CgroupNamespace,
        Control::FreshUid,
        Control::PrivateProc,
        Control::Landlock,
        Control::MemoryCgroup,
        Control::PidsCgroup,
        Control::CpuCgroup,
        Control::UserNamespace,
        Control::OwnKernel,
    ] {
        controls.insert(
            control,
            present("if the engine has it; looked at in each container"),
        );
    }
    controls.insert(
        Control::ProcessCount,
        Support::Absent {
            why: "a container counts tasks, threads among them".to_owned(),
            fix: "use the native provider".to_owned(),
        },
    );
    Capabilities {
        provider: ProviderName::Docker,
        isolation: IsolationLevel::Container,
        controls,
        essential: ESSENTIAL.into(),
        networks: NetworkPolicy::ALL.iter().copied().collect(),
        languages,
        environments: BTreeMap::new(),
    }
}

/// R33: without these a container is no wall.
const ESSENTIAL: [Control; 10] = [
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
