//! Zips that were honest until their bytes were changed.

use super::*;

/// Offset of the end record of a zip without a comment.
const fn end(bytes: &[u8]) -> usize {
    bytes.len() - 22
}

fn central(bytes: &[u8]) -> usize {
    bytes
        .windows(4)
        .position(|window| window == b"PK\x01\x02")
        .unwrap()
}

#[test]
fn names_that_leave_are_refused() {
    for (name, message) in [
        (
            &b"../x"[..],
            "cannot unpack `../x`: `../x` leaves the work directory with `..`",
        ),
        (
            b"/etc",
            "cannot unpack `/etc`: `/etc` is absolute; name it relative to the work directory",
        ),
        (
            b"~/.x",
            "cannot unpack `~/.x`: `~/.x` starts with `~`, which nothing inside the sandbox expands",
        ),
        (b"a\\.x", "cannot unpack `a\\\\.x`: its name holds a backslash"),
        (
            b"a\r\nb",
            "cannot unpack `a\\r\\nb`: its name holds a control character",
        ),
        (
            b"a\0bc",
            "cannot unpack `a\\0bc`: its name holds a control character",
        ),
        (
            b"\xff\xfeab",
            "cannot unpack `\\xff\\xfeab`: its name is not UTF-8",
        ),
    ] {
        let bytes = patch(zip(&[("ok", b"", 0o644), ("NAME", b"1", 0o644)]), b"NAME", name);
        assert_eq!(refusal(&bytes), message);
    }
}

#[test]
fn only_files_and_directories_are_taken() {
    for (kind, word) in [
        (0o120_777_u32, "a symbolic link"),
        (0o010_644, "a FIFO"),
        (0o140_644, "a socket"),
        (0o020_644, "a device"),
        (0o060_644, "a device"),
        (0o150_644, "of a kind that is not known"),
    ] {
        let mut bytes = zip(&[("link", b"/etc", 0o644), ("link2", b"", 0o644)]);
        let attributes = central(&bytes) + 38;
        bytes[attributes..attributes + 4].copy_from_slice(&(kind << 16).to_le_bytes());
        assert_eq!(refusal(&bytes), format!("cannot unpack `link`: it is {word}"));
    }
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    writer
        .add_symlink("link", "/etc", SimpleFileOptions::default())
        .unwrap();
    let bytes = writer.finish().unwrap().into_inner();
    assert_eq!(refusal(&bytes), "cannot unpack `link`: it is a symbolic link");
}

#[test]
fn names_that_collide_are_refused() {
    let twice = patch(zip(&[("aa", b"1", 0o644), ("bb", b"2", 0o644)]), b"bb", b"aa");
    assert_eq!(
        refusal(&twice),
        "cannot read the archive: two entries have the same name"
    );
    assert_eq!(
        refusal(&zip(&[("a", b"1", 0o644), ("./a", b"2", 0o644)])),
        "cannot unpack `./a`: the archive has it twice"
    );
    assert_eq!(
        refusal(&zip(&[("a", b"1", 0o644), ("a/b", b"2", 0o644)])),
        "cannot unpack `a/b`: `a` is a file and cannot be a directory as well"
    );
}

#[test]
fn encrypted_entries_are_refused() {
    let mut bytes = zip(&[("secret", b"1", 0o644)]);
    for flags in [6, central(&bytes) + 8] {
        bytes[flags] |= 1;
    }
    assert_eq!(refusal(&bytes), "cannot unpack `secret`: it is encrypted");
}

#[test]
fn bombs_are_bounded() {
    let zeros = vec![0; LIMIT as usize + 1];
    let bomb = zip(&[("small", b"1", 0o644), ("zeros", &zeros, 0o644)]);
    assert!(bomb.len() < 10_000);
    let too_large = "cannot unpack `zeros`: with it the archive holds more than 1 MiB";
    assert_eq!(refusal(&bomb), too_large);
    // The same with a small size in both headers: what counts is what comes out.
    let lying = patch(bomb, &(zeros.len() as u32).to_le_bytes(), &5_u32.to_le_bytes());
    let message = refusal(&lying);
    assert!(message.contains("`zeros`"), "{message}");
    let names: Vec<String> = (0..=MOST_ENTRIES).map(|index| index.to_string()).collect();
    let many: Vec<(&str, &[u8], u32)> = names
        .iter()
        .map(|name| (name.as_str(), &b""[..], 0o644))
        .collect();
    assert_eq!(
        refusal(&zip(&many)),
        "cannot unpack the archive: it has more than 10000 entries"
    );
    assert_eq!(listing(&zip(&many[1..])).len(), MOST_ENTRIES);
}

