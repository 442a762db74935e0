//! Data on standard output. A reader that went away is a quiet end, not an error.

use std::io::{self, BufWriter, Write};

use serde::Serialize;

use super::problem::Problem;

/// Writes `text` as it is.
pub(crate) fn print(text: &str) -> Result<(), Problem> {
    write_with(|out| out.write_all(text.as_bytes()))
}

/// Writes one JSON value on lines of its own.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Problem> {
    write_with(|out| {
        serde_json::to_writer_pretty(&mut *out, value)?;
        out.write_all(b"\n")
    })
}

/// Writes with `write`, all at once.
pub(crate) fn write_with(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Problem> {
    let mut out = BufWriter::new(io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(unwritable(&error)),
        _ => Ok(()),
    }
}

/// What to say when standard output takes nothing more.
pub(crate) fn unwritable(error: &io::Error) -> Problem {
    Problem::engine(format!("cannot write standard output: {error}"))
}
