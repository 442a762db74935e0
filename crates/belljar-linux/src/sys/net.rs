//! Bringing up the loopback interface of an empty network namespace, and having it stand for the whole world.

use std::io;
use std::mem;
use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::checked;

/// Sets `lo` up. The kernel then adds 127.0.0.1 and ::1 by itself.
pub(crate) fn loopback_up() -> io::Result<()> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: ifreq is integers and byte arrays, for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads an ifreq, which `request` is.
    checked(libc::c_long::from(unsafe {
        libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request)
    }))?;
    Ok(())
}

/// Has every address of both versions lead to this namespace itself: `local default dev lo`.
pub(crate) fn everything_is_local() -> io::Result<()> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None,
    )?;
    for family in [libc::AF_INET, libc::AF_INET6] {
        match ask_kernel(&socket, &local_default(family as u8)) {
            // A machine without the sixth version has none to lead anywhere.
            Err(error) if family == libc::AF_INET6 && is_without(&error) => {}
            result => result?,
        }
    }
    Ok(())
}

fn is_without(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP | libc::ENODEV | libc::EACCES)
    )
}

/// Index of `lo`, which is the first in every namespace.
const LOOPBACK: u32 = 1;

/// The message for one family's route.
fn local_default(family: u8) -> Vec<u8> {
    const HEAD: usize = 16;
    const ROUTE: usize = 12;
    const ATTRIBUTE: usize = 8;
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_REPLACE) as u16;
    let mut message = Vec::with_capacity(HEAD + ROUTE + ATTRIBUTE);
    message.extend(((HEAD + ROUTE + ATTRIBUTE) as u32).to_ne_bytes());
    message.extend(libc::RTM_NEWROUTE.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    // Number and sender.
    message.extend(1u32.to_ne_bytes());
    message.extend(0u32.to_ne_bytes());
    // Every destination, whatever the source; in the table of what is local.
    message.extend([family, 0, 0, 0, libc::RT_TABLE_LOCAL]);
    message.extend([libc::RTPROT_BOOT, libc::RT_SCOPE_HOST, libc::RTN_LOCAL]);
    message.extend(0u32.to_ne_bytes());
    message.extend((ATTRIBUTE as u16).to_ne_bytes());
    message.extend(libc::RTA_OIF.to_ne_bytes());
    message.extend(LOOPBACK.to_ne_bytes());
    message
}

/// Sends a message and hears whether the kernel did what it says.
fn ask_kernel(socket: &std::os::fd::OwnedFd, message: &[u8]) -> io::Result<()> {
    rustix::net::send(socket, message, rustix::net::SendFlags::empty())?;
    let mut answer = [0u8; 512];
    let (size, _) = rustix::net::recv(socket, answer.as_mut_slice(), rustix::net::RecvFlags::empty())?;
    // A head, then the error.
    match answer[..size].get(16..20).and_then(|bytes| bytes.first_chunk()) {
        Some(errno) => match i32::from_ne_bytes(*errno) {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(-errno)),
        },
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}
