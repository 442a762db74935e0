//! JSON from anywhere: bounded before anything is built of it.

use serde::Deserialize;

use super::Value;

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
    /// What is read of a runner's message.
    pub const MESSAGE: Self = Self {
        bytes: crate::provider::LONGEST_MESSAGE,
        depth: 200,
        items: 6_000_000,
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
    #[error("it is not JSON: {0}")]
    NotJson(#[from] serde_json::Error),
}

/// Looks at JSON without building anything of it: whether it is within `caps`.
pub fn check_json(bytes: &[u8], caps: JsonCaps) -> Result<(), ValueError> {
    if bytes.len() > caps.bytes {
        return Err(ValueError::TooLong(caps.bytes));
    }
    let (mut depth, mut items, mut in_text, mut escaped) = (0usize, 1usize, false, false);
    for byte in bytes {
        if in_text {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_text = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_text = true,
            b'[' | b'{' => {
                depth += 1;
                items += 1;
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' | b':' => items += 1,
            _ => {}
        }
        if depth > caps.depth {
            return Err(ValueError::TooDeep(caps.depth));
        }
        if items > caps.items {
            return Err(ValueError::TooMany(caps.items));
        }
    }
    Ok(())
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
