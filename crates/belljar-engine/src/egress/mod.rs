//! The way out of a sandbox: through here, by name, or not at all.
//!
//! In a sandbox with allowed hosts every address is local, and these sockets stand there: a resolver, and a listener for each
//! port. A name that is allowed gets an address of its own; so whoever connects to that address wants that name. The name is
//! looked up here, all its addresses are checked, and exactly one of those is dialled. What is said goes through here as well.

mod authority;
mod connection;
mod dial;
mod dns;
mod hello;
mod http;
mod names;
mod own;
mod pipe;
mod presence;
mod pump;
mod resolver;
mod secrets;
mod speech;
mod told;
mod upgrade;
mod walled;

pub(crate) use authority::Authorities;
pub(crate) use secrets::Secrets;
pub(crate) use walled::stand_at_doors;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use belljar_core::egress::{Egress, Log};
use belljar_core::provider::Doors;
use rustix::net::sockopt::{ip_original_dst, ipv6_original_dst};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::weaken;
use connection::Course;
use dial::Dialler;
use names::Names;
use pump::{Allowance, Room, Way};

/// Connections in hand at one door, those that are being refused included.
const IN_HAND: usize = 1024;
/// How many connections of one sandbox have plenty of room.
const FEW: usize = 16;
/// A sandbox has at most such a part of all places.
const SHARE: usize = 4;
/// Those who ask the resolver by a stream.
const MOST_ASKING: usize = 16;

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
    secrets: Secrets,
    names: Mutex<Names>,
    log: Mutex<Log>,
    /// Connections that are open.
    courses: Mutex<Vec<Arc<Course>>>,
    dialler: Dialler,
    places: Semaphore,
    /// How many of those there are.
    most: usize,
    incoming: Allowance,
    outgoing: Allowance,
    /// How many connections are served, and whether they are to end.
    open: watch::Sender<usize>,
    closing: watch::Sender<bool>,
}

/// Whose places are all taken.
enum Full {
    Sandbox,
    Engine,
}

impl Shared {
    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn courses(&self) -> MutexGuard<'_, Vec<Arc<Course>>> {
        self.courses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one more connection, of this sandbox's and of all.
    fn take_place(&self) -> Result<(SemaphorePermit<'_>, SemaphorePermit<'static>), Full> {
        let places = if weaken::is_off("places") {
            &all_places().1
        } else {
            &self.places
        };
        let own = places.try_acquire().map_err(|_| Full::Sandbox)?;
        let of_all = all_places().1.try_acquire().map_err(|_| Full::Engine)?;
        Ok((own, of_all))
    }

    /// How much the kernel may hold for one more.
    fn room(&self) -> Room {
        let open = self.most - self.places.available_permits().min(self.most);
        if open > FEW { Room::Little } else { Room::Plenty }
    }
}

impl Wall {
    /// Stands at the doors of a sandbox. Within a runtime.
    pub(crate) fn raise(egress: Egress, secrets: Secrets, doors: Doors) -> std::io::Result<Self> {
        let limits = egress.limits;
        // One of many does not take what is there for all.
        let most = (limits.connections as usize).min(all_places().0 / SHARE);
        let shared = Arc::new(Shared {
            egress,
            secrets,
            names: Mutex::default(),
            log: Mutex::default(),
            courses: Mutex::default(),
            dialler: Dialler::default(),
            places: Semaphore::new(most),
            most,
            incoming: Allowance::new(Way::In, limits.incoming.get()),
            outgoing: Allowance::new(Way::Out, limits.outgoing.get()),
            open: watch::Sender::new(0),
            closing: watch::Sender::new(false),
        });
        // What is begun ends with it, however far this comes.
        let mut wall = Self {
            shared: Arc::clone(&shared),
            loops: Vec::new(),
        };
        for socket in doors.resolver_datagrams {
            socket.set_nonblocking(true)?;
            let socket = UdpSocket::from_std(socket)?;
            let answering = resolver::datagrams(Arc::clone(&shared), socket);
            wall.loops.push(tokio::spawn(answering));
        }
        for listener in doors.resolver_streams {
            let serving = accept(
                listen(listener)?,
                Arc::clone(&shared),
                MOST_ASKING,
                |shared, stream| async move {
                    resolver::stream(&shared, stream).await;
                },
            );
            wall.loops.push(tokio::spawn(serving));
        }
        let plain = doors
            .listeners
            .into_iter()
            .map(|door| (door, TcpStream::local_addr as AskedFor));
        let redirected = doors
            .redirected
            .into_iter()
            .map(|door| (door, asked_before as AskedFor));
        for (listener, asked_for) in plain.chain(redirected) {
            let serving = accept(
                listen(listener)?,
                Arc::clone(&shared),
                IN_HAND,
                move |shared, stream| async move {
                    let asked = asked_for(&stream);
                    connection::serve(&shared, stream, asked).await;
                },
            );
            wall.loops.push(tokio::spawn(serving));
        }
        Ok(wall)
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

    /// What happened since this was asked last; with connections that were opened since, and are open.
    pub(crate) fn take_log(&self) -> Log {
        let mut log = std::mem::take(&mut *self.shared.log());
        for course in self.shared.courses().iter() {
            if let Some(event) = course.first_told() {
                log.push(event);
            }
        }
        log
    }
}

impl Drop for Wall {
    fn drop(&mut self) {
        for task in &self.loops {
            task.abort();
        }
    }
}

/// Where a connection was going.
type AskedFor = fn(&TcpStream) -> std::io::Result<SocketAddr>;

/// The same before it was redirected.
fn asked_before(stream: &TcpStream) -> std::io::Result<SocketAddr> {
    let is_four = stream.local_addr()?.ip().to_canonical().is_ipv4();
    Ok(if is_four {
        SocketAddr::V4(ip_original_dst(stream)?)
    } else {
        SocketAddr::V6(ipv6_original_dst(stream)?)
    })
}

fn listen(listener: std::net::TcpListener) -> std::io::Result<TcpListener> {
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Places for the connections of all sandboxes together, each of which takes two descriptors, where others need some as well:
/// how many there are, and those that are left.
pub(crate) fn all_places() -> &'static (usize, Semaphore) {
    static ALL: OnceLock<(usize, Semaphore)> = OnceLock::new();
    ALL.get_or_init(|| {
        let limit = getrlimit(Resource::Nofile);
        // As many as can be had: what a program starts with is meant for programs that wait with `select`.
        let raised = Rlimit {
            current: limit.maximum,
            ..limit
        };
        let _ = setrlimit(Resource::Nofile, raised);
        let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let places = usize::try_from(files / 4).unwrap_or(usize::MAX);
        let places = places.clamp(16 * SHARE, Semaphore::MAX_PERMITS);
        (places, Semaphore::new(places))
    })
}

/// Serves everyone who comes. Whoever is served when this is dropped is dropped as well.
async fn accept<S, F>(listener: TcpListener, shared: Arc<Shared>, most: usize, serve: S)
where
    S: Fn(Arc<Shared>, TcpStream) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    let mut served = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if served.len() < most => match accepted {
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
