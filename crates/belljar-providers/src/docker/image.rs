//! Images: having the one that was asked for, one made of it with the agent inside, and knowing what it can run.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use belljar_core::egress::RESOLV_CONF;
use belljar_core::language::{Recipe, TABLE};
use belljar_core::provider::AGENT_IMAGE;
use belljar_core::{Language, Policy, ProviderError, Toolchain};
use belljar_linux::agent::{PROGRAM, runner_files};
use bollard::models::{ContainerConfig, ContainerCreateBody};
use bollard::query_parameters::{
    CommitContainerOptions, CreateContainerOptions, CreateImageOptions, UploadToContainerOptions,
};
use futures_util::StreamExt;
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;

use super::connect::Connection;
use super::container::Shape;
use super::place::Raised;
use super::problem;
use super::{Shared, import, owner};
use crate::agent::Line;
use crate::pool::{Waiting, fresh_name};
use crate::program::AGENT;

/// Where programs are looked for in an image that does not say.
const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How long an image may take to come.
const FETCHING: Duration = Duration::from_secs(1800);
/// The most names that are remembered.
const MOST_KNOWN: usize = 256;
/// The most directories of an image in which programs are looked for.
const MOST_DIRS: usize = 32;
/// How often somebody is told how far it is.
const TOLD_EVERY: Duration = Duration::from_secs(2);

/// An image that can be used.
#[derive(Debug)]
pub(super) struct Image {
    /// The one with the agent inside.
    pub derived: String,
    pub toolchains: BTreeMap<Language, Toolchain>,
}

/// Those that were used before, by the name that was asked for. Whoever waits for one does not hold up others.
#[derive(Debug, Default)]
pub(super) struct Images {
    known: std::sync::Mutex<HashMap<String, Arc<Mutex<Option<Known>>>>>,
    /// Names of those made of environments, by their digest.
    pub(super) environments: Mutex<HashMap<String, String>>,
}

/// The id that a name meant, and what it was.
#[derive(Debug)]
struct Known {
    id: String,
    image: Arc<Image>,
}

impl Images {
    /// The image of that name, made ready where it was not, and fetched where it is not there and may be.
    pub(super) async fn acquaint(
        &self,
        shared: &Arc<Shared>,
        connection: &Arc<Connection>,
        name: &str,
        fetch: bool,
    ) -> Result<Arc<Image>, ProviderError> {
        let known = {
            let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            if all.len() >= MOST_KNOWN {
                all.clear();
            }
            Arc::clone(all.entry(name.to_owned()).or_default())
        };
        let mut known = known.lock().await;
        let base = base(shared, connection, name, fetch).await?;
        if let Some(known) = known.as_ref().filter(|known| known.id == base.id) {
            return Ok(Arc::clone(&known.image));
        }
        let derived = if base.has_volumes {
            let flat = import::flatten(shared, connection, name, &base.id).await?;
            derive(connection, &flat, &base.id).await?
        } else {
            derive(connection, name, &base.id).await?
        };
        let toolchains = look_into(shared, connection, name, &derived, &base.path).await?;
        let image = Arc::new(Image { derived, toolchains });
        *known = Some(Known {
            id: base.id,
            image: Arc::clone(&image),
        });
        Ok(image)
    }
}

pub(super) struct Base {
    id: String,
    path: String,
    /// Whether some of its directories are to be written to elsewhere.
    has_volumes: bool,
}

/// What is known of the image of that name, fetched where it was not there.
pub(super) async fn base(
    shared: &Shared,
    connection: &Connection,
    name: &str,
    fetch: bool,
) -> Result<Base, ProviderError> {
    let docker = &connection.docker;
    let found = match docker.inspect_image(name).await {
        Err(error) if problem::is_not_found(&error) && !fetch => {
            return Err(ProviderError::Image {
                image: name.to_owned(),
                why: "it is not there, and the policy does not list it, so it is not fetched".to_owned(),
                fix: format!(
                    "add \"{name}\" to allowed_images in the policy, or have the engine fetch it: docker pull {name}"
                ),
            });
        }
        Err(error) if problem::is_not_found(&error) => {
            let pulling = tokio::time::timeout(FETCHING, pull(shared, connection, name)).await;
            pulling.map_err(|_| unavailable(name, "it took too long"))??;
            docker.inspect_image(name).await
        }
        found => found,
    };
    let found = found.map_err(|error| problem::engine("look at an image", &error))?;
    let config = found.config.unwrap_or_default();
    let variables = config.env.unwrap_or_default();
    let path = variables
        .iter()
        .find_map(|variable| variable.strip_prefix("PATH="));
    Ok(Base {
        id: found.id.unwrap_or_default(),
        path: path.unwrap_or(USUAL_PATH).to_owned(),
        has_volumes: config.volumes.is_some_and(|volumes| !volumes.is_empty()),
    })
}

