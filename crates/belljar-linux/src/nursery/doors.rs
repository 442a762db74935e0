//! Sockets in the network of a shell that is about to be born. They are handed to the engine, and no guest has them.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::sockopt::{set_ipv6_v6only, set_socket_reuseaddr};
use rustix::net::{
    AddressFamily, Ipv6Addr, SocketAddrV4, SocketAddrV6, SocketFlags, SocketType, bind, listen, socket_with,
};

use crate::doors::{RESOLVER, RESOLVER_PORT};

/// How many connections may wait to be accepted.
const BACKLOG: i32 = 1024;

/// A resolver, by datagrams and by streams, then a listener for each port, on every address.
pub(super) fn open(ports: &[u16]) -> io::Result<Vec<OwnedFd>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let resolver = SocketAddrV4::new(RESOLVER, RESOLVER_PORT);
    let datagrams = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
    bind(&datagrams, &resolver)?;
    let streams = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    // A listener on every address may have the same port.
    set_socket_reuseaddr(&streams, true)?;
    bind(&streams, &resolver)?;
    listen(&streams, BACKLOG)?;
    let mut doors = vec![datagrams, streams];
    for port in ports {
        let listener = socket_with(AddressFamily::INET6, SocketType::STREAM, flags, None)?;
        set_ipv6_v6only(&listener, false)?;
        set_socket_reuseaddr(&listener, true)?;
        bind(&listener, &SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, *port, 0, 0))?;
        listen(&listener, BACKLOG)?;
        doors.push(listener);
    }
    Ok(doors)
}
