//! Opening doors: sockets in the network that this process is in.

use std::io;
use std::os::fd::OwnedFd;

use belljar_core::egress::{Ports, RESOLVER, RESOLVER_PORT};
use rustix::io::Errno;
use rustix::net::sockopt::{set_ipv6_v6only, set_socket_reuseaddr};
use rustix::net::{
    AddressFamily, Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6, SocketFlags, SocketType, bind, listen,
    socket_with,
};

use super::netfilter;

/// How many connections may wait to be accepted.
const BACKLOG: i32 = 1024;
/// Where connections to all ports are redirected to. Whoever connects to it directly is taken for what he asked for as well.
const REDIRECTED: u16 = 65_535;

/// A resolver, by datagrams and by streams, then a listener for each port, on every address; or one for all ports.
pub(super) fn open(ports: &Ports) -> io::Result<Vec<OwnedFd>> {
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
    match ports {
        Ports::These(ports) => {
            for port in ports {
                doors.push(listener(*port)?);
            }
        }
        Ports::All => {
            doors.push(listener(REDIRECTED)?);
            netfilter::redirect(REDIRECTED)?;
        }
    }
    Ok(doors)
}

/// Takes what comes to that port, whatever the address.
fn listener(port: u16) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener = match socket_with(AddressFamily::INET6, SocketType::STREAM, flags, None) {
        Ok(listener) => {
            set_ipv6_v6only(&listener, false)?;
            set_socket_reuseaddr(&listener, true)?;
            bind(&listener, &SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0))?;
            listener
        }
        // A kernel without the sixth version.
        Err(Errno::AFNOSUPPORT) => {
            let listener = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
            set_socket_reuseaddr(&listener, true)?;
            bind(&listener, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port))?;
            listener
        }
        Err(error) => return Err(error.into()),
    };
    listen(&listener, BACKLOG)?;
    Ok(listener)
}
