//! Taking connections: so many at once, each with a time for its head, and none longer than it is needed at the end.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What a server takes upon itself.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at once; the next ones wait.
    pub connections: usize,
    /// How long a request's head may take to arrive, and how long a connection may be silent between two.
    pub head: Duration,
    /// How long a peer may take nothing of what it is sent.
    pub taking: Duration,
    /// How long what is under way may take after the server was told to end.
    pub ending: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            head: Duration::from_secs(15),
            taking: Duration::from_secs(60),
            ending: Duration::from_secs(30),
        }
    }
}

/// Where connections come from.
pub trait Listen: Send {
    type Connection: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next one. Cancel-safe.
    fn accept(&mut self, limits: &Limits) -> impl Future<Output = io::Result<Self::Connection>> + Send;
}

impl Listen for TcpListener {
    type Connection = TcpStream;

    async fn accept(&mut self, limits: &Limits) -> io::Result<TcpStream> {
        let (socket, _) = Self::accept(self).await?;
        let _ = socket.set_nodelay(true);
        // The kernel ends a connection whose peer has no room for what it asked for.
        let millis = u32::try_from(limits.taking.as_millis()).unwrap_or(u32::MAX);
        let _ = rustix::net::sockopt::set_tcp_user_timeout(&socket, millis);
        Ok(socket)
    }
}

/// Serves until `end` resolves, and then until what is under way is answered.
pub async fn serve(
    mut listener: impl Listen,
    router: Router,
    limits: Limits,
    end: impl Future<Output = ()>,
) -> io::Result<()> {
    let places = Arc::new(Semaphore::new(limits.connections));
    let (ending, connections) = (CancellationToken::new(), TaskTracker::new());
    let mut end = pin!(end);
    loop {
        let place = tokio::select! {
            place = Arc::clone(&places).acquire_owned() => place.map_err(io::Error::other)?,
            () = &mut end => break,
        };
        let socket = tokio::select! {
            accepted = listener.accept(&limits) => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // No descriptors are left, or the peer was gone at once. The next one may do better.
                    tracing::warn!(%error, "a connection could not be taken");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
            () = &mut end => break,
        };
        let service = TowerToHyperService::new(router.clone());
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head)
            .max_headers(100)
            .max_buf_size(64 << 10);
        let connection = builder
            .serve_connection(TokioIo::new(socket), service)
            .with_upgrades();
        let ending = ending.clone();
        connections.spawn(async move {
            let mut connection = pin!(connection);
            // What a peer does to its own connection is its own business.
            tokio::select! {
                _ = connection.as_mut() => {}
                () = ending.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    let _ = connection.await;
                }
            }
            drop(place);
        });
    }
    drop(listener);
    ending.cancel();
    connections.close();
    let _ = tokio::time::timeout(limits.ending, connections.wait()).await;
    Ok(())
}
