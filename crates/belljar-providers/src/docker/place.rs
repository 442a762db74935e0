//! A container with an agent in it.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use belljar_core::egress::Ports;
use belljar_core::plan::WORK_DIR;
use belljar_core::provider::{BoxFuture, Doors, Ended};
use belljar_core::receipt::Observed;
use belljar_core::{Control, Limits, ProviderError};
use belljar_linux::agent::Surroundings;
use bollard::container::LogOutput;
use bollard::query_parameters::{
    AttachContainerOptions, CreateContainerOptions, InspectContainerOptions, StartContainerOptions,
};
use futures_util::StreamExt;

use super::connect::Connection;
use super::container::Shape;
use super::problem;
use super::{Shared, owner};
use crate::agent::{Connected, Counters, Held, Line, Made, Seen};
use crate::background::Background;
use crate::clearing::Clearing;
use crate::mounts::{self, OpenMount};
use crate::own_kernel::USERS;
use crate::place::{Place, Used, no_doors};
use crate::pool::Waiting;

/// How long an engine may take to remove a container.
const REMOVING: Duration = Duration::from_secs(30);

/// A container that is up, before anybody uses it.
#[derive(Debug)]
pub(super) struct Raised {
    place: DockerPlace,
    connected: Connected,
    seen: Seen,
    own_kernel: bool,
}

impl Raised {
    /// Makes a container and waits until its agent says that it is there.
    pub(super) async fn raise(
        shared: &Arc<Shared>,
        connection: &Arc<Connection>,
        shape: &Shape,
        name: &str,
    ) -> Result<Self, ProviderError> {
        let docker = &connection.docker;
        let mounts = mounts::open(shape.mounts())?;
        let options = CreateContainerOptions {
            name: Some(name.to_owned()),
            ..CreateContainerOptions::default()
        };
        let body = shape.body(name, uid_of(name), connection.is_podman);
        let created = docker
            .create_container(Some(options), body)
            .await
            .map_err(|error| problem::engine("make a container", &error))?;
        let mut place = DockerPlace {
            background: shared.background.clone(),
            connection: Arc::clone(connection),
            id: created.id,
            is_there: true,
            line: Weak::new(),
            controls: BTreeMap::new(),
            network: None,
            shown: shape.mounts().iter().map(ToString::to_string).collect(),
            origin: "made on demand",
            clearing: shared.clearing.clone(),
        };
        let started = match place.start(shared).await {
            Ok(started) => check(&mounts, &started.0.line).await.map(|()| started),
            Err(error) => Err(error),
        };
        match started {
            Ok((connected, seen)) => Ok(Self {
                place,
                connected,
                seen,
                own_kernel: shape.has_own_kernel(),
            }),
            Err(error) => {
                let _ = place.remove().await;
                Err(error)
            }
        }
    }

    pub(super) const fn line(&self) -> &Arc<Line> {
        &self.connected.line
    }

    /// For a plan: with what was found out about it.
    pub(super) fn into_made(mut self, origin: &'static str) -> Made {
        let bounded = |control| {
            let found = self.place.controls.get(&control);
            found.is_some_and(Observed::is_enforced)
        };
        let held = Held {
            memory: !bounded(Control::MemoryCgroup),
            processes: !bounded(Control::PidsCgroup),
        };
        // A group without limits is somebody else's as well, and so is what it counts.
        let counters = if held.memory {
            Counters::default()
        } else {
            self.seen.counters()
        };
        self.place.origin = origin;
        Made {
            surroundings: Surroundings {
                work_dir: WORK_DIR.to_owned(),
                places: Vec::new(),
                variables: Vec::new(),
                landlock: self.seen.landlock,
                ceilings: self.seen.ceilings,
                memory_accounted: !held.memory,
                walls: true,
                users: self.own_kernel.then_some(USERS),
            },
            place: Box::new(self.place),
            connected: self.connected,
            counters,
            held,
        }
    }
}

/// Makes sure that a container shows what was opened here.
async fn check(mounts: &[OpenMount], line: &Line) -> Result<(), ProviderError> {
    for mount in mounts {
        mount.check(line).await?;
    }
    Ok(())
}

impl Waiting for Raised {
    fn is_there(&self) -> bool {
        self.connected.line.is_open()
    }

    fn close(mut self) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let _ = self.place.remove().await;
        })
    }
}

/// An id that no other container of ours is likely to have: limits of a user are then limits of one container.
fn uid_of(name: &str) -> u32 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    20_000 + (hash % 40_000) as u32
}

#[derive(Debug)]
pub(super) struct DockerPlace {
    background: Background,
    connection: Arc<Connection>,
    id: String,
    is_there: bool,
    line: Weak<Line>,
    controls: BTreeMap<Control, Observed>,
    /// The number of its network, where its kernel is this machine's.
    network: Option<u64>,
    shown: Vec<String>,
    origin: &'static str,
    clearing: Clearing,
}

