//! Root file systems that go to an engine as images, or come from one.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use belljar_core::ProviderError;
use belljar_core::plan::WORK_DIR;
use belljar_core::provider::ENVIRONMENT_IMAGE;
use bollard::models::ContainerCreateBody;
use bollard::query_parameters::{CreateContainerOptions, CreateImageOptions};
use futures_util::StreamExt;

use super::closure::Closure;
use super::connect::Connection;
use super::image::{Images, base};
use super::{Shared, owner, problem};
use crate::program::AGENT;

impl Images {
    /// The image of an environment that stands beside the host's own Python: both, and what they need to run.
    pub(super) async fn of_environment(
        &self,
        shared: &Shared,
        connection: &Connection,
        shows: Vec<PathBuf>,
        digest: &str,
    ) -> Result<String, ProviderError> {
        let mut known = self.environments.lock().await;
        if let Some(name) = known.get(digest)
            && connection.docker.inspect_image(name).await.is_ok()
        {
            return Ok(name.clone());
        }
        let looked = tokio::task::spawn_blocking(move || {
            let closure = Closure::of_environment(&shows)?;
            let sum = closure.sum();
            io::Result::Ok((closure, sum))
        });
        let (closure, sum) = join(looked).await?;
        let name = import(shared, connection, &sum, move |archive| closure.write(archive)).await?;
        known.insert(digest.to_owned(), name.clone());
        Ok(name)
    }
}

/// The image of a root file system that stands on this host.
pub(super) async fn of_root(
    shared: &Shared,
    connection: &Connection,
    root: PathBuf,
    digest: &str,
) -> Result<String, ProviderError> {
    import(shared, connection, digest, |archive| {
        archive.follow_symlinks(false);
        archive.append_dir_all(".", root)
    })
    .await
}

/// An image of what `write` writes, which is known by `digest`; made where it is not there.
async fn import(
    shared: &Shared,
    connection: &Connection,
    digest: &str,
    write: impl FnOnce(&mut tar::Builder<Chunks>) -> io::Result<()> + Send + 'static,
) -> Result<String, ProviderError> {
    let name = format!("{ENVIRONMENT_IMAGE}:{}", digest.get(..16).unwrap_or(digest));
    if connection.docker.inspect_image(&name).await.is_ok() {
        return Ok(name);
    }
    shared.tell(&format!("giving the engine the image {name}"));
    // A thread reads the tree, as fast as the engine takes it.
    let (give, taken) = tokio::sync::mpsc::channel::<io::Result<bytes::Bytes>>(16);
    let reading = tokio::task::spawn_blocking(move || {
        let failed = give.clone();
        let mut archive = tar::Builder::new(Chunks(give));
        let written = write(&mut archive).and_then(|()| archive.finish());
        if let Err(error) = &written {
            // Half of it must not look like all of it.
            let _ = failed.blocking_send(Err(io::Error::other(error.to_string())));
        }
        written
    });
    let options = CreateImageOptions {
        from_src: Some("-".to_owned()),
        // Podman does not hear of a tag that is said elsewhere.
        repo: Some(name.clone()),
        ..CreateImageOptions::default()
    };
    let incoming = futures_util::stream::unfold(taken, |mut taken| async move {
        let piece = taken.recv().await?;
        Some((piece, taken))
    });
    let body = bollard::body_try_stream(incoming);
    let mut steps = connection.docker.create_image(Some(options), Some(body), None);
    let mut said = Ok(());
    while let Some(step) = steps.next().await {
        said = said.and(
            step.map(drop)
                .map_err(|error| problem::engine("import an image", &error)),
        );
    }
    // What could not be read is why the engine did not like it.
    join(reading).await?;
    said.map(|()| name)
}

async fn join<T>(reading: tokio::task::JoinHandle<io::Result<T>>) -> Result<T, ProviderError> {
    let read = reading
        .await
        .unwrap_or_else(|_| Err(io::Error::other("reading broke off")));
    read.map_err(|source| ProviderError::Io {
        operation: "read",
        object: "an environment".to_owned(),
        source,
    })
}

