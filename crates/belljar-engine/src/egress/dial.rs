//! From a name to a connection: looked up here, every address checked, and exactly one that was checked is dialled.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_core::egress::{HostName, Rule, is_public};
use hickory_resolver::TokioResolver;
use hickory_resolver::config::LookupIpStrategy;
use hickory_resolver::net::NetError;
use rustix::net::sockopt::set_tcp_congestion;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Mutex, OnceCell, Semaphore};

use super::own::Own;
use super::presence::Asking;
use super::pump::Room;
use crate::weaken;

/// For how long what was looked up is used. It is what was checked, so nobody can change it meanwhile.
const FRESH: Duration = Duration::from_secs(5);
/// The same for a name that was not found.
const FRESH_FAILURE: Duration = Duration::from_secs(1);
/// How long one address may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a server of names may take.
const TIMEOUT: Duration = Duration::from_secs(4);
/// How many lookups of one sandbox are under way at once.
const LOOKUPS: usize = 8;
/// The most names whose addresses are remembered.
const MOST_REMEMBERED: usize = 1024;

/// Looks names up for one sandbox.
pub(super) struct Dialler {
    remembered: Mutex<HashMap<HostName, Arc<Mutex<Option<Found>>>>>,
    lookups: Semaphore,
    resolver: OnceCell<TokioResolver>,
}

/// The addresses of a name, and when they were found.
#[derive(Debug)]
struct Found {
    since: Instant,
    /// Or why there are none.
    addresses: Result<Vec<IpAddr>, String>,
}

/// Somebody who was dialled.
#[derive(Debug)]
pub(super) struct Dialled<'a> {
    pub stream: TcpStream,
    /// The rules that permit it; no others have a say in what is asked.
    pub rules: Vec<&'a Rule>,
}

/// Why nobody was dialled.
#[derive(Debug)]
pub(super) enum NotDialled {
    /// The name has an address that is not for guests.
    Private(IpAddr),
    /// It has none, or nobody answers.
    Failed(io::Error),
}

impl Found {
    fn is_fresh(&self) -> bool {
        let good = if self.addresses.is_ok() {
            FRESH
        } else {
            FRESH_FAILURE
        };
        self.since.elapsed() < good
    }
}

impl fmt::Debug for Dialler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dialler")
    }
}

impl Default for Dialler {
    fn default() -> Self {
        Self {
            remembered: Mutex::default(),
            lookups: Semaphore::new(LOOKUPS),
            resolver: OnceCell::new(),
        }
    }
}

impl Dialler {
    /// The addresses of a name, as this machine finds them.
    pub(super) async fn look_up(&self, name: &HostName) -> io::Result<Vec<IpAddr>> {
        let found = {
            let mut remembered = self.remembered.lock().await;
            if remembered.len() >= MOST_REMEMBERED {
                remembered.clear();
            }
            Arc::clone(remembered.entry(name.clone()).or_default())
        };
        // Whoever wants the same name at the same time waits for the same answer.
        let mut found = found.lock().await;
        if let Some(found) = found.as_ref().filter(|found| found.is_fresh()) {
            return found.addresses.clone().map_err(io::Error::other);
        }
        let addresses = self.ask(name).await;
        *found = Some(Found {
            since: Instant::now(),
            addresses: addresses.as_ref().map_err(ToString::to_string).cloned(),
        });
        addresses
    }

    async fn ask(&self, name: &HostName) -> io::Result<Vec<IpAddr>> {
        let _turn = self.lookups.acquire().await.map_err(io::Error::other)?;
        let resolver = self.resolver.get_or_try_init(|| async { resolver() }).await?;
        // With the dot at its end it is that name, and not one of this machine's domains.
        let asking = resolver.lookup_ip(format!("{name}."));
        let found = tokio::time::timeout(PATIENCE, asking)
            .await
            .unwrap_or(Err(NetError::Timeout))
            .map_err(io::Error::other)?;
        let mut addresses: Vec<IpAddr> = found.iter().collect();
        addresses.dedup();
        if addresses.is_empty() {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        }
        Ok(addresses)
    }

    /// Those of these rules that permit all of these addresses.
    pub(super) fn fitting<'a>(rules: &[&'a Rule], addresses: &[IpAddr]) -> Vec<&'a Rule> {
        let own = Own::look();
        let fits = |rule: &&Rule| {
            addresses.iter().all(|address| {
                weaken::is_off("addresses")
                    || rule.names_address(*address)
                    || (rule.permits_address(*address) && !own.has(*address))
            })
        };
        rules.iter().copied().filter(fits).collect()
    }

    /// Connects to a name for those of these rules that permit all of its addresses.
    pub(super) async fn dial<'a>(
        &self,
        rules: &[&'a Rule],
        name: &HostName,
        port: u16,
        room: Room,
    ) -> Result<Dialled<'a>, NotDialled> {
        let addresses = self.look_up(name).await.map_err(NotDialled::Failed)?;
        let fitting = Self::fitting(rules, &addresses);
        if fitting.is_empty() {
            let strange = addresses.iter().copied().find(|address| !is_public(*address));
            return Err(NotDialled::Private(strange.unwrap_or(addresses[0])));
        }
        let stream = connect(&addresses, port, room)
            .await
            .map_err(NotDialled::Failed)?;
        Ok(Dialled {
            stream,
            rules: fitting,
        })
    }
}

/// Asks whom this machine asks, and its list of hosts. A question that nobody waits for any more holds nothing.
fn resolver() -> io::Result<TokioResolver> {
    let mut builder = TokioResolver::builder_tokio().map_err(io::Error::other)?;
    let options = builder.options_mut();
    options.timeout = TIMEOUT;
    options.attempts = 2;
    // What was found is remembered here.
    options.cache_size = 0;
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    builder.build().map_err(io::Error::other)
}

/// Connects to the first of these that answers.
pub(super) async fn connect(addresses: &[IpAddr], port: u16, room: Room) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        match tokio::time::timeout(PATIENCE, connect_to(*address, port, room)).await {
            Ok(Ok(stream)) => {
                let _ = stream.set_nodelay(true);
                let _ = Asking::FAR.begin(&stream);
                return Ok(stream);
            }
            Ok(Err(error)) => last = error,
            Err(_) => last = io::Error::from(io::ErrorKind::TimedOut),
        }
    }
    Err(last)
}

async fn connect_to(address: IpAddr, port: u16, room: Room) -> io::Result<TcpStream> {
    let socket = match address {
        IpAddr::V4(_) => TcpSocket::new_v4(),
        IpAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    room.bound(&socket)?;
    if !is_public(address) {
        // As near as it is, whatever this machine does about the world is in the way. This one is in every kernel.
        let _ = set_tcp_congestion(&socket, "reno");
    }
    socket.connect(SocketAddr::new(address, port)).await
}