/// Fetches an image, and tells how far it is.
async fn pull(shared: &Shared, connection: &Connection, name: &str) -> Result<(), ProviderError> {
    shared.tell(&format!("fetching the image {name}"));
    let mut fetched = Fetched::default();
    // Without a tag an engine would fetch all there are.
    let last = name.rsplit('/').next().unwrap_or(name);
    let tag = (!last.contains(':') && !name.contains('@')).then(|| "latest".to_owned());
    let options = CreateImageOptions {
        from_image: Some(name.to_owned()),
        tag,
        ..CreateImageOptions::default()
    };
    let mut steps = connection.docker.create_image(Some(options), None, None);
    while let Some(step) = steps.next().await {
        let step = step.map_err(|error| unavailable(name, &problem::text(&error)))?;
        if let Some(error) = step.error_detail.and_then(|detail| detail.message) {
            return Err(unavailable(name, &error));
        }
        if let (Some(layer), Some(progress)) = (step.id, step.progress_detail)
            && let Some(line) = fetched.hear(layer, progress.current, progress.total)
        {
            shared.tell(&format!("{name}: {line}"));
        }
    }
    shared.tell(&format!("{name} is there"));
    Ok(())
}

/// How much has come of an image, layer by layer.
#[derive(Debug, Default)]
struct Fetched {
    layers: HashMap<String, (u64, u64)>,
    told: Option<Instant>,
}

impl Fetched {
    /// Takes in what an engine says, and returns what a person is told; not of every little step.
    fn hear(&mut self, layer: String, current: Option<i64>, total: Option<i64>) -> Option<String> {
        let number = |value: Option<i64>| u64::try_from(value?).ok();
        let (current, total) = (number(current)?, number(total)?);
        // Unpacking counts anew what has come already.
        let known = self.layers.entry(layer).or_default();
        *known = (known.0.max(current).min(total), total);
        if self.told.is_some_and(|told| told.elapsed() < TOLD_EVERY) {
            return None;
        }
        self.told = Some(Instant::now());
        let sum = |part: fn(&(u64, u64)) -> u64| self.layers.values().map(part).sum::<u64>() as f64 / 1e6;
        Some(format!(
            "{:.1} of {:.1} MB",
            sum(|layer| layer.0),
            sum(|layer| layer.1)
        ))
    }
}

fn unavailable(name: &str, why: &str) -> ProviderError {
    ProviderError::Image {
        image: name.to_owned(),
        why: format!("it is not there and cannot be fetched: {why}"),
        fix: format!(
            "check its name, or put it there without a registry: `docker load`, `docker import` or `docker build -t {name}`"
        ),
    }
}

/// The image with the agent and the runners in it; made where it is not there.
async fn derive(connection: &Connection, name: &str, base: &str) -> Result<String, ProviderError> {
    let docker = &connection.docker;
    let tag = tag(base);
    let derived = format!("{AGENT_IMAGE}:{tag}");
    if docker.inspect_image(&derived).await.is_ok() {
        return Ok(derived);
    }
    let failed = |error| problem::engine("make an image", &error);
    let labels = HashMap::from([(owner::OWNER.to_owned(), owner::own().to_owned())]);
    let body = ContainerCreateBody {
        image: Some(name.to_owned()),
        entrypoint: Some(vec![AGENT.to_owned()]),
        cmd: Some(Vec::new()),
        labels: Some(labels),
        ..ContainerCreateBody::default()
    };
    let made = docker
        .create_container(None::<CreateContainerOptions>, body)
        .await
        .map_err(failed)?;
    let committed = async {
        let archive = archive().map_err(|source| ProviderError::Io {
            operation: "make",
            object: "an archive".to_owned(),
            source,
        })?;
        let to = UploadToContainerOptions {
            path: "/".to_owned(),
            ..UploadToContainerOptions::default()
        };
        let archive = bollard::body_full(archive.into());
        docker
            .upload_to_container(&made.id, Some(to), archive)
            .await
            .map_err(failed)?;
        let options = CommitContainerOptions {
            container: Some(made.id.clone()),
            repo: Some(AGENT_IMAGE.to_owned()),
            tag: Some(tag.clone()),
            ..CommitContainerOptions::default()
        };
        let config = ContainerConfig {
            // What was the container's own is not the image's: no engine owns it, and containers of it are somebody's.
            labels: Some(HashMap::from([
                ("belljar.base".to_owned(), name.to_owned()),
                (owner::OWNER.to_owned(), String::new()),
            ])),
            ..ContainerConfig::default()
        };
        docker.commit_container(options, config).await.map_err(failed)
    };
    let committed = committed.await;
    owner::remove(docker, &made.id).await;
    committed.map(|_| derived)
}

