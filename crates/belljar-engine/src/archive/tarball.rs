//! Tar, read block by block.
//!
//! Only the header's fields are left to the `tar` crate. Its iterator keeps long names and sparse
//! maps of any length in memory, and stops at the first empty block without looking further; here
//! each of those is bounded or refused.

use std::io::{self, Read};

use tar::{EntryType, Header};

use super::ArchiveError;
use super::unpacked::{EntryName, Unpacked, show};

/// Tar's unit.
pub(super) const BLOCK: usize = 512;
/// The longest header that describes the next entry: a path may have 3 KiB, attributes follow.
const LONGEST_DESCRIPTION: u64 = 64 << 10;
/// The most bytes of headers in all. An ordinary entry needs up to three blocks.
const MOST_HEADERS: u64 = 64 << 20;
/// The most empty space after the end; the widest common blocking factor pads to 1 MiB.
const MOST_PADDING: u64 = 1 << 20;

/// Reads a tar from its first block to the end of `reader`.
pub(super) fn unpack(reader: impl Read, unpacked: &mut Unpacked) -> Result<(), ArchiveError> {
    let mut tape = Tape {
        reader,
        headers_left: MOST_HEADERS,
        first: true,
    };
    let mut described = Described::default();
    while let Some(header) = tape.next_header(unpacked)? {
        let kind = header.entry_type();
        let size = header
            .entry_size()
            .map_err(|_| unpacked.malformed("a header has a size that is no number"))?;
        match kind {
            EntryType::GNULongName => {
                let name = tape.description(size, unpacked)?;
                let name = name.strip_suffix(b"\0").unwrap_or(&name);
                described.name(name, unpacked)?;
            }
            // The target of a link, and links are refused below.
            EntryType::GNULongLink => {
                tape.description(size, unpacked)?;
            }
            EntryType::XHeader => {
                let records = tape.description(size, unpacked)?;
                described.read_pax(&records, unpacked)?;
            }
            // Holds for all entries that follow. `git archive` puts a comment there; a name, size
            // or map for everything has no honest use.
            EntryType::XGlobalHeader => {
                let records = tape.description(size, unpacked)?;
                let mut global = Described::default();
                global.read_pax(&records, unpacked)?;
                if global.name.is_some() || global.size.is_some() {
                    return Err(unpacked.malformed("a global header renames or resizes every entry"));
                }
            }
            _ => {
                let described = std::mem::take(&mut described);
                tape.entry(&header, kind, size, described, unpacked)?;
            }
        }
    }
    if described.name.is_some() || described.size.is_some() {
        return Err(unpacked.malformed("it ends after a header that describes a next entry"));
    }
    tape.end(unpacked)
}

/// What extension headers say about the next entry.
#[derive(Default)]
struct Described {
    name: Option<Vec<u8>>,
    size: Option<u64>,
}

impl Described {
    fn name(&mut self, name: &[u8], unpacked: &Unpacked) -> Result<(), ArchiveError> {
        // Readers differ in which of two they take, so that one archive could be two.
        if self.name.replace(name.to_vec()).is_some() {
            return Err(unpacked.malformed("one entry is given two names"));
        }
        Ok(())
    }

    /// Reads `LENGTH KEY=VALUE\n` records; a value may hold anything, newlines too.
    fn read_pax(&mut self, mut records: &[u8], unpacked: &Unpacked) -> Result<(), ArchiveError> {
        let bad = || unpacked.malformed("an extended header is not made of `LENGTH KEY=VALUE` records");
        while !records.is_empty() {
            let space = records.iter().position(|byte| *byte == b' ').ok_or_else(bad)?;
            let length = std::str::from_utf8(&records[..space])
                .ok()
                .and_then(|digits| digits.parse::<usize>().ok())
                .filter(|length| (space + 2..=records.len()).contains(length))
                .ok_or_else(bad)?;
            let (record, rest) = records.split_at(length);
            let record = record[space + 1..].strip_suffix(b"\n").ok_or_else(bad)?;
            let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(bad)?;
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            match key {
                b"path" => self.name(value, unpacked)?,
                b"size" => {
                    let size = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                    self.size = Some(size.ok_or_else(bad)?);
                }
                _ if key.starts_with(b"GNU.sparse.") => {
                    return Err(ArchiveError::Kind {
                        entry: show(self.name.as_deref().unwrap_or(b"?")),
                        kind: "a sparse file",
                    });
                }
                _ => {}
            }
            records = rest;
        }
        Ok(())
    }
}

/// The stream of blocks.
struct Tape<R> {
    reader: R,
    headers_left: u64,
    first: bool,
}

