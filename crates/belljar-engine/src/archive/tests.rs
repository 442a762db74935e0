//! P39: archives that lie, climb, point elsewhere or explode.

mod hostile_tar;
mod hostile_zip;

use std::io::{Cursor, Write};

use belljar_core::request::Content;
use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use tar::{EntryType, Header};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::*;

const LIMIT: u64 = 1 << 20;

/// Name, bytes and whether it is executable, of every file.
fn listing(bytes: &[u8]) -> Vec<(String, Vec<u8>, bool)> {
    read_bytes(bytes, LIMIT)
        .unwrap()
        .into_iter()
        .map(|(path, file)| {
            let Content::Inline(bytes) = file.content else {
                panic!("{path} is not inline");
            };
            (path.to_string(), bytes.to_vec(), file.executable)
        })
        .collect()
}

/// The whole message of the refusal.
fn refusal(bytes: &[u8]) -> String {
    let error = read_bytes(bytes, LIMIT).unwrap_err();
    assert!(!error.hint().is_empty());
    error.to_string()
}

/// A header with its name byte for byte, which the builder's own methods would refuse.
fn header(name: &[u8], kind: EntryType, size: u64, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.as_old_mut().name[..name.len()].copy_from_slice(name);
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(mode);
    header.set_cksum();
    header
}

/// One entry with its padding.
fn tar_entry(name: &[u8], kind: EntryType, mode: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = header(name, kind, data.len() as u64, mode).as_bytes().to_vec();
    bytes.extend_from_slice(data);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn tar_file(name: &str, data: &[u8]) -> Vec<u8> {
    tar_entry(name.as_bytes(), EntryType::Regular, 0o644, data)
}

/// Entries, and the two blocks of zeros that end a tar.
fn tar(entries: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = entries.concat();
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zip(files: &[(&str, &[u8], u32)]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, data, mode) in files {
        let options = SimpleFileOptions::default().unix_permissions(*mode);
        writer.start_file(*name, options).unwrap();
        writer.write_all(data).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// Replaces every occurrence of `from`, so that both headers of a zip entry change alike.
fn patch(mut bytes: Vec<u8>, from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut found = 0;
    for at in 0..=bytes.len() - from.len() {
        if bytes[at..].starts_with(from) {
            bytes[at..at + to.len()].copy_from_slice(to);
            found += 1;
        }
    }
    assert!(found > 0);
    bytes
}

/// The same files come out of all three, whatever the archive is called.
#[test]
fn formats_are_told_apart_by_content() {
    let plain = tar(&[
        tar_entry(b"./", EntryType::Directory, 0o755, b""),
        tar_entry(b"./bin/", EntryType::Directory, 0o755, b""),
        tar_entry(b"./bin/run", EntryType::Regular, 0o6755, b"#!"),
        tar_file("data.txt", b"1"),
    ]);
    let zipped = zip(&[("bin/run", b"#!", 0o755), ("data.txt", b"1", 0o644)]);
    // Setuid and setgid have no place to go; only the executable bit is kept.
    let expected = [
        ("bin/run".to_owned(), b"#!".to_vec(), true),
        ("data.txt".to_owned(), b"1".to_vec(), false),
    ];
    for bytes in [&plain, &gzip(&plain), &zipped] {
        assert_eq!(listing(bytes), expected);
    }

    let directory = std::env::temp_dir().join(crate::fresh_id("belljar-archive"));
    std::fs::create_dir(&directory).unwrap();
    let path = directory.join("really-a-zip.tar.gz");
    std::fs::write(&path, &zipped).unwrap();
    assert_eq!(read(&path, LIMIT).unwrap().len(), 2);
    // Opening a FIFO must not wait for its writer.
    let fifo = directory.join("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let error = read(&fifo, LIMIT).unwrap_err().to_string();
    assert!(error.ends_with("fifo: not a regular file"), "{error}");
    let error = read(&directory.join("none"), LIMIT).unwrap_err().to_string();
    assert!(error.starts_with("cannot open "), "{error}");
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn an_empty_archive_holds_nothing() {
    for bytes in [tar(&[]), gzip(&tar(&[])), zip(&[])] {
        assert!(listing(&bytes).is_empty());
    }
}

#[test]
fn other_files_are_not_archives() {
    let expected = "cannot read the archive: it is neither a tar, a tar.gz nor a zip archive";
    for bytes in [
        &b""[..],
        b"hello",
        &[7; 2048],
        b"BZh91AY&SY",
        &gzip(b"just text"),
        &gzip(&[1; 2000]),
    ] {
        assert_eq!(refusal(bytes), expected);
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
        let _ = read_bytes(&bytes, LIMIT);
    }

    /// Damage anywhere is refused, or it hit a byte that means nothing; it never panics.
    #[test]
    fn damaged_archives_never_panic(
        which in 0usize..3,
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let plain = tar(&[tar_file("a/b", b"hello"), tar_file("c", &[b'x'; 700])]);
        let zipped = zip(&[("a/b", b"hello", 0o644), ("c", &[b'x'; 700], 0o755)]);
        let mut bytes = [plain.clone(), gzip(&plain), zipped][which].clone();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(files) = read_bytes(&bytes, LIMIT) {
            prop_assert!(files.len() <= 2);
        }
    }

    /// Whatever the limit, never more than it comes out.
    #[test]
    fn the_limit_holds(sizes in proptest::collection::vec(0usize..3000, 0..8), limit in 0u64..8000) {
        let names: Vec<String> = (0..sizes.len()).map(|index| format!("f{index}")).collect();
        let data = vec![0; 3000];
        let files: Vec<(&str, &[u8], u32)> = names
            .iter()
            .zip(&sizes)
            .map(|(name, size)| (name.as_str(), &data[..*size], 0o644))
            .collect();
        let plain = tar(&files.iter().map(|(name, data, _)| tar_file(name, data)).collect::<Vec<_>>());
        let total: usize = sizes.iter().sum();
        for bytes in [&plain, &gzip(&plain), &zip(&files)] {
            prop_assert_eq!(read_bytes(bytes, limit).is_ok(), total as u64 <= limit);
        }
    }
}
