//! The control channel to a runner: messages out as it takes them, messages in as they come.
//!
//! What comes in is the guest's: a length that is too large ends the channel, and memory is taken
//! only as bytes arrive, so that a length alone costs nothing.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use belljar_core::frame::FrameReader;
use rustix::net::SendFlags;
use tokio::io::unix::AsyncFd;

use crate::{sys, wire};

/// How much is read at once.
const CHUNK: usize = 64 << 10;

/// How long to wait where nobody tells when there is room again.
const AGAIN: Duration = Duration::from_millis(10);

/// The engine's end of a channel.
#[derive(Debug)]
pub(crate) struct Channel {
    socket: Option<AsyncFd<OwnedFd>>,
    /// There while something is queued.
    room: Option<AsyncFd<OwnedFd>>,
    incoming: FrameReader,
    /// Whether something came that is no message. It stays open then: a runner that is in the middle of a write would take the end
    /// of its channel for the end of its work, and exit before anybody could say what was wrong.
    broken: bool,
    outgoing: VecDeque<u8>,
}

/// What came over a channel.
#[derive(Debug)]
pub(crate) enum Incoming {
    Message(Vec<u8>),
    /// The other end is closed.
    Closed,
    Broken(String),
}

impl Channel {
    /// Our end, and the runner's.
    pub(crate) fn new() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = wire::pair()?;
        Ok((Self::of(ours)?, theirs))
    }

    /// The channel of a runner that waits.
    pub(crate) fn of(ours: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&ours, true)?;
        Ok(Self {
            socket: Some(sys::events::watch(ours)?),
            room: None,
            incoming: FrameReader::default(),
            broken: false,
            outgoing: VecDeque::new(),
        })
    }

    /// Queues a message.
    pub(crate) fn say(&mut self, message: &[u8]) {
        let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
        self.outgoing.extend(length.to_le_bytes());
        self.outgoing.extend(message);
        // Most messages fit at once; the rest goes while we listen.
        if let Some(socket) = &self.socket {
            let _ = send(socket.get_ref(), &mut self.outgoing);
        }
    }

    /// How many bytes are queued.
    pub(crate) fn unsaid(&self) -> usize {
        self.outgoing.len()
    }

    /// The next message; sends what is queued meanwhile. Cancel-safe. Pending for ever once closed.
    pub(crate) async fn next(&mut self) -> Incoming {
        loop {
            if self.broken {
                return std::future::pending().await;
            }
            match self.incoming.next_message() {
                Ok(Some(message)) => return Incoming::Message(message),
                Ok(None) => {}
                Err(why) => {
                    self.broken = true;
                    self.incoming = FrameReader::default();
                    return Incoming::Broken(why);
                }
            }
            let Some(socket) = &self.socket else {
                return std::future::pending().await;
            };
            if self.outgoing.is_empty() {
                self.room = None;
            } else if self.room.is_none() {
                self.room = sys::events::watch_room(socket).ok();
            }
            let room = async {
                match &self.room {
                    Some(room) => Some(room.writable().await),
                    None if self.outgoing.is_empty() => std::future::pending().await,
                    // There was no descriptor to be had for it.
                    None => {
                        tokio::time::sleep(AGAIN).await;
                        None
                    }
                }
            };
            let open = tokio::select! {
                ready = socket.readable() => match ready {
                    Ok(mut ready) => match receive(socket.get_ref(), &mut self.incoming) {
                        Ok(open) => open,
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                            ready.clear_ready();
                            true
                        }
                        Err(_) => false,
                    },
                    Err(_) => false,
                },
                ready = room => {
                    match (ready, send(socket.get_ref(), &mut self.outgoing)) {
                        (Some(Ok(mut ready)), Ok(())) => ready.clear_ready(),
                        (None, Ok(())) => {}
                        // Nobody will read it any more; what was said before may still be there to hear.
                        _ => self.outgoing.clear(),
                    }
                    true
                }
            };
            if !open {
                (self.socket, self.room) = (None, None);
                return Incoming::Closed;
            }
        }
    }
}

/// Sends as much as the socket takes.
fn send(socket: &OwnedFd, outgoing: &mut VecDeque<u8>) -> io::Result<()> {
    while !outgoing.is_empty() {
        match rustix::net::send(socket, outgoing.as_slices().0, SendFlags::NOSIGNAL) {
            Ok(count) => drop(outgoing.drain(..count)),
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    *outgoing = VecDeque::new();
    Ok(())
}

/// Reads once; false at the end.
fn receive(socket: &OwnedFd, incoming: &mut FrameReader) -> io::Result<bool> {
    let mut chunk = vec![0; CHUNK];
    let count = rustix::io::retry_on_intr(|| rustix::io::read(socket, &mut chunk))?;
    incoming.push(&chunk[..count]);
    Ok(count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    }

    #[test]
    fn messages_go_both_ways_even_when_they_are_large() {
        runtime().block_on(async {
            let (mut ours, theirs) = Channel::new().unwrap();
            let large = vec![7u8; 3 << 20];
            ours.say(&large);
            let echo = std::thread::spawn(move || {
                let mut file = std::fs::File::from(theirs);
                let mut message = vec![0u8; 4 + (3 << 20)];
                std::io::Read::read_exact(&mut file, &mut message).unwrap();
                std::io::Write::write_all(&mut file, &message).unwrap();
            });
            assert!(matches!(ours.next().await, Incoming::Message(message) if message == large));
            assert!(matches!(ours.next().await, Incoming::Closed));
            echo.join().unwrap();
        });
    }

    #[test]
    fn a_length_that_lies_ends_the_channel() {
        runtime().block_on(async {
            let (mut ours, theirs) = Channel::new().unwrap();
            rustix::io::write(&theirs, &[0xff; 8]).unwrap();
            assert!(matches!(ours.next().await, Incoming::Broken(_)));
            let more = tokio::time::timeout(std::time::Duration::from_millis(20), ours.next());
            assert!(more.await.is_err(), "nothing more is heard on it");
        });
    }
}