impl<R: Read> Tape<R> {
    /// The next header, or `None` at the block of zeros that ends the archive.
    fn next_header(&mut self, unpacked: &Unpacked) -> Result<Option<Header>, ArchiveError> {
        let mut header = Header::new_old();
        let first = std::mem::take(&mut self.first);
        let unrecognised = || ArchiveError::Unrecognised {
            object: unpacked.object(),
        };
        self.spend(BLOCK as u64, unpacked)?;
        if let Err(source) = self.reader.read_exact(header.as_mut_bytes()) {
            return Err(if source.kind() != io::ErrorKind::UnexpectedEof {
                cannot_read(unpacked, source)
            } else if first {
                unrecognised()
            } else {
                unpacked.malformed("it is cut short: the block that ends a tar is missing")
            });
        }
        if header.as_bytes().iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        if header.cksum().is_ok_and(|sum| sum == checksum(&header)) {
            return Ok(Some(header));
        }
        Err(if first {
            unrecognised()
        } else {
            unpacked.malformed("a header has a wrong checksum")
        })
    }

    /// The body of a header that describes the next entry.
    fn description(&mut self, size: u64, unpacked: &Unpacked) -> Result<Vec<u8>, ArchiveError> {
        if size > LONGEST_DESCRIPTION {
            return Err(unpacked.malformed("a header that describes an entry is longer than 64 KiB"));
        }
        self.spend(size, unpacked)?;
        let mut bytes = Vec::new();
        self.reader
            .by_ref()
            .take(size)
            .read_to_end(&mut bytes)
            .map_err(|source| cannot_read(unpacked, source))?;
        if bytes.len() as u64 != size {
            return Err(unpacked.malformed("it is cut short within a header"));
        }
        self.skip_padding(size, unpacked)?;
        Ok(bytes)
    }

    fn entry(
        &mut self,
        header: &Header,
        kind: EntryType,
        size: u64,
        described: Described,
        unpacked: &mut Unpacked,
    ) -> Result<(), ArchiveError> {
        let name = match &described.name {
            Some(name) => EntryName::new(name)?,
            None => EntryName::new(&header.path_bytes())?,
        };
        let malformed = |shown: &str, flaw| ArchiveError::Malformed {
            object: format!("`{shown}`"),
            flaw,
        };
        // Sizes above 8 GiB need the second field, and nothing so large is taken.
        if described.size.is_some_and(|described| described != size) {
            return Err(malformed(&name.shown, "its two sizes differ"));
        }
        let kind = match kind {
            EntryType::Directory => return unpacked.directory(name, size),
            // Before there was a type for it, a directory was an empty file with a slash.
            EntryType::Regular | EntryType::Continuous if name.directory => {
                return unpacked.directory(name, size);
            }
            EntryType::Regular | EntryType::Continuous => {
                let mode = header
                    .mode()
                    .map_err(|_| malformed(&name.shown, "its mode is no number"))?;
                let content = self.reader.by_ref().take(size);
                unpacked.file(name, size, content, mode & 0o111 != 0)?;
                return self.skip_padding(size, unpacked);
            }
            EntryType::Link => "a hard link",
            EntryType::Symlink => "a symbolic link",
            EntryType::Char | EntryType::Block => "a device",
            EntryType::Fifo => "a FIFO",
            EntryType::GNUSparse => "a sparse file",
            _ => "of a kind that is not known",
        };
        Err(ArchiveError::Kind {
            entry: name.shown,
            kind,
        })
    }

    /// What follows the end: zeros, and not many. Reading on also checks gzip's own checksum.
    fn end(&mut self, unpacked: &Unpacked) -> Result<(), ArchiveError> {
        let mut buffer = [0; 8192];
        let mut seen = 0;
        loop {
            let count = match self.reader.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(source) => return Err(cannot_read(unpacked, source)),
            };
            seen += count as u64;
            if seen > MOST_PADDING || buffer[..count].iter().any(|byte| *byte != 0) {
                return Err(unpacked.malformed("something follows the end of the tar"));
            }
        }
    }

    fn skip_padding(&mut self, size: u64, unpacked: &Unpacked) -> Result<(), ArchiveError> {
        let mut padding = [0; BLOCK];
        let length = (size as usize % BLOCK).wrapping_neg() % BLOCK;
        self.reader
            .read_exact(&mut padding[..length])
            .map_err(|source| match source.kind() {
                io::ErrorKind::UnexpectedEof => unpacked.malformed("it is cut short within an entry"),
                _ => cannot_read(unpacked, source),
            })
    }

    /// Counts bytes of headers, so that a gzip of nothing but headers ends.
    fn spend(&mut self, bytes: u64, unpacked: &Unpacked) -> Result<(), ArchiveError> {
        self.headers_left = self
            .headers_left
            .checked_sub(bytes)
            .ok_or_else(|| unpacked.malformed("its headers alone are larger than 64 MiB"))?;
        Ok(())
    }
}

/// The sum of all bytes, with spaces in place of the sum itself.
fn checksum(header: &Header) -> u32 {
    let bytes = header.as_bytes();
    let sum = |part: &[u8]| part.iter().map(|byte| u32::from(*byte)).sum::<u32>();
    sum(&bytes[..148]) + 8 * u32::from(b' ') + sum(&bytes[156..])
}

fn cannot_read(unpacked: &Unpacked, source: io::Error) -> ArchiveError {
    ArchiveError::Io {
        operation: "read",
        object: unpacked.object(),
        source,
    }
}
