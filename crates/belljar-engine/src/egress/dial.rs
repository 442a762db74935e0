//! From a name to a connection: looked up here, every address checked, and exactly one that was checked is dialled.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_core::egress::{HostName, Rule, is_public};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, Semaphore};

/// For how long what was looked up is used. It is what was checked, so nobody can change it meanwhile.
const FRESH: Duration = Duration::from_secs(5);
/// The same for a name that was not found.
const FRESH_FAILURE: Duration = Duration::from_secs(1);
/// How long one address may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many lookups of one sandbox are under way at once: each holds a thread.
const LOOKUPS: usize = 8;
/// The most names whose addresses are remembered.
const MOST_REMEMBERED: usize = 1024;

/// Looks names up for one sandbox.
#[derive(Debug)]
pub(super) struct Dialler {
    remembered: Mutex<HashMap<HostName, Arc<Mutex<Option<Found>>>>>,
    lookups: Semaphore,
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

impl Default for Dialler {
    fn default() -> Self {
        Self {
            remembered: Mutex::default(),
            lookups: Semaphore::new(LOOKUPS),
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
        let asking = tokio::net::lookup_host((name.as_str(), 0));
        let found = tokio::time::timeout(PATIENCE, asking)
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
        let mut addresses: Vec<IpAddr> = found.map(|address| address.ip()).collect();
        addresses.dedup();
        if addresses.is_empty() {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        }
        Ok(addresses)
    }

    /// Connects to a name for those of these rules that permit all of its addresses.
    pub(super) async fn dial<'a>(
        &self,
        rules: &[&'a Rule],
        name: &HostName,
        port: u16,
    ) -> Result<Dialled<'a>, NotDialled> {
        let addresses = self.look_up(name).await.map_err(NotDialled::Failed)?;
        let fits = |rule: &&Rule| addresses.iter().all(|address| rule.permits_address(*address));
        let fitting: Vec<&Rule> = rules.iter().copied().filter(fits).collect();
        if fitting.is_empty() {
            let strange = addresses.iter().copied().find(|address| !is_public(*address));
            let denied = || NotDialled::Failed(io::ErrorKind::PermissionDenied.into());
            return Err(strange.map_or_else(denied, NotDialled::Private));
        }
        let stream = connect(&addresses, port).await.map_err(NotDialled::Failed)?;
        Ok(Dialled {
            stream,
            rules: fitting,
        })
    }
}

/// Connects to the first of these that answers.
pub(super) async fn connect(addresses: &[IpAddr], port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        let dialling = TcpStream::connect(SocketAddr::new(*address, port));
        match tokio::time::timeout(PATIENCE, dialling).await {
            Ok(Ok(stream)) => {
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Err(error)) => last = error,
            Err(_) => last = io::Error::from(io::ErrorKind::TimedOut),
        }
    }
    Err(last)
}
