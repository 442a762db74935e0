//! Frames for interpreters: four bytes of length, then a body, JSON or not, with descriptors on the first byte
//! (guest/PROTOCOL.md).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{MAX_BODY, MAX_FDS};

/// Sends a message on a blocking socket.
pub(crate) fn send_json(socket: impl AsFd, message: &Value, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    send_bytes(socket, message.to_string().as_bytes(), fds)
}

/// Sends a message that is no JSON.
pub(crate) fn send_bytes(socket: impl AsFd, body: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let length = u32::try_from(body.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let frame = [&length.to_le_bytes(), body].concat();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    let mut rest = &frame[..];
    while !rest.is_empty() {
        let sent = rustix::io::retry_on_intr(|| {
            rustix::net::sendmsg(&socket, &[IoSlice::new(rest)], &mut control, SendFlags::NOSIGNAL)
        })?;
        rest = &rest[sent..];
        control.clear();
    }
    Ok(())
}

/// Receives a message on a blocking socket.
pub(crate) fn receive_json<T: DeserializeOwned>(socket: impl AsFd) -> io::Result<(T, Vec<OwnedFd>)> {
    let (body, fds) = receive_bytes(socket)?;
    let message = serde_json::from_slice(&body).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok((message, fds))
}

/// Receives a message that is no JSON.
pub(crate) fn receive_bytes(socket: impl AsFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut fds = Vec::new();
    let mut header = [0u8; 4];
    fill(socket.as_fd(), &mut header, &mut fds)?;
    let length = u32::from_le_bytes(header) as usize;
    if length > MAX_BODY {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut body = vec![0; length];
    fill(socket.as_fd(), &mut body, &mut fds)?;
    Ok((body, fds))
}

fn fill(socket: BorrowedFd<'_>, mut buffer: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<()> {
    while !buffer.is_empty() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = rustix::io::retry_on_intr(|| {
            let into = &mut [IoSliceMut::new(buffer)];
            rustix::net::recvmsg(socket, into, &mut control, RecvFlags::CMSG_CLOEXEC)
        })?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                fds.extend(received);
            }
        }
        if received.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buffer = &mut buffer[received.bytes..];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_and_descriptors_arrive_together() {
        let (a, b) = crate::wire::pair().unwrap();
        let message = serde_json::json!({"op": "fork", "calls": [1, 2]});
        send_json(&a, &message, &[b.as_fd()]).unwrap();
        let (heard, fds) = receive_json::<Value>(&b).unwrap();
        assert_eq!((heard, fds.len()), (message, 1));
        rustix::io::write(&a, b"\xff\xff\xff\xff").unwrap();
        assert!(receive_json::<Value>(&b).is_err());
    }
}