/// Two entries of the directory that unpack the same bytes: the way of the flat bombs.
#[test]
fn overlapping_entries_are_refused() {
    let mut bytes = zip(&[("aa", b"1111", 0o644), ("bb", b"1111", 0o644)]);
    let first = central(&bytes);
    let second = first + 4 + central(&bytes[first + 4..]);
    let offset = second + 42;
    bytes[offset..offset + 4].fill(0);
    assert_eq!(refusal(&bytes), "cannot read the archive: entries overlap");
}

/// The header before the data and the directory at the end must say the same.
#[test]
fn headers_that_disagree_are_refused() {
    let mut bytes = zip(&[("aa", b"1111", 0o644)]);
    bytes[30] = b'b';
    let message = refusal(&bytes);
    assert!(
        message.starts_with("cannot read `aa`: ") && message.contains("inconsistency"),
        "{message}"
    );
}

#[test]
fn wrong_checksums_are_refused() {
    let mut bytes = zip(&[("aa", b"1111", 0o644)]);
    let first = central(&bytes);
    for crc in [14, first + 16] {
        bytes[crc] ^= 1;
    }
    let message = refusal(&bytes);
    assert!(message.contains("`aa`"), "{message}");
}

#[test]
fn cut_and_padded_archives_are_refused() {
    let whole = zip(&[("a", &[b'x'; 600], 0o644), ("b", b"2", 0o644)]);
    for length in 0..whole.len() {
        assert!(read_bytes(&whole[..length], LIMIT).is_err(), "{length}");
    }
    assert_eq!(
        refusal(&[&whole[..], b"x"].concat()),
        "cannot read the archive: something follows the end of the zip"
    );
    // Another zip before or behind it: readers differ in which one they show.
    let other = zip(&[("c", b"3", 0o644)]);
    assert_eq!(
        refusal(&[&whole[..], &other].concat()),
        "cannot read the archive: its directory does not lie right before its end"
    );
}

/// The end record is checked before the directory is read into memory.
#[test]
fn end_records_that_lie_are_refused() {
    let good = zip(&[("a", b"1", 0o644)]);
    let spoiled = |at: usize, value: &[u8]| {
        let mut bytes = good.clone();
        let at = end(&bytes) + at;
        bytes[at..at + value.len()].copy_from_slice(value);
        refusal(&bytes)
    };
    let zip64 = "cannot read the archive: it is a zip64, which no archive of this size needs";
    assert_eq!(spoiled(8, &[0xff; 4]), zip64);
    assert_eq!(spoiled(16, &[0xff; 4]), zip64);
    let parts = "cannot read the archive: it is one of several parts";
    assert_eq!(spoiled(4, &[1]), parts);
    assert_eq!(spoiled(10, &[2]), parts);
    assert_eq!(
        spoiled(12, &[0]),
        "cannot read the archive: its directory does not lie right before its end"
    );
    assert!(spoiled(8, &[2, 0, 2, 0]).starts_with("cannot read the archive: "));
    // An earlier end record behind which a larger directory hides is not fallen back to.
    let mut bytes = good.clone();
    let directory = central(&bytes);
    bytes[directory] = b'X';
    assert_eq!(
        refusal(&bytes),
        "cannot read the archive: its directory is not where its end record says"
    );
}

#[test]
fn a_comment_is_fine() {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    writer.set_comment("made by hand").unwrap();
    writer.add_directory("d/", SimpleFileOptions::default()).unwrap();
    writer.start_file("d/x", SimpleFileOptions::default()).unwrap();
    let bytes = writer.finish().unwrap().into_inner();
    assert_eq!(listing(&bytes).len(), 1);
}
