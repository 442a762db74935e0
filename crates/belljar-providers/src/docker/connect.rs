//! Reaching an engine, and saying why it cannot be reached.

use std::path::Path;

use belljar_core::guard::Missing;
use bollard::Docker;

use super::DockerSettings;
use super::owner;

/// How long an engine may take for one answer.
const PATIENCE: u64 = 120;

/// An engine that answered.
#[derive(Debug)]
pub(super) struct Connection {
    pub docker: Docker,
    /// What it calls itself, with its version.
    pub version: String,
    /// Whether it is Podman, which does a few things its own way.
    pub is_podman: bool,
}

impl Connection {
    pub(super) async fn answers(&self) -> bool {
        self.docker.ping().await.is_ok()
    }
}

/// Where an engine may listen, first come first.
fn hosts(settings: &DockerSettings) -> Vec<String> {
    let named = settings
        .host
        .clone()
        .or_else(|| std::env::var("DOCKER_HOST").ok().filter(|host| !host.is_empty()));
    if let Some(host) = named {
        return vec![host];
    }
    let mut hosts = vec![
        "/var/run/docker.sock".to_owned(),
        "/run/podman/podman.sock".to_owned(),
    ];
    if let Ok(dir) = std::env::var("XDG_RUNTIME_DIR") {
        hosts.push(format!("{dir}/docker.sock"));
        hosts.push(format!("{dir}/podman/podman.sock"));
    }
    hosts.into_iter().map(|path| format!("unix://{path}")).collect()
}

/// The first engine that answers. What a dead belljar left there is removed.
pub(super) async fn connect(settings: &DockerSettings) -> Result<Connection, Missing> {
    let hosts = hosts(settings);
    let mut last = None;
    for host in &hosts {
        let path = host.strip_prefix("unix://").map(Path::new);
        if hosts.len() > 1 && path.is_some_and(|path| !path.exists()) {
            continue;
        }
        match try_host(host).await {
            Ok(connection) => {
                owner::sweep(&connection.docker).await;
                return Ok(connection);
            }
            Err(missing) => last = last.or(Some(missing)),
        }
    }
    Err(last.unwrap_or_else(|| Missing {
        why: "no engine listens on any of the usual sockets".to_owned(),
        fix: "start Docker or Podman (systemctl start docker; podman system service), or set DOCKER_HOST"
            .to_owned(),
    }))
}

async fn try_host(host: &str) -> Result<Connection, Missing> {
    let missing = |why: String| {
        let denied = why.to_lowercase().contains("permission denied");
        Missing {
            why: format!("the engine at {host} does not answer: {why}"),
            fix: if denied {
                "run as root, or as a member of the group that owns the engine's socket".to_owned()
            } else {
                "start the engine, or set DOCKER_HOST to where it listens".to_owned()
            },
        }
    };
    if let Some(path) = host.strip_prefix("unix://")
        && let Err(error) = std::os::unix::net::UnixStream::connect(path)
    {
        return Err(missing(error.to_string()));
    }
    let docker = if host.starts_with("unix://") || host.starts_with('/') {
        Docker::connect_with_unix(host, PATIENCE, bollard::API_DEFAULT_VERSION)
    } else {
        Docker::connect_with_http(host, PATIENCE, bollard::API_DEFAULT_VERSION)
    };
    let docker = docker.map_err(|error| missing(error.to_string()))?;
    let docker = docker
        .negotiate_version()
        .await
        .map_err(|error| missing(error.to_string()))?;
    let version = docker
        .version()
        .await
        .map_err(|error| missing(error.to_string()))?;
    let parts = version.components.unwrap_or_default();
    let is_podman = parts
        .iter()
        .any(|part| part.name.to_lowercase().contains("podman"));
    let number = version.version.unwrap_or_default();
    let name = if is_podman { "Podman" } else { "Docker" };
    Ok(Connection {
        docker,
        version: format!("{name} {number}"),
        is_podman,
    })
}
