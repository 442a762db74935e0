//! What engine, launcher and init say to each other: frames with descriptors attached.
//!
//! A frame is a header of eight bytes (length, number of descriptors), then the body. Descriptors
//! travel with the header. Both ends are ours; the limits are there so that a bug stays a bug.

mod interpreter;
mod messages;

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

pub(crate) use interpreter::{receive_bytes, receive_json, send_bytes, send_json};
pub(crate) use messages::*;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, socketpair,
};
use rustix::time::Timespec;
use serde::{Serialize, de::DeserializeOwned};

/// The longest body. The kernel's own limit for arguments and variables together is a few MiB.
pub(crate) const MAX_BODY: usize = 16 << 20;
/// The most descriptors in one frame.
pub(crate) const MAX_FDS: usize = 64;

/// How many milliseconds to wait for room for descriptors.
const PATIENCE: u32 = 2000;

/// Reads a body. Refuses what is longer than a frame may be and what has bytes left over.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    if bytes.len() > MAX_BODY {
        return Err(broken("a frame is too long"));
    }
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok(_) => Err(broken("a frame has bytes left over")),
        Err(_) => Err(broken("a frame cannot be read")),
    }
}

fn broken(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Header and body of one message.
pub(crate) struct Frame {
    header: [u8; 8],
    body: Vec<u8>,
}

impl Frame {
    pub(crate) fn new<T: Serialize>(message: &T, fds: usize) -> io::Result<Self> {
        let body = postcard::to_allocvec(message).map_err(|_| broken("a message cannot be written"))?;
        if body.len() > MAX_BODY || fds > MAX_FDS {
            return Err(broken("a message is too long"));
        }
        let mut header = [0; 8];
        header[..4].copy_from_slice(&(body.len() as u32).to_le_bytes());
        header[4..].copy_from_slice(&(fds as u32).to_le_bytes());
        Ok(Self { header, body })
    }

    /// Sends as much as the socket takes, from `done` bytes on; the new count. The descriptors go
    /// with the first byte.
    pub(crate) fn send_some(
        &self,
        socket: BorrowedFd<'_>,
        fds: &[BorrowedFd<'_>],
        done: usize,
    ) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if done == 0 && !fds.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(fds));
        }
        let sent = if done < self.header.len() {
            let parts = [IoSlice::new(&self.header[done..]), IoSlice::new(&self.body)];
            rustix::net::sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL)?
        } else {
            let rest = &self.body[done - self.header.len()..];
            rustix::net::sendmsg(socket, &[IoSlice::new(rest)], &mut control, SendFlags::NOSIGNAL)?
        };
        Ok(done + sent)
    }

    pub(crate) fn len(&self) -> usize {
        self.header.len() + self.body.len()
    }
}

/// The two ends of a socket for frames.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// Sends a message on a blocking socket.
pub(crate) fn send<T: Serialize>(socket: impl AsFd, message: &T, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let frame = Frame::new(message, fds.len())?;
    let (mut done, mut patience) = (0, PATIENCE);
    while done < frame.len() {
        match frame.send_some(socket.as_fd(), fds, done) {
            Ok(count) => done = count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Descriptors that others of the same user have sent and nobody has received yet count as well.
            // They are soon received.
            Err(error) if error.raw_os_error() == Some(libc::ETOOMANYREFS) && patience > 0 => {
                patience -= 1;
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A message that is on its way in.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
    /// Whether the kernel dropped descriptors because this process may not have more.
    cut: bool,
}

/// Descriptors that came with a message; none where this process could not have them all.
type Attached = Option<Vec<OwnedFd>>;

impl Incoming {
    /// Receives what is there; `Some` once a whole message is. An end between messages is
    /// `UnexpectedEof`.
    pub(crate) fn receive_some<T: DeserializeOwned>(
        &mut self,
        socket: BorrowedFd<'_>,
    ) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        match self.receive_part(socket)? {
            Some((message, Some(fds))) => Ok(Some((message, fds))),
            Some((_, None)) => Err(too_many_open()),
            None => Ok(None),
        }
    }

    fn receive_part<T: DeserializeOwned>(
        &mut self,
        socket: BorrowedFd<'_>,
    ) -> io::Result<Option<(T, Attached)>> {
        let wanted = self.wanted()?;
        let have = self.bytes.len();
        self.bytes.resize(wanted, 0);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = rustix::net::recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut self.bytes[have..])],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        );
        let count = match received {
            Ok(message) => {
                self.cut |= message.flags.contains(ReturnFlags::CTRUNC);
                message.bytes
            }
            Err(error) => {
                self.bytes.truncate(have);
                return Err(error.into());
            }
        };
        self.bytes.truncate(have + count);
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                self.fds.extend(fds);
            }
        }
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if self.bytes.len() < self.wanted()? || self.bytes.len() < 8 {
            return Ok(None);
        }
        let expected = u32_at(&self.bytes, 4) as usize;
        let message = decode(&self.bytes[8..])?;
        let fds = std::mem::take(&mut self.fds);
        self.bytes.clear();
        match (fds.len() == expected, std::mem::take(&mut self.cut)) {
            (true, _) => Ok(Some((message, Some(fds)))),
            (false, true) => Ok(Some((message, None))),
            (false, false) => Err(broken("a frame lost its descriptors")),
        }
    }

    /// How many bytes the message has in all, as far as that is known yet.
    fn wanted(&self) -> io::Result<usize> {
        if self.bytes.len() < 8 {
            return Ok(8);
        }
        let body = u32_at(&self.bytes, 0) as usize;
        if body > MAX_BODY {
            Err(broken("a frame is too long"))
        } else {
            Ok(8 + body)
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..at + 4)
        .and_then(|four| four.try_into().ok())
        .map_or(0, u32::from_le_bytes)
}

