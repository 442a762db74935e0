//! Zip, where the directory at the end, the headers before each entry and the data can all
//! disagree, and readers differ in whom they believe. Here they must agree.

use std::io::{BufRead, Read, Seek, SeekFrom};

use zip::read::{ArchiveOffset, Config};
use zip::result::ZipError;
use zip::{ZipArchive, ZipReadOptions};

use super::unpacked::{EntryName, Unpacked};
use super::{ArchiveError, MOST_ENTRIES};

const LOCAL_HEADER: [u8; 4] = *b"PK\x03\x04";
const CENTRAL_HEADER: [u8; 4] = *b"PK\x01\x02";
const END: [u8; 4] = *b"PK\x05\x06";
/// The end record without its comment.
const END_LENGTH: usize = 22;
/// The most bytes of central directory: all of it is kept in memory while reading.
const MOST_DIRECTORY: u32 = 32 << 20;

/// Whether a file that begins with `start` is a zip. One that begins with something else, such as
/// a program that unpacks itself, is two files in one and not taken.
pub(super) fn is_zip(start: &[u8]) -> bool {
    start.starts_with(&LOCAL_HEADER) || start.starts_with(&END)
}

pub(super) fn unpack<R: BufRead + Seek>(mut reader: R, unpacked: &mut Unpacked) -> Result<(), ArchiveError> {
    check_end(&mut reader, unpacked)?;
    let config = Config {
        archive_offset: ArchiveOffset::Known(0),
    };
    let object = unpacked.object();
    let cannot_read = |source| match source {
        ZipError::Io(source) => ArchiveError::Io {
            operation: "read",
            object: object.clone(),
            source,
        },
        source => ArchiveError::Zip {
            object: object.clone(),
            source,
        },
    };
    let mut archive = ZipArchive::with_config(config, reader).map_err(cannot_read)?;
    if archive.has_duplicate_names() {
        return Err(unpacked.malformed("two entries have the same name"));
    }
    // A bomb of many entries that all unpack the same bytes.
    if archive.has_overlapping_entries().map_err(cannot_read)? {
        return Err(unpacked.malformed("entries overlap"));
    }
    for index in 0..archive.len() {
        entry(&mut archive, index, unpacked)?;
    }
    Ok(())
}

fn entry<R: Read + Seek>(
    archive: &mut ZipArchive<R>,
    index: usize,
    unpacked: &mut Unpacked,
) -> Result<(), ArchiveError> {
    const TYPE: u32 = 0o170_000;
    let object = unpacked.object();
    let data = archive
        .by_index_data(index)
        .map_err(|source| ArchiveError::Zip { object, source })?;
    let name = EntryName::new(data.name_raw())?;
    let (size, mode) = (data.size(), data.unix_mode().unwrap_or(0));
    if data.encrypted() {
        return Err(ArchiveError::Encrypted { entry: name.shown });
    }
    // Before anything else is believed: the header in front of the data must say the same.
    let options = ZipReadOptions::new().enforce_header_consistency(true);
    let content = archive
        .by_index_with_options(index, options)
        .map_err(|source| ArchiveError::Zip {
            object: format!("`{}`", name.shown),
            source,
        })?;
    let kind = match mode & TYPE {
        0o040_000 => return unpacked.directory(name, size),
        // Packers that know no types write none.
        0 | 0o100_000 if name.directory => return unpacked.directory(name, size),
        0 | 0o100_000 => return unpacked.file(name, size, content, mode & 0o111 != 0),
        0o120_000 => "a symbolic link",
        0o010_000 => "a FIFO",
        0o140_000 => "a socket",
        0o020_000 | 0o060_000 => "a device",
        _ => "of a kind that is not known",
    };
    Err(ArchiveError::Kind {
        entry: name.shown,
        kind,
    })
}

/// Checks the end record before the `zip` crate sees it: that crate reads the whole directory into
/// memory, and where it dislikes one end record it tries an earlier one. After these checks the
/// last record is the only one it can take, and its directory is small.
fn check_end<R: Read + Seek>(reader: &mut R, unpacked: &Unpacked) -> Result<(), ArchiveError> {
    let cannot_read = |source| ArchiveError::Io {
        operation: "read",
        object: unpacked.object(),
        source,
    };
    let length = reader.seek(SeekFrom::End(0)).map_err(cannot_read)?;
    let tail_length = length.min((END_LENGTH + usize::from(u16::MAX)) as u64);
    let mut tail = Vec::new();
    reader
        .seek(SeekFrom::Start(length - tail_length))
        .and_then(|_| reader.by_ref().take(tail_length).read_to_end(&mut tail))
        .map_err(cannot_read)?;
    let at = tail
        .windows(END.len())
        .rposition(|window| window == END)
        .ok_or_else(|| unpacked.malformed("it is cut short: the end record of a zip is missing"))?;
    let end = &tail[at..];
    if end.len() < END_LENGTH {
        return Err(unpacked.malformed("it is cut short within its end record"));
    }
    let short = |at: usize| u16::from_le_bytes([end[at], end[at + 1]]);
    let long = |at: usize| u32::from_le_bytes([end[at], end[at + 1], end[at + 2], end[at + 3]]);
    if end.len() != END_LENGTH + usize::from(short(20)) {
        return Err(unpacked.malformed("something follows the end of the zip"));
    }
    let (entries, directory_length, directory_start) = (short(10), long(12), long(16));
    if entries == u16::MAX || directory_length == u32::MAX || directory_start == u32::MAX {
        return Err(unpacked.malformed("it is a zip64, which no archive of this size needs"));
    }
    if short(4) != 0 || short(6) != 0 || short(8) != entries {
        return Err(unpacked.malformed("it is one of several parts"));
    }
    if usize::from(entries) > MOST_ENTRIES {
        return Err(ArchiveError::TooMany {
            object: unpacked.object(),
        });
    }
    let end_at = length - tail_length + at as u64;
    if u64::from(directory_start) + u64::from(directory_length) != end_at || directory_length > MOST_DIRECTORY
    {
        return Err(unpacked.malformed("its directory does not lie right before its end"));
    }
    if entries > 0 {
        let mut magic = [0; 4];
        reader
            .seek(SeekFrom::Start(directory_start.into()))
            .and_then(|_| reader.read_exact(&mut magic))
            .map_err(cannot_read)?;
        if magic != CENTRAL_HEADER {
            return Err(unpacked.malformed("its directory is not where its end record says"));
        }
    }
    Ok(())
}
