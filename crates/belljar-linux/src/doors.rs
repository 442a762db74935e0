//! Where the network of a sandbox ends that may reach somebody, as nursery and engine both know it.

use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;

use belljar_core::provider::Doors;

/// Where the guest's resolver listens: an address that no host in the world has.
pub(crate) const RESOLVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
pub(crate) const RESOLVER_PORT: u16 = 53;

/// Doors in the order in which they were opened.
pub(crate) fn sort(fds: Vec<OwnedFd>) -> Doors {
    let mut fds = fds.into_iter();
    Doors {
        resolver_datagrams: fds.next().map(Into::into).into_iter().collect(),
        resolver_streams: fds.next().map(Into::into).into_iter().collect(),
        listeners: fds.map(Into::into).collect(),
    }
}