/// Receives a message on a blocking socket.
pub(crate) fn receive<T: DeserializeOwned>(socket: impl AsFd) -> io::Result<(T, Vec<OwnedFd>)> {
    let (message, fds) = receive_attached(socket)?;
    Ok((message, fds.ok_or_else(too_many_open)?))
}

/// [`receive`], which must begin to arrive within that time.
pub(crate) fn receive_within<T: DeserializeOwned>(
    socket: impl AsFd,
    most: Duration,
) -> io::Result<(T, Vec<OwnedFd>)> {
    let until = Instant::now() + most;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut waits = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
        match poll(&mut waits, Some(&timeout)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return receive(socket),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn too_many_open() -> io::Error {
    io::Error::from_raw_os_error(libc::EMFILE)
}

/// [`receive`] for one who goes on when there is no room for the descriptors of a message.
pub(crate) fn receive_attached<T: DeserializeOwned>(socket: impl AsFd) -> io::Result<(T, Attached)> {
    let mut incoming = Incoming::default();
    loop {
        match incoming.receive_part(socket.as_fd()) {
            Ok(Some(message)) => return Ok(message),
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        super::pair().unwrap()
    }

    #[test]
    fn messages_and_descriptors_arrive_together() {
        let (a, b) = pair();
        let note = InitEvent::Ready {
            notes: vec![Note::ProcMounted, Note::Landlock(7)],
        };
        send(&a, &note, &[b.as_fd()]).unwrap();
        send(&a, &InitEvent::FilePut, &[]).unwrap();
        let (event, fds) = receive::<InitEvent>(&b).unwrap();
        assert!(matches!(event, InitEvent::Ready { notes } if notes.len() == 2));
        assert_eq!(fds.len(), 1);
        assert!(matches!(receive::<InitEvent>(&b), Ok((InitEvent::FilePut, fds)) if fds.is_empty()));
        drop(a);
        assert_eq!(
            receive::<InitEvent>(&b).unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
    }

    #[test]
    fn a_long_message_arrives_in_pieces() {
        let (a, b) = pair();
        let path = "x".repeat(3 << 20);
        let sender = std::thread::spawn(move || {
            send(
                &a,
                &InitRequest::PutFile {
                    path,
                    executable: true,
                },
                &[],
            )
            .unwrap();
        });
        let (request, _) = receive::<InitRequest>(&b).unwrap();
        assert!(matches!(request, InitRequest::PutFile { path, executable: true } if path.len() == 3 << 20));
        sender.join().unwrap();
    }

    #[test]
    fn a_header_that_lies_is_refused() {
        for header in [[0xff; 8], [0, 0, 0, 0xff, 0, 0, 0, 0], [1, 0, 0, 0, 9, 0, 0, 0]] {
            let (a, b) = pair();
            rustix::io::write(&a, &header).unwrap();
            rustix::io::write(&a, &[2]).unwrap();
            assert_eq!(
                receive::<InitEvent>(&b).unwrap_err().kind(),
                io::ErrorKind::InvalidData
            );
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
            let _ = decode::<InitEvent>(&bytes);
            let _ = decode::<LauncherEvent>(&bytes);
            let _ = decode::<InitRequest>(&bytes);
            let _ = decode::<LauncherRequest>(&bytes);
            let _ = decode::<NurseryEvent>(&bytes);
            let _ = decode::<NurseryRequest>(&bytes);
        }

        #[test]
        fn any_stream_of_frames_ends_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            let (a, b) = pair();
            rustix::io::write(&a, &bytes).unwrap();
            drop(a);
            while receive::<InitEvent>(&b).is_ok() {}
        }
    }
}