/// Changes with everything that is put in.
fn tag(base: &str) -> String {
    static INSIDE: OnceLock<Vec<u8>> = OnceLock::new();
    let inside = INSIDE.get_or_init(|| archive().unwrap_or_default());
    let mut hash = Sha256::new();
    hash.update(base);
    hash.update(inside);
    hash.finalize()[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// What is put into an image: the agent, the runners, whom to ask for names, and the directories that are mounted over.
fn archive() -> std::io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    let mut put = |path: &str, mode: u32, kind: tar::EntryType, content: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_mode(mode);
        header.set_size(content.len() as u64);
        header.set_entry_type(kind);
        header.set_mtime(1);
        header.set_uid(0);
        header.set_gid(0);
        archive.append_data(&mut header, path.trim_start_matches('/'), content)
    };
    // Some engines give what they mount there the mode of what it is mounted on.
    for (directory, mode) in [("/workspace", 0o1777), ("/tmp", 0o1777), ("/.belljar", 0o755)] {
        put(directory, mode, tar::EntryType::Directory, &[])?;
    }
    put(AGENT, 0o755, tar::EntryType::Regular, PROGRAM)?;
    // Docker lays its own over it, with what the container was made with; Podman does not where there is no network.
    put(
        "/etc/resolv.conf",
        0o644,
        tar::EntryType::Regular,
        RESOLV_CONF.as_bytes(),
    )?;
    let mut made = std::collections::BTreeSet::new();
    for (path, content) in runner_files() {
        if let Some((above, _)) = path.rsplit_once('/')
            && made.insert(above.to_owned())
        {
            put(above, 0o755, tar::EntryType::Directory, &[])?;
        }
        put(&path, 0o644, tar::EntryType::Regular, &content)?;
    }
    archive.into_inner()
}

/// Which languages it can run, by a container of it.
async fn look_into(
    shared: &Arc<Shared>,
    connection: &Arc<Connection>,
    name: &str,
    derived: &str,
    path: &str,
) -> Result<BTreeMap<Language, Toolchain>, ProviderError> {
    let Some(policy) = Policy::builtin("standard") else {
        return Ok(BTreeMap::new());
    };
    let shape = Shape::of(derived, &policy.limits, shared.settings.runtime.as_deref());
    let raised = Raised::raise(shared, connection, &shape, &fresh_name()).await;
    let raised = raised.map_err(|error| match error {
        ProviderError::Engine { why, fix, .. } => ProviderError::Image {
            image: name.to_owned(),
            why,
            fix,
        },
        other => other,
    })?;
    let line = Arc::clone(raised.line());
    let mut found = BTreeMap::new();
    for spec in TABLE {
        for recipe in spec.recipes {
            if let Some(toolchain) = try_recipe(&line, recipe, path).await {
                found.insert(spec.language, toolchain);
                break;
            }
        }
    }
    raised.close().await;
    Ok(found)
}

async fn try_recipe(line: &Line, recipe: &'static Recipe, path: &str) -> Option<Toolchain> {
    // Nobody is asked for a version, so a recipe that needs one cannot be counted on.
    if recipe.least_version.is_some() {
        return None;
    }
    let mut programs = Vec::new();
    for names in recipe.programs {
        programs.push(locate(line, names, path).await?);
    }
    Some(Toolchain {
        recipe,
        programs,
        version: String::new(),
        shows: Vec::new(),
        env: BTreeMap::new(),
    })
}

/// The first program of one of these names on the path.
async fn locate(line: &Line, names: &[&str], path: &str) -> Option<PathBuf> {
    let dirs: Vec<&str> = path
        .split(':')
        .filter(|dir| dir.starts_with('/'))
        .take(MOST_DIRS)
        .collect();
    let candidates = names
        .iter()
        .flat_map(|name| dirs.iter().map(move |dir| format!("{dir}/{name}")));
    let looks = candidates.map(|candidate| async move {
        let found = line.look(&candidate, 0).await.ok()?;
        (found.kind().is_file() && found.is_executable()).then(|| PathBuf::from(candidate))
    });
    futures_util::future::join_all(looks)
        .await
        .into_iter()
        .flatten()
        .next()
}
