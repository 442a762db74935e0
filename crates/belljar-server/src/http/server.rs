//! Accepts connections: so many at once and of one peer, each with a time for its head, and none longer than it is needed at
//! the end.

use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use futures_util::FutureExt;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use super::connections::Connections;

/// The answer to a connection of a peer that has too many. Nothing of its request was read.
const TOO_MANY: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/problem+json\r\n\
    Retry-After: 1\r\nConnection: close\r\n\r\n\
    {\"type\":\"urn:belljar:problem:busy\",\"title\":\"Too much is waiting already\",\"status\":429,\"kind\":\"busy\",\
    \"detail\":\"this address has too many connections open\",\"hint\":\"close connections that are not needed\"}\n";

/// What a server takes upon itself.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at once; the next ones wait.
    pub connections: usize,
    /// Connections of one peer at once, WebSockets among them; further ones are refused.
    pub connections_per_peer: usize,
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
            // All callers behind one proxy are one peer.
            connections_per_peer: 5_000,
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

    /// The address of the other end; none where it is not on a network.
    fn peer(_connection: &Self::Connection) -> Option<IpAddr> {
        None
    }
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

    fn peer(connection: &TcpStream) -> Option<IpAddr> {
        connection.peer_addr().ok().map(|address| address.ip())
    }
}

/// Serves until `end` resolves, and then until what is under way is answered.
pub async fn serve<L: Listen>(
    mut listener: L,
    router: Router,
    limits: Limits,
    end: impl Future<Output = ()>,
) -> io::Result<()> {
    let places = Connections::new(limits.connections, limits.connections_per_peer);
    let (ending, connections) = (CancellationToken::new(), TaskTracker::new());
    let mut end = pin!(end);
    loop {
        let place = tokio::select! {
            place = places.place() => place?,
            () = &mut end => break,
        };
        let mut socket = tokio::select! {
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
        let Some(slot) = places.admit(place, L::peer(&socket)).map(Arc::new) else {
            // As far as it goes at once: nothing waits for such a peer.
            let _ = socket.write_all(TOO_MANY).now_or_never();
            let _ = socket.shutdown().now_or_never();
            continue;
        };
        // A connection that becomes a WebSocket keeps its slot beyond its last request.
        let held = Arc::clone(&slot);
        let service = router.clone().map_request(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(Arc::clone(&held));
            request
        });
        let service = TowerToHyperService::new(service);
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
            drop(slot);
        });
    }
    drop(listener);
    ending.cancel();
    connections.close();
    let _ = tokio::time::timeout(limits.ending, connections.wait()).await;
    Ok(())
}
