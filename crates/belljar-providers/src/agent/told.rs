//! What an agent says. It stands among guests, so nothing of it is believed to be well-formed.

use std::time::Duration;

use belljar_core::provider::Stream;
use belljar_linux::agent::wire::{HEAD, LIMITS, PIECE, VERSION, ask, tell};
use bytes::{Buf, Bytes, BytesMut};

/// The longest frame that an agent sends.
const LONGEST: usize = PIECE + 4096;

/// The longest name of a file that any file system has.
const LONGEST_NAME: usize = 255;

/// Which file it is, of all that a kernel knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Its two numbers as they stand in the kernel's own answer.
    pub device: u64,
    pub inode: u64,
}

/// One thing that an agent says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Hello {
        pid: u32,
        uid: u32,
        landlock: u32,
        ceilings: [u64; LIMITS],
    },
    Found {
        mode: u32,
        size: u64,
        identity: Identity,
    },
    Content(Bytes),
    Done(i32),
    Entry {
        mode: u32,
        size: u64,
        name: Vec<u8>,
    },
    Started,
    NotStarted {
        step: u32,
        errno: i32,
    },
    Output(Stream, Bytes),
    Said(Bytes),
    Silent,
    Ended {
        status: i32,
        cpu: Duration,
        memory_peak: u64,
    },
    InputTaken(usize),
    SayingTaken(usize),
    Usage {
        cpu: Duration,
        memory: u64,
        processes: u32,
        counters: [Vec<u8>; 3],
    },
}

impl Told {
    /// How much it takes while it waits to be heard.
    pub(crate) fn weight(&self) -> usize {
        const ITSELF: usize = 64;
        match self {
            Self::Output(_, bytes) | Self::Said(bytes) => bytes.len() + ITSELF,
            _ => ITSELF,
        }
    }

    /// Whether it belongs to an answer, and whether that ends with it.
    pub(crate) const fn answers(&self) -> Option<bool> {
        match self {
            Self::Found { .. } | Self::Content(_) | Self::Entry { .. } => Some(false),
            Self::Done(_) | Self::Usage { .. } => Some(true),
            _ => None,
        }
    }
}

/// It said what no agent says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the agent said something that is not understood: {0}")]
pub(crate) struct Nonsense(&'static str);

/// Puts together what comes in pieces.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    bytes: BytesMut,
}

impl Frames {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole one.
    pub(crate) fn next(&mut self) -> Result<Option<Told>, Nonsense> {
        let Some(([a, b, c, d, kind], rest)) = self.bytes.split_first_chunk::<HEAD>() else {
            return Ok(None);
        };
        let (size, kind) = (u32::from_le_bytes([*a, *b, *c, *d]) as usize, *kind);
        if size > LONGEST {
            return Err(Nonsense("a frame is too long"));
        }
        if rest.len() < size {
            return Ok(None);
        }
        self.bytes.advance(HEAD);
        read(kind, self.bytes.split_to(size).freeze())
            .ok_or(Nonsense("a frame of another kind"))
            .map(Some)
    }
}