impl DockerPlace {
    async fn start(&mut self, shared: &Arc<Shared>) -> Result<(Connected, Seen), ProviderError> {
        let docker = &self.connection.docker;
        let options = AttachContainerOptions {
            stream: true,
            stdin: true,
            stdout: true,
            stderr: true,
            ..AttachContainerOptions::default()
        };
        // Before it starts, or its first words would be missed.
        let attached = docker
            .attach_container(&self.id, Some(options))
            .await
            .map_err(|error| problem::engine("attach to a container", &error))?;
        docker
            .start_container(&self.id, None::<StartContainerOptions>)
            .await
            .map_err(|error| problem::engine("start a container", &error))?;
        let incoming = attached.output.filter_map(|said| {
            std::future::ready(match said {
                Ok(LogOutput::StdOut { message }) => Some(Ok(message)),
                Ok(_) => None,
                Err(error) => Some(Err(io::Error::other(error))),
            })
        });
        let failed = |source| ProviderError::Io {
            operation: "speak to",
            object: "a container's agent".to_owned(),
            source,
        };
        let runtime = shared.background.handle().map_err(failed)?;
        let connected = Line::connect(&runtime, Box::pin(incoming), attached.input)
            .await
            .map_err(failed)?;
        self.line = Arc::downgrade(&connected.line);
        let seen = Seen::look(&connected).await;
        self.controls = seen.controls();
        self.network = seen.network();
        self.controls.extend(seen.bounds(&connected.line).await);
        Ok((connected, seen))
    }

    /// Kills and removes it, and waits until it is gone.
    async fn remove(&mut self) -> Result<(), ProviderError> {
        if let Some(line) = self.line.upgrade() {
            line.hang_up();
        }
        if !self.is_there {
            return Ok(());
        }
        self.is_there = false;
        let (connection, id) = (Arc::clone(&self.connection), self.id.clone());
        let removed = self.background.run(async move {
            let removing = removed(&connection, &id);
            tokio::time::timeout(REMOVING, removing)
                .await
                .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        });
        removed.await.map_err(|source| ProviderError::Io {
            operation: "remove",
            object: "a container".to_owned(),
            source,
        })
    }
}

async fn removed(connection: &Connection, id: &str) -> io::Result<()> {
    let mut pause = Duration::from_millis(5);
    loop {
        owner::remove(&connection.docker, id).await;
        match connection
            .docker
            .inspect_container(id, None::<InspectContainerOptions>)
            .await
        {
            Err(error) if problem::is_not_found(&error) => return Ok(()),
            Err(error) if !problem::is_foreign(&error) => {
                return Err(io::Error::other(problem::text(&error)));
            }
            _ => {}
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(200));
    }
}

impl Drop for DockerPlace {
    fn drop(&mut self) {
        if let Some(line) = self.line.upgrade() {
            line.hang_up();
        }
        if self.is_there
            && let Ok(runtime) = self.background.handle()
        {
            let under_way = self.clearing.begin();
            let (connection, id, background) = (
                Arc::clone(&self.connection),
                self.id.clone(),
                self.background.clone(),
            );
            runtime.spawn(async move {
                let _ = tokio::time::timeout(REMOVING, removed(&connection, &id)).await;
                drop((background, under_way));
            });
        }
    }
}

impl Place for DockerPlace {
    /// A container's limits are those of its plan, from its start.
    fn limit(&mut self, _: &Limits) -> Result<(), ProviderError> {
        Ok(())
    }

    fn used(&self) -> Option<Used> {
        None
    }

    fn open_doors(&mut self, ports: Ports) -> BoxFuture<'_, Result<Doors, ProviderError>> {
        Box::pin(async move {
            // What its agent calls its network, on this very kernel.
            let network = self
                .network
                .ok_or_else(|| no_doors("its engine is on another machine, or its kernel is another one"))?;
            let (connection, id) = (Arc::clone(&self.connection), self.id.clone());
            let opened = self.background.run(async move {
                let inspected = connection
                    .docker
                    .inspect_container(&id, None::<InspectContainerOptions>)
                    .await
                    .map_err(|error| io::Error::other(problem::text(&error)))?;
                let pid = inspected.state.and_then(|state| i32::try_from(state.pid?).ok());
                let pid = pid.filter(|pid| *pid > 0).ok_or(io::ErrorKind::NotFound)?;
                let opening = move || belljar_linux::doors::open_in(pid, Some(network), &ports);
                tokio::task::spawn_blocking(opening)
                    .await
                    .map_err(io::Error::other)?
            });
            opened.await.map_err(no_doors)
        })
    }

    fn end(&mut self) -> BoxFuture<'_, Result<(), ProviderError>> {
        Box::pin(self.remove())
    }

    fn discard(self: Box<Self>) -> BoxFuture<'static, Result<(), ProviderError>> {
        // Dropping it has it removed in the background.
        drop(self);
        Box::pin(std::future::ready(Ok(())))
    }

    fn why_gone(&mut self) -> BoxFuture<'_, Ended> {
        Box::pin(async move {
            let (connection, id) = (Arc::clone(&self.connection), self.id.clone());
            let asked = self.background.run(async move {
                let inspected = connection
                    .docker
                    .inspect_container(&id, None::<InspectContainerOptions>);
                inspected
                    .await
                    .map_err(|error| io::Error::other(problem::text(&error)))
            });
            match asked.await {
                Ok(found) => {
                    let state = found.state.unwrap_or_default();
                    if state.oom_killed == Some(true) {
                        return Ended::OutOfMemory;
                    }
                    let code = state.exit_code.unwrap_or_default();
                    Ended::Lost(format!("its container ended from outside, with {code}"))
                }
                Err(error) => Ended::Lost(format!("the engine lost its container: {error}")),
            }
        })
    }

    fn controls(&self) -> BTreeMap<Control, Observed> {
        self.controls.clone()
    }

    fn shown(&self) -> Vec<String> {
        self.shown.clone()
    }

    fn origin(&self) -> String {
        format!("{} ({})", self.origin, self.connection.version)
    }
}
