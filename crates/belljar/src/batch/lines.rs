//! The lines of an input, one at a time. Only the line at hand is held, and of that only so much.

use std::io::{self, BufRead, BufReader, Read};

use belljar_core::Bytes;
use sha2::{Digest, Sha256};

/// The longest line that is read. Larger data belongs into files or mounts.
pub const LARGEST_LINE: Bytes = Bytes::from_mib(32);

/// One line that is not blank.
#[derive(Clone, Debug)]
pub struct Line {
    /// Counted from 1, blank lines as well.
    pub number: u64,
    /// Without its end; `None` where it is longer than [`LARGEST_LINE`].
    pub text: Option<Vec<u8>>,
    /// The SHA-256 of all of it without its end, in hexadecimal.
    pub hash: String,
    /// How many bytes of the input have been read up to its end.
    pub end: u64,
}

/// Reads lines. Blank ones are counted and left out.
#[derive(Debug)]
pub struct Lines<R> {
    input: BufReader<R>,
    number: u64,
    end: u64,
}

impl<R: Read> Lines<R> {
    pub fn new(input: R) -> Self {
        Self {
            input: BufReader::with_capacity(64 << 10, input),
            number: 0,
            end: 0,
        }
    }

    /// The next line, blank or not; `None` at the end.
    fn read(&mut self) -> io::Result<Option<Line>> {
        let mut text = Some(Vec::new());
        let mut hash = Sha256::new();
        let started_at = self.end;
        loop {
            let chunk = match self.input.fill_buf() {
                Ok(chunk) => chunk,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if chunk.is_empty() && self.end == started_at {
                return Ok(None);
            }
            let newline = chunk.iter().position(|byte| *byte == b'\n');
            let part = chunk.get(..newline.unwrap_or(chunk.len())).unwrap_or_default();
            hash.update(part);
            keep(&mut text, part);
            let over = newline.is_some() || chunk.is_empty();
            let used = part.len() + usize::from(newline.is_some());
            self.input.consume(used);
            self.end += used as u64;
            if over {
                self.number += 1;
                let digest = hash.finalize();
                return Ok(Some(Line {
                    number: self.number,
                    text,
                    hash: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
                    end: self.end,
                }));
            }
        }
    }
}

/// Adds to what is held of a line, or lets all of it go once it is too long.
fn keep(text: &mut Option<Vec<u8>>, part: &[u8]) {
    match text {
        Some(held) if (held.len() + part.len()) as u64 <= LARGEST_LINE.get() => held.extend_from_slice(part),
        _ => *text = None,
    }
}

impl<R: Read> Iterator for Lines<R> {
    type Item = io::Result<Line>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.read().transpose()? {
                Ok(line) if is_blank(&line) => {}
                other => return Some(other),
            }
        }
    }
}

fn is_blank(line: &Line) -> bool {
    line.text
        .as_ref()
        .is_some_and(|text| text.trim_ascii().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(input: &[u8]) -> Vec<Line> {
        Lines::new(input).map(Result::unwrap).collect()
    }

    #[test]
    fn blank_lines_count_and_are_left_out() {
        let found = lines(b"\n{}\r\n  \n\n[1]");
        let shown: Vec<_> = found
            .iter()
            .map(|line| (line.number, line.text.clone().unwrap(), line.end))
            .collect();
        assert_eq!(shown, [(2, b"{}\r".to_vec(), 5), (5, b"[1]".to_vec(), 12)]);
        assert!(lines(b"").is_empty());
        assert!(lines(b"\n \n").is_empty());
        assert_ne!(found[0].hash, found[1].hash);
        assert_eq!(found[1].hash, belljar_core::record::code_hash(b"[1]"));
    }

    #[test]
    fn a_line_that_is_too_long_is_let_go_and_the_next_one_is_read() {
        let long = io::repeat(b'x').take(LARGEST_LINE.get() + 1);
        let found: Vec<_> = Lines::new(long.chain(&b"\n{}\n"[..]))
            .map(Result::unwrap)
            .collect();
        assert_eq!(found.len(), 2);
        assert!(found[0].text.is_none());
        assert_eq!(found[1].text.as_deref(), Some(&b"{}"[..]));
        let just = io::repeat(b'x').take(LARGEST_LINE.get());
        assert!(Lines::new(just).next().unwrap().unwrap().text.is_some());
    }
}