fn read(kind: u8, mut body: Bytes) -> Option<Told> {
    Some(match kind {
        tell::HELLO => {
            let words = [
                body.try_get_u32_le(),
                body.try_get_u32_le(),
                body.try_get_u32_le(),
                body.try_get_u32_le(),
            ];
            let [Ok(VERSION), Ok(pid), Ok(uid), Ok(landlock)] = words else {
                return None;
            };
            let mut ceilings = [0; LIMITS];
            for ceiling in &mut ceilings {
                *ceiling = body.try_get_u64_le().ok()?;
            }
            Told::Hello {
                pid,
                uid,
                landlock,
                ceilings,
            }
        }
        tell::FOUND => Told::Found {
            mode: body.try_get_u32_le().ok()?,
            size: body.try_get_u64_le().ok()?,
            identity: Identity {
                device: body.try_get_u64_le().ok()?,
                inode: body.try_get_u64_le().ok()?,
            },
        },
        tell::CONTENT => Told::Content(body),
        tell::DONE => Told::Done(body.try_get_i32_le().ok()?),
        tell::ENTRY => Told::Entry {
            mode: body.try_get_u32_le().ok()?,
            size: body.try_get_u64_le().ok()?,
            name: (body.len() <= LONGEST_NAME).then(|| body.to_vec())?,
        },
        tell::STARTED => Told::Started,
        tell::NOT_STARTED => Told::NotStarted {
            step: body.try_get_u32_le().ok()?,
            errno: body.try_get_i32_le().ok()?,
        },
        tell::STDOUT => Told::Output(Stream::Stdout, body),
        tell::STDERR => Told::Output(Stream::Stderr, body),
        tell::SAID => Told::Said(body),
        tell::SILENT => Told::Silent,
        tell::ENDED => Told::Ended {
            status: body.try_get_i32_le().ok()?,
            cpu: Duration::from_micros(body.try_get_u64_le().ok()?),
            memory_peak: body.try_get_u64_le().ok()?.saturating_mul(1024),
        },
        tell::TAKEN => {
            let kind = body.try_get_u8().ok()?;
            let count = body.try_get_u32_le().ok()? as usize;
            match kind {
                ask::INPUT => Told::InputTaken(count),
                ask::SAY => Told::SayingTaken(count),
                _ => return None,
            }
        }
        tell::USAGE => {
            let cpu = Duration::from_micros(body.try_get_u64_le().ok()?);
            let memory = body.try_get_u64_le().ok()?;
            let processes = body.try_get_u32_le().ok()?;
            let mut counters = [const { Vec::new() }; 3];
            for counter in &mut counters {
                let size = body.try_get_u32_le().ok()? as usize;
                *counter = (body.len() >= size).then(|| body.split_to(size))?.to_vec();
            }
            Told::Usage {
                cpu,
                memory,
                processes,
                counters,
            }
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut frame = (body.len() as u32).to_le_bytes().to_vec();
        frame.push(kind);
        frame.extend(body);
        frame
    }

    #[test]
    fn frames_are_put_together_out_of_pieces() {
        let mut frames = Frames::default();
        let bytes = [
            frame(tell::DONE, &2i32.to_le_bytes()),
            frame(tell::STDOUT, b"hello"),
        ]
        .concat();
        for byte in &bytes[..bytes.len() - 1] {
            frames.push(&[*byte]);
        }
        assert_eq!(frames.next(), Ok(Some(Told::Done(2))));
        assert_eq!(frames.next(), Ok(None));
        frames.push(&bytes[bytes.len() - 1..]);
        let hello = Told::Output(Stream::Stdout, Bytes::from_static(b"hello"));
        assert_eq!(frames.next(), Ok(Some(hello)));
        assert_eq!(frames.next(), Ok(None));
    }

    proptest::proptest! {
        /// Whatever comes, in whatever pieces: it is read or refused, and no more is kept than one frame and a piece.
        #[test]
        fn any_bytes_are_read_or_refused(
            pieces in proptest::collection::vec(proptest::collection::vec(0u8..24, 0..64), 0..64),
        ) {
            let mut frames = Frames::default();
            'all: for piece in &pieces {
                frames.push(piece);
                loop {
                    match frames.next() {
                        Ok(Some(_)) => {}
                        Ok(None) => break,
                        Err(Nonsense(_)) => break 'all,
                    }
                }
                proptest::prop_assert!(frames.bytes.len() <= LONGEST + HEAD + 64);
            }
        }
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        let bad = [
            frame(200, b""),
            frame(tell::DONE, b"12"),
            frame(tell::HELLO, &[9; 16]),
            frame(tell::TAKEN, &[99, 1, 0, 0, 0]),
            frame(tell::USAGE, &[0xff; 24]),
            u32::MAX
                .to_le_bytes()
                .iter()
                .copied()
                .chain([tell::STDOUT])
                .collect(),
        ];
        for bytes in bad {
            let mut frames = Frames::default();
            frames.push(&bytes);
            assert!(frames.next().is_err(), "{bytes:?}");
        }
    }
}
