//! What a session printed, the latest of it.

use std::collections::VecDeque;

use belljar_core::provider::Stream;

/// A bounded memory of both streams.
#[derive(Debug)]
pub(super) struct Log {
    pieces: VecDeque<(Stream, Vec<u8>)>,
    held: usize,
    cap: usize,
    dropped: u64,
}

/// What a session printed so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Logs {
    pub stdout: String,
    pub stderr: String,
    /// How many bytes from the beginning are no longer held.
    pub dropped: u64,
}

impl Log {
    pub(super) const fn new(cap: usize) -> Self {
        Self {
            pieces: VecDeque::new(),
            held: 0,
            cap,
            dropped: 0,
        }
    }

    pub(super) fn push(&mut self, stream: Stream, bytes: &[u8]) {
        // Small writes share a piece, so that a guest's single bytes do not cost a piece each.
        match self.pieces.back_mut() {
            Some((last, piece)) if *last == stream && piece.len() < 4096 => piece.extend_from_slice(bytes),
            _ => self.pieces.push_back((stream, bytes.to_vec())),
        }
        self.held += bytes.len();
        while self.held > self.cap {
            let excess = self.held - self.cap;
            let Some((_, piece)) = self.pieces.front_mut() else {
                break;
            };
            let gone = excess.min(piece.len());
            piece.drain(..gone);
            if piece.is_empty() {
                self.pieces.pop_front();
            }
            self.held -= gone;
            self.dropped += gone as u64;
        }
    }

    pub(super) fn read(&self) -> Logs {
        let text = |wanted: Stream| {
            let bytes: Vec<u8> = self
                .pieces
                .iter()
                .filter(|(stream, _)| *stream == wanted)
                .flat_map(|(_, piece)| piece.iter().copied())
                .collect();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        Logs {
            stdout: text(Stream::Stdout),
            stderr: text(Stream::Stderr),
            dropped: self.dropped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_is_kept_and_the_rest_counted() {
        let mut log = Log::new(10);
        for _ in 0..3 {
            log.push(Stream::Stdout, b"abc");
        }
        log.push(Stream::Stderr, b"!?");
        let logs = log.read();
        assert_eq!((logs.stdout.as_str(), logs.stderr.as_str()), ("bcabcabc", "!?"));
        assert_eq!(logs.dropped, 1);
        log.push(Stream::Stdout, &[b'x'; 1000]);
        assert_eq!(log.read().stdout, "xxxxxxxxxx");
        assert_eq!(log.read().dropped, 1001);
    }
}
