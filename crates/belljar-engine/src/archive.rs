//! Archives as input: tar, tar.gz and zip become plain files for the work directory (P39).
//!
//! An archive is hostile until read to its end. Nothing is written to the host while reading, no
//! size that it declares is believed, and memory stays within a small multiple of `limit` whatever
//! it unpacks to. It is taken as a whole or refused as a whole, with one error that names the entry.

mod error;
mod tarball;
#[cfg(test)]
mod tests;
mod unpacked;
mod zipfile;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use belljar_core::GuestPath;
use belljar_core::request::FileIn;
use flate2::bufread::MultiGzDecoder;
use rustix::fs::OFlags;

pub use error::ArchiveError;
use unpacked::Unpacked;
pub(crate) use unpacked::show;

/// The most entries an archive may have, directories included.
pub const MOST_ENTRIES: usize = 10_000;

/// Reads the archive at `path`, which may unpack to at most `limit` bytes.
///
/// What it is follows from its content, not from its name.
pub fn read(path: &Path, limit: u64) -> Result<BTreeMap<GuestPath, FileIn>, ArchiveError> {
    let object = path.to_string_lossy().escape_debug().to_string();
    let file = open_regular(path).map_err(|source| ArchiveError::Io {
        operation: "open",
        object: object.clone(),
        source,
    })?;
    unpack(BufReader::new(file), &object, limit)
}

/// Reads an archive that is already in memory.
pub fn read_bytes(bytes: &[u8], limit: u64) -> Result<BTreeMap<GuestPath, FileIn>, ArchiveError> {
    unpack(Cursor::new(bytes), "the archive", limit)
}

/// Opening a FIFO would wait for a writer for ever, and a device may do anything.
fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
    }
}

fn unpack<R: BufRead + Seek>(
    mut reader: R,
    object: &str,
    limit: u64,
) -> Result<BTreeMap<GuestPath, FileIn>, ArchiveError> {
    let cannot = |operation: &'static str| {
        move |source| ArchiveError::Io {
            operation,
            object: object.to_owned(),
            source,
        }
    };
    let mut start = Vec::with_capacity(tarball::BLOCK);
    reader
        .by_ref()
        .take(tarball::BLOCK as u64)
        .read_to_end(&mut start)
        .map_err(cannot("read"))?;
    reader.seek(SeekFrom::Start(0)).map_err(cannot("read"))?;
    let mut unpacked = Unpacked::new(object, limit);
    if start.starts_with(&[0x1f, 0x8b]) {
        tarball::unpack(MultiGzDecoder::new(reader), &mut unpacked)?;
    } else if zipfile::is_zip(&start) {
        zipfile::unpack(reader, &mut unpacked)?;
    } else {
        tarball::unpack(reader, &mut unpacked)?;
    }
    unpacked.finish()
}
