//! The network that this process is in: its loopback interface, having that stand for the whole world, and talking to the
//! kernel about it.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{
    AddressFamily, Protocol, RawProtocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send,
    socket_with,
};

use super::checked;

/// Sets `lo` up. The kernel then adds 127.0.0.1 and ::1 by itself.
pub(crate) fn loopback_up() -> io::Result<()> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let mut request = interface("lo");
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads an ifreq, which `request` is.
    checked(libc::c_long::from(unsafe {
        libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request)
    }))?;
    Ok(())
}

/// Has every address of both versions lead to this namespace itself: `local default dev lo`.
pub(crate) fn everything_is_local() -> io::Result<()> {
    let netlink = Netlink::open(libc::NETLINK_ROUTE)?;
    for family in [libc::AF_INET, libc::AF_INET6] {
        match netlink.ask_all(&[local_default(family as u8)]) {
            // A machine without the sixth version has none to lead anywhere.
            Err(error) if family == libc::AF_INET6 && is_without(&error) => {}
            result => result?,
        }
    }
    Ok(())
}

/// Whether that version of addresses is not there at all.
pub(crate) fn is_without(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP | libc::ENODEV | libc::EACCES)
    )
}

/// `RTAX_CC_ALGO`.
const CONGESTION_OF_A_ROUTE: u16 = 16;

/// Index of `lo`, which is the first in every namespace.
const LOOPBACK: u32 = 1;

/// The message for one family's route.
fn local_default(family: u8) -> Vec<u8> {
    const HEAD: usize = 16;
    const ROUTE: usize = 12;
    const ATTRIBUTE: usize = 8;
    // Nothing is lost there and nobody has to be waited for: whatever this machine does about the world is in the way. This one is
    // in every kernel.
    const CONGESTION: &[u8; 8] = b"reno\0\0\0\0";
    const METRICS: usize = 4 + 4 + CONGESTION.len();
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_REPLACE) as u16;
    let length = HEAD + ROUTE + ATTRIBUTE + METRICS;
    let mut message = Vec::with_capacity(length);
    message.extend((length as u32).to_ne_bytes());
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
    message.extend((METRICS as u16).to_ne_bytes());
    message.extend(libc::RTA_METRICS.to_ne_bytes());
    message.extend(((4 + CONGESTION.len()) as u16).to_ne_bytes());
    message.extend(CONGESTION_OF_A_ROUTE.to_ne_bytes());
    message.extend(CONGESTION);
    message
}

/// Somebody of the kernel's to talk to about the network that this process is in.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: OwnedFd,
}

impl Netlink {
    pub(crate) fn open(protocol: libc::c_int) -> io::Result<Self> {
        let protocol = u32::try_from(protocol).ok().and_then(RawProtocol::new);
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            protocol.map(Protocol::from_raw),
        )?;
        Ok(Self { socket })
    }

    /// Sends these together, and hears of each that wants an answer whether the kernel did what it says.
    pub(crate) fn ask_all(&self, messages: &[Vec<u8>]) -> io::Result<()> {
        send(&self.socket, &messages.concat(), SendFlags::empty())?;
        let answered = |message: &&Vec<u8>| {
            let flags = message.get(6..8).and_then(|bytes| bytes.first_chunk());
            flags.is_some_and(|flags| u16::from_ne_bytes(*flags) & libc::NLM_F_ACK as u16 != 0)
        };
        let mut expected = messages.iter().filter(answered).count();
        let mut answer = [0u8; 8192];
        while expected > 0 {
            let (size, _) = recv(&self.socket, answer.as_mut_slice(), RecvFlags::empty())?;
            let mut rest = &answer[..size];
            // A head, which begins with a length, then the error.
            while let Some((length, errno)) = read_answer(rest) {
                if errno != 0 {
                    return Err(io::Error::from_raw_os_error(-errno));
                }
                expected = expected.saturating_sub(1);
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            }
            if size == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }
}

fn read_answer(bytes: &[u8]) -> Option<(usize, i32)> {
    let length = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
    let errno = i32::from_ne_bytes(*bytes.get(16..)?.first_chunk()?);
    (length >= 20).then_some((length, errno))
}

/// Interfaces that are up, `lo` apart.
pub(crate) fn others_that_are_up() -> io::Result<Vec<String>> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // The kernel shows everyone his own.
    let text = std::fs::read_to_string("/proc/self/net/dev")?;
    let names = text
        .lines()
        .filter_map(|line| Some(line.split_once(':')?.0.trim()));
    let mut others = Vec::new();
    for name in names.filter(|name| *name != "lo") {
        let mut request = interface(name);
        // SAFETY: SIOCGIFFLAGS reads and writes an ifreq, which `request` is.
        checked(libc::c_long::from(unsafe {
            libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut request)
        }))?;
        // SAFETY: the kernel has just written the flags there.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        if libc::c_int::from(flags) & libc::IFF_UP != 0 {
            others.push(name.to_owned());
        }
    }
    Ok(others)
}

/// A question about an interface of that name.
fn interface(name: &str) -> libc::ifreq {
    // SAFETY: ifreq is integers and byte arrays, for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request
        .ifr_name
        .iter_mut()
        .zip(name.bytes().take(libc::IFNAMSIZ - 1))
    {
        *to = from as libc::c_char;
    }
    request
}
