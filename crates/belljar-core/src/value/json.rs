//! JSON from anywhere: bounded before anything is built of it.

use serde::Deserialize;

use super::Value;
use crate::provider::MAX_MESSAGE_BYTES;

/// The deepest value that is written. Reading has caps of its own.
const DEEPEST_WRITTEN: usize = 1_000;

/// How much of somebody else's JSON is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonCaps {
    pub bytes: usize,
    /// Brackets within brackets.
    pub depth: usize,
    /// Values of any kind, all levels together: each costs memory whatever its length.
    pub items: usize,
}

impl JsonCaps {
    /// For a runner's message. Once built a value takes 32 to 100 bytes, so the number of values, and not the length, decides how much
    /// memory a message costs.
    pub const MESSAGE: Self = Self {
        bytes: MAX_MESSAGE_BYTES,
        depth: 200,
        items: 500_000,
    };
}

/// Why something is no value.
#[derive(Debug, thiserror::Error)]
pub enum ValueError {
    #[error("it is nested deeper than {0}")]
    TooDeep(usize),
    #[error("it is longer than {0} bytes")]
    TooLong(usize),
    #[error("it holds more than {0} values")]
    TooMany(usize),
    #[error("it could not be read: {0}")]
    Unread(String),
    #[error("it is not JSON: {0}")]
    NotJson(#[from] serde_json::Error),
}

/// Checks whether JSON is within `caps` without building anything, and counts its values.
pub fn check_json(bytes: &[u8], caps: JsonCaps) -> Result<usize, ValueError> {
    if bytes.len() > caps.bytes {
        return Err(ValueError::TooLong(caps.bytes));
    }
    let mut scan = JsonScan::new(caps);
    scan.push(bytes)?;
    Ok(scan.items)
}

/// Counts the depth and the values of JSON that comes in pieces. It keeps none of it.
#[derive(Clone, Debug)]
pub struct JsonScan {
    caps: JsonCaps,
    depth: usize,
    items: usize,
    in_text: bool,
    escaped: bool,
}

impl JsonScan {
    pub const fn new(caps: JsonCaps) -> Self {
        Self {
            caps,
            depth: 0,
            items: 1,
            in_text: false,
            escaped: false,
        }
    }

    /// Looks at the next piece. The cap on bytes is the caller's to check.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), ValueError> {
        for byte in bytes {
            if self.in_text {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_text = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => self.in_text = true,
                b'[' | b'{' => {
                    self.depth += 1;
                    self.items += 1;
                }
                b']' | b'}' => self.depth = self.depth.saturating_sub(1),
                b',' | b':' => self.items += 1,
                _ => continue,
            }
            if self.depth > self.caps.depth {
                return Err(ValueError::TooDeep(self.caps.depth));
            }
            if self.items > self.caps.items {
                return Err(ValueError::TooMany(self.caps.items));
            }
        }
        Ok(())
    }
}

impl Value {
    /// Reads a value from JSON that anybody may have written.
    pub fn from_json(bytes: &[u8], caps: JsonCaps) -> Result<Self, ValueError> {
        check_json(bytes, caps)?;
        let mut deserializer = serde_json::Deserializer::from_slice(bytes);
        // Depth was bounded above, by our own number.
        deserializer.disable_recursion_limit();
        let value = Self::deserialize(&mut deserializer)?;
        deserializer.end()?;
        Ok(value)
    }

    /// Writes it; fails where it is nested absurdly deep.
    pub fn to_json(&self) -> Result<Vec<u8>, ValueError> {
        if !self.within_depth(DEEPEST_WRITTEN) {
            return Err(ValueError::TooDeep(DEEPEST_WRITTEN));
        }
        Ok(serde_json::to_vec(self)?)
    }
}
