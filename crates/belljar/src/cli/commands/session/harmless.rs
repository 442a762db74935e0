//! A guest's text made harmless for a terminal, piece by piece.
//!
//! Escape sequences could move the cursor, forge our own lines, or make a terminal type. So every
//! character that acts on one is shown instead of sent, but for the ends of lines, tabs and the
//! carriage return that progress bars need.

use std::fmt::Write;

use crate::cli::messages::acts_on_terminal;

/// Remembers a character that was cut in two between pieces.
#[derive(Debug, Default)]
pub(super) struct Harmless {
    begun: Vec<u8>,
}

impl Harmless {
    /// The next piece.
    pub(super) fn pass(&mut self, bytes: &[u8]) -> String {
        let mut joined = std::mem::take(&mut self.begun);
        joined.extend_from_slice(bytes);
        let mut shown = String::with_capacity(joined.len());
        let mut rest = joined.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    show(text, &mut shown);
                    return shown;
                }
                Err(error) => {
                    let (good, bad) = rest.split_at(error.valid_up_to());
                    show(std::str::from_utf8(good).unwrap_or_default(), &mut shown);
                    let Some(wrong) = error.error_len() else {
                        self.begun = bad.to_vec();
                        return shown;
                    };
                    escape(&bad[..wrong], &mut shown);
                    rest = &bad[wrong..];
                }
            }
        }
    }

    /// What is left when no more comes.
    pub(super) fn end(&mut self) -> String {
        let mut shown = String::new();
        escape(&std::mem::take(&mut self.begun), &mut shown);
        shown
    }
}

/// A whole text at once.
pub(super) fn harmless(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    show(text, &mut shown);
    shown
}

fn show(text: &str, shown: &mut String) {
    for c in text.chars() {
        if acts_on_terminal(c) && !matches!(c, '\n' | '\t' | '\r') {
            // Writing into a string does not fail.
            let _ = write!(shown, "{}", c.escape_default());
        } else {
            shown.push(c);
        }
    }
}

fn escape(bytes: &[u8], shown: &mut String) {
    for byte in bytes {
        let _ = write!(shown, "\\x{byte:02x}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P52.
    #[test]
    fn escape_sequences_are_shown_and_not_sent() {
        let mut stream = Harmless::default();
        assert_eq!(
            stream.pass(b"a\x1b[2Jb\x07\x08\n\t50%\r"),
            "a\\u{1b}[2Jb\\u{7}\\u{8}\n\t50%\r"
        );
        assert_eq!(
            stream.pass("\u{9b}31m\u{202e}x".as_bytes()),
            "\\u{9b}31m\\u{202e}x"
        );
        assert_eq!(harmless("\x1b]0;title\x07"), "\\u{1b}]0;title\\u{7}");
    }

    #[test]
    fn characters_may_be_cut_anywhere() {
        let text = "aé日\u{1f980}z";
        for size in 1..=4 {
            let mut stream = Harmless::default();
            let shown: String = text
                .as_bytes()
                .chunks(size)
                .map(|piece| stream.pass(piece))
                .collect();
            assert_eq!(shown + &stream.end(), text);
        }
        let mut stream = Harmless::default();
        assert_eq!(stream.pass(b"\xff\xc3"), "\\xff");
        assert_eq!(stream.pass(b"x"), "\\xc3x");
        assert_eq!(stream.pass(b"\xe6\x97"), "");
        assert_eq!(stream.end(), "\\xe6\\x97");
    }
}
