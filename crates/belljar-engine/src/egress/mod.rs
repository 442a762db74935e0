//! The way out of a sandbox: through here, by name, or not at all.
//!
//! In a sandbox with allowed hosts every address is local, and these sockets stand there: a resolver, and a listener for each
//! port. A name that is allowed gets an address of its own; so whoever connects to that address wants that name. The name is
//! looked up here, all its addresses are checked, and exactly one of those is dialled. What is said goes through here as well.

mod connection;
mod dial;
mod dns;
mod hello;
mod http;
mod names;
mod pump;
mod resolver;
mod walled;

pub(crate) use walled::stand_at_doors;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use belljar_core::egress::{Egress, Log};
use belljar_core::provider::Doors;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};

use dial::Dialler;
use names::Names;
use pump::{Allowance, Way};

/// Connections that are being refused for want of room, at most.
const IN_HAND: usize = 1024;

/// How long a connection may outlive the guest that opened it: what was sent last is yet to arrive.
const MOMENT: Duration = Duration::from_millis(300);

/// The way out of one sandbox, for as long as it stands.
#[derive(Debug)]
pub(crate) struct Wall {
    shared: Arc<Shared>,
    loops: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    egress: Egress,
    names: Mutex<Names>,
    log: Mutex<Log>,
    dialler: Dialler,
    places: Semaphore,
    incoming: Allowance,
    outgoing: Allowance,
    /// How many connections are served, and whether they are to end.
    open: watch::Sender<usize>,
    closing: watch::Sender<bool>,
}

impl Shared {
    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_place(&self) -> bool {
        self.places
            .try_acquire()
            .map(tokio::sync::SemaphorePermit::forget)
            .is_ok()
    }

    fn give_back_place(&self) {
        self.places.add_permits(1);
    }
}

impl Wall {
    /// Stands at the doors of a sandbox. Within a runtime.
    pub(crate) fn raise(egress: Egress, doors: Doors) -> std::io::Result<Self> {
        let limits = egress.limits;
        let shared = Arc::new(Shared {
            egress,
            names: Mutex::default(),
            log: Mutex::default(),
            dialler: Dialler::default(),
            places: Semaphore::new(limits.connections as usize),
            incoming: Allowance::new(Way::In, limits.incoming.get()),
            outgoing: Allowance::new(Way::Out, limits.outgoing.get()),
            open: watch::Sender::new(0),
            closing: watch::Sender::new(false),
        });
        let mut loops = Vec::new();
        for socket in doors.resolver_datagrams {
            socket.set_nonblocking(true)?;
            let socket = UdpSocket::from_std(socket)?;
            loops.push(tokio::spawn(resolver::datagrams(Arc::clone(&shared), socket)));
        }
        for listener in doors.resolver_streams {
            listener.set_nonblocking(true)?;
            let listener = TcpListener::from_std(listener)?;
            loops.push(tokio::spawn(accept(
                listener,
                Arc::clone(&shared),
                |shared, stream| async move {
                    resolver::stream(&shared, stream).await;
                },
            )));
        }
        for listener in doors.listeners {
            listener.set_nonblocking(true)?;
            let listener = TcpListener::from_std(listener)?;
            loops.push(tokio::spawn(accept(
                listener,
                Arc::clone(&shared),
                |shared, stream| async move {
                    connection::serve(&shared, stream).await;
                },
            )));
        }
        Ok(Self { shared, loops })
    }

    /// Gives connections a moment to end by themselves, now that the guest has, and ends those that do not.
    pub(crate) async fn settle(&self) {
        let mut open = self.shared.open.subscribe();
        let mut none = async || {
            let _ = open.wait_for(|count| *count == 0).await;
        };
        if tokio::time::timeout(MOMENT, none()).await.is_err() {
            self.shared.closing.send_replace(true);
            let _ = tokio::time::timeout(MOMENT, none()).await;
            self.shared.closing.send_replace(false);
        }
    }

    /// What happened since this was asked last.
    pub(crate) fn take_log(&self) -> Log {
        std::mem::take(&mut *self.shared.log())
    }
}

impl Drop for Wall {
    fn drop(&mut self) {
        for task in &self.loops {
            task.abort();
        }
    }
}

/// Serves everyone who comes. Whoever is served when this is dropped is dropped as well.
async fn accept<S, F>(listener: TcpListener, shared: Arc<Shared>, serve: S)
where
    S: Fn(Arc<Shared>, tokio::net::TcpStream) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    let mut served = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if served.len() < IN_HAND => match accepted {
                Ok((stream, _)) => {
                    served.spawn(serve(Arc::clone(&shared), stream));
                }
                // Too many descriptors, or a connection that was gone again.
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            },
            Some(_) = served.join_next(), if !served.is_empty() => {}
        }
    }
}