/// The same image without the directories that it wants to be written to elsewhere: nobody would bound what is.
pub(super) async fn flatten(
    shared: &Arc<Shared>,
    connection: &Arc<Connection>,
    name: &str,
    id: &str,
) -> Result<String, ProviderError> {
    let digest = id.strip_prefix("sha256:").unwrap_or(id);
    let mut tar = export(shared, Arc::clone(connection), name).await?;
    import(shared, connection, digest, move |archive| {
        // It is an archive as it is.
        io::copy(&mut tar, archive.get_mut()).map(drop)
    })
    .await
}

/// Whether containers can have an environment that shows these: they have some places of their own.
pub(super) fn check_places(environment: &str, shows: &[PathBuf]) -> Result<(), ProviderError> {
    let hides = |path: &&PathBuf| {
        [WORK_DIR, "/tmp", "/var/tmp", "/proc", "/dev"]
            .iter()
            .any(|own| path.starts_with(own))
    };
    match shows.iter().find(hides) {
        None => Ok(()),
        Some(path) => Err(ProviderError::Image {
            image: environment.to_owned(),
            why: format!("it stands in {}, which no container sees", path.display()),
            fix: "keep environments elsewhere: BELLJAR_HOME says where".to_owned(),
        }),
    }
}

/// What is in an image, as a tar that can be read while it comes.
pub(super) async fn export(
    shared: &Arc<Shared>,
    connection: Arc<Connection>,
    name: &str,
) -> Result<Exported, ProviderError> {
    base(shared, &connection, name, true).await?;
    let failed = |error| problem::engine("export an image", &error);
    let body = ContainerCreateBody {
        image: Some(name.to_owned()),
        // Never started; an image need not say what it runs.
        cmd: Some(vec![AGENT.to_owned()]),
        labels: Some(HashMap::from([(
            owner::OWNER.to_owned(),
            owner::own().to_owned(),
        )])),
        ..ContainerCreateBody::default()
    };
    let docker = connection.docker.clone();
    let made = docker
        .create_container(None::<CreateContainerOptions>, body)
        .await
        .map_err(failed)?;
    let piped = std::io::pipe();
    let (read, mut write) = match piped {
        Ok(ends) => ends,
        Err(source) => {
            owner::remove(&docker, &made.id).await;
            return Err(ProviderError::Io {
                operation: "make",
                object: "a pipe".to_owned(),
                source,
            });
        }
    };
    let background = shared.background.clone();
    let broken = Arc::new(OnceLock::new());
    let exported = Exported {
        pipe: read,
        broken: Arc::clone(&broken),
    };
    tokio::spawn(async move {
        let mut pieces = docker.export_container(&made.id);
        while let Some(piece) = pieces.next().await {
            let piece = match piece {
                Ok(piece) => piece,
                Err(error) => {
                    let _ = broken.set(problem::text(&error));
                    break;
                }
            };
            let written = tokio::task::spawn_blocking(move || {
                let result = std::io::Write::write_all(&mut write, &piece);
                (write, result)
            });
            match written.await {
                Ok((back, Ok(()))) => write = back,
                _ => break,
            }
        }
        drop(pieces);
        owner::remove(&docker, &made.id).await;
        drop(background);
    });
    Ok(exported)
}

/// A tar as it comes from an engine.
pub(super) struct Exported {
    pipe: io::PipeReader,
    /// Why it ended early, if it did.
    broken: Arc<OnceLock<String>>,
}

impl io::Read for Exported {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match (self.pipe.read(buffer)?, self.broken.get()) {
            // Half of an archive must not look like all of it.
            (0, Some(why)) if !buffer.is_empty() => Err(io::Error::other(why.clone())),
            (count, _) => Ok(count),
        }
    }
}

/// Passes on what is written, piece by piece.
struct Chunks(tokio::sync::mpsc::Sender<io::Result<bytes::Bytes>>);

impl std::io::Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = bytes::Bytes::copy_from_slice(bytes);
        match self.0.blocking_send(Ok(piece)) {
            Ok(()) => Ok(bytes.len()),
            Err(_) => Err(std::io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
