//! Reads a runner's frames: four bytes of length, little endian, then a message.
//!
//! Whoever sends them is hostile. So memory is taken only as bytes arrive, a message of more than [`MAX_MESSAGE_BYTES`] is looked at
//! and not kept, and a session costs its engine at most one message that is not complete.

use crate::provider::{LONGEST_MESSAGE, MAX_MESSAGE_BYTES};
use crate::value::{JsonCaps, JsonScan, ValueError};

/// How much room a message gets before more than its length has come.
const FIRST_ROOM: usize = 64 << 10;

/// The frames of one channel.
#[derive(Debug, Default)]
pub struct FrameReader {
    /// What has come and belongs to no frame yet, from `at` on.
    incoming: Vec<u8>,
    at: usize,
    current: Option<Frame>,
}

#[derive(Debug)]
enum Frame {
    /// One that is kept: what has come of it, and how long it will be.
    Kept(Vec<u8>, usize),
    /// One that is too long. It is counted to its end, so that the reason names what is wrong with it first.
    Skipped(Box<JsonScan>, usize),
}

impl FrameReader {
    /// Adds what has come. Call [`next_message`](Self::next_message) until it gives nothing before adding more: then at most one piece waits here.
    pub fn push(&mut self, bytes: &[u8]) {
        self.incoming.drain(..self.at);
        self.at = 0;
        self.incoming.extend_from_slice(bytes);
    }

    /// The next whole message; nothing while none has come. An error is why nothing more can be read on this channel.
    pub fn next_message(&mut self) -> Result<Option<Vec<u8>>, String> {
        if self.current.is_none() {
            let Some((header, _)) = self.incoming[self.at..].split_first_chunk::<4>() else {
                return Ok(None);
            };
            let length = u32::from_le_bytes(*header) as usize;
            self.at += 4;
            self.current = Some(Frame::new(length)?);
        }
        let Some(frame) = &mut self.current else {
            return Ok(None);
        };
        let end = self.at + frame.missing().min(self.incoming.len() - self.at);
        let taken = frame.take(&self.incoming[self.at..end]);
        self.at = end;
        if self.at == self.incoming.len() {
            (self.incoming, self.at) = (Vec::new(), 0);
        }
        taken.map_err(|error| format!("a message: {error}"))?;
        match self.current.take_if(|frame| frame.missing() == 0) {
            Some(Frame::Kept(message, _)) => Ok(Some(message)),
            Some(Frame::Skipped(..)) => {
                let error = ValueError::TooLong(MAX_MESSAGE_BYTES);
                Err(format!("a message: {error}"))
            }
            None => Ok(None),
        }
    }
}

impl Frame {
    fn new(length: usize) -> Result<Self, String> {
        if length > LONGEST_MESSAGE {
            return Err(format!("a message of {length} bytes was announced"));
        }
        Ok(if length > MAX_MESSAGE_BYTES {
            Self::Skipped(Box::new(JsonScan::new(JsonCaps::MESSAGE)), length)
        } else {
            Self::Kept(Vec::new(), length)
        })
    }

    fn missing(&self) -> usize {
        match self {
            Self::Kept(message, length) => length - message.len(),
            Self::Skipped(_, left) => *left,
        }
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), ValueError> {
        match self {
            Self::Kept(message, length) => {
                if message.capacity() - message.len() < bytes.len() {
                    // Doubled, as a vector would be, but never beyond what the whole message needs.
                    let room = (2 * message.capacity())
                        .max(FIRST_ROOM)
                        .max(message.len() + bytes.len());
                    message.reserve_exact(room.min(*length) - message.len());
                }
                message.extend_from_slice(bytes);
                Ok(())
            }
            Self::Skipped(scan, left) => {
                *left -= bytes.len();
                scan.push(bytes)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(body: &[u8]) -> Vec<u8> {
        let mut frame = u32::try_from(body.len()).unwrap().to_le_bytes().to_vec();
        frame.extend_from_slice(body);
        frame
    }

    /// What comes out of these bytes in pieces of that size.
    fn read(bytes: &[u8], piece: usize) -> (Vec<Vec<u8>>, Option<String>) {
        let mut reader = FrameReader::default();
        let mut messages = Vec::new();
        for piece in bytes.chunks(piece) {
            reader.push(piece);
            loop {
                match reader.next_message() {
                    Ok(Some(message)) => messages.push(message),
                    Ok(None) => break,
                    Err(why) => return (messages, Some(why)),
                }
            }
        }
        (messages, None)
    }

    #[test]
    fn messages_come_out_whole_whatever_the_pieces() {
        let bodies: [&[u8]; 4] = [b"{}", b"", &[b'x'; 200_000], b"last"];
        let bytes: Vec<u8> = bodies.iter().flat_map(|body| frame(body)).collect();
        for piece in [1, 3, 4, 5, 1000, 65_536, 1 << 20] {
            assert_eq!(
                read(&bytes, piece),
                (bodies.map(<[u8]>::to_vec).to_vec(), None),
                "{piece}"
            );
        }
        let (messages, why) = read(&bytes[..bytes.len() - 1], 7);
        assert_eq!((messages.len(), why), (3, None));
    }

    #[test]
    fn p64_a_message_that_is_too_long_is_not_kept() {
        let mut reader = FrameReader::default();
        reader.push(&u32::try_from(MAX_MESSAGE_BYTES + 1).unwrap().to_le_bytes());
        for _ in 0..17 {
            assert_eq!(reader.next_message(), Ok(None));
            reader.push(&vec![b' '; 1 << 20]);
        }
        assert_eq!(reader.next_message(), Ok(None));
        assert_eq!(reader.incoming.capacity(), 0);
        assert!(matches!(&reader.current, Some(Frame::Skipped(_, 1))));
        reader.push(b" ");
        assert!(reader.next_message().unwrap_err().contains("longer than"));
    }

    #[test]
    fn what_is_wrong_with_a_long_message_is_said_before_its_end() {
        let announce = |length: usize| u32::try_from(length).unwrap().to_le_bytes().to_vec();
        let mut deep = announce(60 << 20);
        deep.extend([b'['; 1000]);
        assert!(read(&deep, 64).1.unwrap().contains("nested deeper"));
        let mut many = announce(60 << 20);
        many.extend(b"0,".repeat(600_000));
        assert!(read(&many, 64 << 10).1.unwrap().contains("holds more"));
        assert!(
            read(&announce(LONGEST_MESSAGE + 1), 4)
                .1
                .unwrap()
                .contains("was announced")
        );
    }

    #[test]
    fn a_message_takes_no_more_room_than_its_length() {
        let mut reader = FrameReader::default();
        reader.push(&3_000_000u32.to_le_bytes());
        for _ in 0..3_000 {
            reader.push(&[b'x'; 1000]);
            match reader.next_message().unwrap() {
                Some(message) => assert_eq!(message.capacity(), 3_000_000),
                None => {
                    assert!(matches!(&reader.current, Some(Frame::Kept(m, _)) if m.capacity() <= 3_000_000))
                }
            }
        }
        assert!(reader.current.is_none());
    }
}
