//! Counts connections, of all peers and of each, so that one peer cannot take every place.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many connections each peer has.
type PeerCounts = Arc<Mutex<HashMap<IpAddr, usize>>>;

/// The places for connections of one server.
#[derive(Clone, Debug)]
pub(super) struct Connections {
    places: Arc<Semaphore>,
    by_peer: PeerCounts,
    max_per_peer: usize,
}

/// The place of one connection: free again when it is dropped.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    _permit: OwnedSemaphorePermit,
    peer: Option<(IpAddr, PeerCounts)>,
}

impl Connections {
    pub(super) fn new(max: usize, max_per_peer: usize) -> Self {
        Self {
            places: Arc::new(Semaphore::new(max)),
            by_peer: Arc::default(),
            max_per_peer,
        }
    }

    /// Waits until there is a place. Cancel-safe.
    pub(super) async fn place(&self) -> io::Result<OwnedSemaphorePermit> {
        Arc::clone(&self.places)
            .acquire_owned()
            .await
            .map_err(io::Error::other)
    }

    /// Gives the place to a peer; none where this peer has as many as one may have. A connection without a peer, which
    /// did not come over a network, counts among all alone.
    pub(super) fn admit(&self, permit: OwnedSemaphorePermit, peer: Option<IpAddr>) -> Option<ConnectionSlot> {
        let peer = match peer.map(network_of) {
            None => None,
            Some(peer) => {
                let mut by_peer = self.by_peer.lock().unwrap_or_else(PoisonError::into_inner);
                let count = by_peer.entry(peer).or_default();
                if *count >= self.max_per_peer {
                    return None;
                }
                *count += 1;
                Some((peer, Arc::clone(&self.by_peer)))
            }
        };
        Some(ConnectionSlot {
            _permit: permit,
            peer,
        })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let Some((peer, by_peer)) = self.peer.take() else {
            return;
        };
        let mut by_peer = by_peer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = by_peer.get_mut(&peer) {
            *count -= 1;
            if *count == 0 {
                by_peer.remove(&peer);
            }
        }
    }
}

/// What counts as one peer: an IPv4 address, or the 64 bits of an IPv6 address that name a network, since whoever has one
/// address of it has all.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn s12_one_peer_has_only_its_share_and_gets_it_back() {
        let connections = Connections::new(10, 2);
        let admit = async |peer: Option<&str>| {
            let permit = connections.place().await.unwrap();
            connections.admit(permit, peer.map(|peer| peer.parse().unwrap()))
        };
        let held = [
            admit(Some("10.0.0.1")).await,
            admit(Some("::ffff:10.0.0.1")).await,
        ];
        assert!(held.iter().all(Option::is_some));
        assert!(admit(Some("10.0.0.1")).await.is_none());
        let other = [admit(Some("2001:db8::1")).await, admit(Some("2001:db8::2")).await];
        assert!(other.iter().all(Option::is_some));
        assert!(admit(Some("2001:db8::3")).await.is_none());
        assert!(admit(Some("2001:db8:0:1::1")).await.is_some());
        let owners: Vec<_> = [admit(None).await, admit(None).await, admit(None).await].into();
        assert!(owners.iter().all(Option::is_some));
        assert_eq!(connections.places.available_permits(), 3);
        drop((held, other, owners));
        assert!(admit(Some("10.0.0.1")).await.is_some());
        assert!(connections.by_peer.lock().unwrap().is_empty());
        assert_eq!(connections.places.available_permits(), 10);
    }
}
