//! Tars by hand.

use super::*;

/// A `LENGTH KEY=VALUE` header for the next entry.
fn pax(kind: EntryType, records: &[(&str, &[u8])]) -> Vec<u8> {
    let mut data = Vec::new();
    for (key, value) in records {
        let rest = key.len() + value.len() + 3;
        let mut length = rest + 1;
        while length != rest + length.to_string().len() {
            length = rest + length.to_string().len();
        }
        data.extend_from_slice(format!("{length} {key}=").as_bytes());
        data.extend_from_slice(value);
        data.push(b'\n');
    }
    tar_entry(b"pax", kind, 0o644, &data)
}

fn long_name(name: &[u8]) -> Vec<u8> {
    let mut data = name.to_vec();
    data.push(0);
    tar_entry(b"././@LongLink", EntryType::GNULongName, 0o644, &data)
}

#[test]
fn names_that_leave_are_refused() {
    for (name, message) in [
        (
            &b"../x"[..],
            "cannot unpack `../x`: `../x` leaves the work directory with `..`",
        ),
        (
            b"a/../../x",
            "cannot unpack `a/../../x`: `a/../../x` leaves the work directory with `..`",
        ),
        (
            b"/etc/passwd",
            "cannot unpack `/etc/passwd`: `/etc/passwd` is absolute; name it relative to the work directory",
        ),
        (
            b"~/x",
            "cannot unpack `~/x`: `~/x` starts with `~`, which nothing inside the sandbox expands",
        ),
        (
            b"./~root",
            "cannot unpack `./~root`: `./~root` starts with `~`, which nothing inside the sandbox expands",
        ),
        (b"..\\x", "cannot unpack `..\\\\x`: its name holds a backslash"),
        (
            b"a\x1b[2J\n",
            "cannot unpack `a\\u{1b}[2J\\n`: its name holds a control character",
        ),
        (b"a\xff", "cannot unpack `a\\xff`: its name is not UTF-8"),
        (b"", "cannot unpack ``: the path is empty"),
    ] {
        let entry = tar_entry(name, EntryType::Regular, 0o644, b"x");
        assert_eq!(refusal(&tar(&[tar_file("ok", b""), entry])), message);
        if !name.is_empty() {
            // The same name through both kinds of long name.
            for described in [long_name(name), pax(EntryType::XHeader, &[("path", name)])] {
                assert_eq!(refusal(&tar(&[described, tar_file("ok", b"x")])), message);
            }
        }
    }
    let deep = "a/".repeat(65) + "b";
    assert!(refusal(&tar(&[long_name(deep.as_bytes()), tar_file("x", b"")])).contains("too deep"));
}

#[test]
fn only_files_and_directories_are_taken() {
    for (kind, word) in [
        (EntryType::Symlink, "a symbolic link"),
        (EntryType::Link, "a hard link"),
        (EntryType::Char, "a device"),
        (EntryType::Block, "a device"),
        (EntryType::Fifo, "a FIFO"),
        (EntryType::GNUSparse, "a sparse file"),
        (EntryType::new(b'Z'), "of a kind that is not known"),
        (EntryType::new(b'V'), "of a kind that is not known"),
    ] {
        // Link first, then a file that would be written through it.
        let mut link = header(b"link", kind, 0, 0o777);
        link.set_link_name_literal("/etc").unwrap();
        link.set_cksum();
        let bytes = tar(&[link.as_bytes().to_vec(), tar_file("link/passwd", b"root")]);
        assert_eq!(refusal(&bytes), format!("cannot unpack `link`: it is {word}"));
    }
    let sparse = pax(
        EntryType::XHeader,
        &[("path", b"s"), ("GNU.sparse.realsize", b"1099511627776")],
    );
    assert_eq!(
        refusal(&tar(&[sparse, tar_file("s", b"")])),
        "cannot unpack `s`: it is a sparse file"
    );
    let loaded = tar_entry(b"d/", EntryType::Directory, 0o755, b"x");
    assert_eq!(
        refusal(&tar(&[loaded])),
        "cannot unpack `d/`: it is a directory that holds data"
    );
}

#[test]
fn names_that_collide_are_refused() {
    let directory = |name: &[u8]| tar_entry(name, EntryType::Directory, 0o755, b"");
    for (entries, message) in [
        (
            vec![tar_file("a", b"1"), tar_file("./a", b"2")],
            "cannot unpack `./a`: the archive has it twice",
        ),
        (
            vec![tar_file("a", b"1"), tar_file("a/b", b"2")],
            "cannot unpack `a/b`: `a` is a file and cannot be a directory as well",
        ),
        (
            vec![tar_file("a/b/c", b"1"), tar_file("a", b"2")],
            "cannot unpack `a/b/c`: `a` is a file and cannot be a directory as well",
        ),
        (
            vec![tar_file("a", b"1"), directory(b"a/")],
            "cannot unpack `a/`: `a` is a file and cannot be a directory as well",
        ),
        (
            vec![directory(b"a"), tar_file("a", b"1")],
            "cannot unpack `a`: `a` is a file and cannot be a directory as well",
        ),
        (
            vec![tar_file("a", b"1"), directory(b"a/b/")],
            "cannot unpack `a/b`: `a` is a file and cannot be a directory as well",
        ),
    ] {
        assert_eq!(refusal(&tar(&entries)), message);
    }
    // Directories may come twice, as they do when tars are appended to.
    assert!(listing(&tar(&[directory(b"a/"), directory(b"a/")])).is_empty());
}

#[test]
fn one_entry_cannot_be_two() {
    let twice = "cannot read the archive: one entry is given two names";
    let path = || pax(EntryType::XHeader, &[("path", b"b")]);
    for entries in [
        vec![long_name(b"a"), path(), tar_file("x", b"")],
        vec![long_name(b"a"), long_name(b"b"), tar_file("x", b"")],
        vec![pax(EntryType::XHeader, &[("path", b"a"), ("path", b"b")])],
    ] {
        assert_eq!(refusal(&tar(&entries)), twice);
    }
    let resized = pax(EntryType::XHeader, &[("size", b"0")]);
    assert_eq!(
        refusal(&tar(&[resized, tar_file("x", b"1")])),
        "cannot read `x`: its two sizes differ"
    );
    let global = pax(EntryType::XGlobalHeader, &[("path", b"b")]);
    assert_eq!(
        refusal(&tar(&[global, tar_file("x", b"")])),
        "cannot read the archive: a global header renames or resizes every entry"
    );
    assert_eq!(
        refusal(&tar(&[long_name(b"a")])),
        "cannot read the archive: it ends after a header that describes a next entry"
    );
}

/// What ordinary tools write beside names passes.
#[test]
fn honest_extensions_pass() {
    let name = "é/".repeat(40) + "long";
    let bytes = tar(&[
        pax(EntryType::XGlobalHeader, &[("comment", b"0123abc")]),
        pax(
            EntryType::XHeader,
            &[
                ("path", name.as_bytes()),
                ("size", b"1"),
                ("SCHILY.xattr.user.x", b"a\nb\0="),
            ],
        ),
        tar_file("cut", b"1"),
        long_name(b"second"),
        tar_file("cut", b"2"),
        tar_file("third", b""),
    ]);
    let names: Vec<_> = listing(&bytes).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["second", "third", &name]);
}

#[test]
fn malformed_extensions_are_refused() {
    let expected = "cannot read the archive: an extended header is not made of `LENGTH KEY=VALUE` records";
    for records in [
        &b"5 a=b"[..],
        b"x a=b\n",
        b"99 a=b\n",
        b"0 a=b\n",
        b"2 a=b\n",
        b"18446744073709551615 a=b\n",
        b"6 abc\n",
        b"\0\0\0",
        b"11 size=-1\n",
    ] {
        let entry = tar_entry(b"pax", EntryType::XHeader, 0o644, records);
        assert_eq!(
            refusal(&tar(&[entry, tar_file("x", b"")])),
            expected,
            "{records:?}"
        );
    }
}

#[test]
fn bombs_are_bounded() {
    let zeros = vec![0; LIMIT as usize + 1];
    let bomb = gzip(&tar(&[tar_file("small", b"1"), tar_file("zeros", &zeros)]));
    assert!(bomb.len() < 10_000);
    assert_eq!(
        refusal(&bomb),
        "cannot unpack `zeros`: with it the archive holds more than 1 MiB"
    );
    // A size that is only declared allocates nothing, and one past all arithmetic neither.
    for size in [1 << 40, u64::MAX, u64::MAX - 511] {
        let huge = header(b"huge", EntryType::Regular, size, 0o644)
            .as_bytes()
            .to_vec();
        assert!(
            refusal(&huge).starts_with("cannot unpack `huge`: with it"),
            "{size}"
        );
        let name = header(b"L", EntryType::GNULongName, size, 0o644)
            .as_bytes()
            .to_vec();
        assert_eq!(
            refusal(&name),
            "cannot read the archive: a header that describes an entry is longer than 64 KiB"
        );
    }
    // Nothing but headers.
    let directory = tar_entry(b"d/", EntryType::Directory, 0o755, b"");
    assert_eq!(
        refusal(&gzip(&directory.repeat(MOST_ENTRIES + 1))),
        "cannot unpack the archive: it has more than 10000 entries"
    );
    let comments = pax(EntryType::XGlobalHeader, &[("comment", &[b'x'; 60_000])]);
    assert_eq!(
        refusal(&gzip(&comments.repeat(1200))),
        "cannot read the archive: its headers alone are larger than 64 MiB"
    );
    // Nothing but the end.
    assert_eq!(
        refusal(&gzip(&vec![0; 4 << 20])),
        "cannot read the archive: something follows the end of the tar"
    );
}

#[test]
fn many_entries_are_fine_up_to_the_most() {
    let entries: Vec<_> = (0..MOST_ENTRIES)
        .map(|index| tar_file(&format!("d/{index}"), b""))
        .collect();
    assert_eq!(listing(&tar(&entries)).len(), MOST_ENTRIES);
}

#[test]
fn cut_and_padded_archives_are_refused() {
    let whole = tar(&[tar_file("a", &[b'x'; 600]), tar_file("b", b"2")]);
    // Only the second block of zeros may be missing.
    for length in 0..whole.len() {
        let result = read_bytes(&whole[..length], LIMIT);
        assert_eq!(result.is_ok(), length >= whole.len() - 512, "{length}");
    }
    let zipped = gzip(&whole);
    for length in 0..zipped.len() {
        assert!(read_bytes(&zipped[..length], LIMIT).is_err(), "{length}");
    }
    let follows = "cannot read the archive: something follows the end of the tar";
    assert_eq!(refusal(&[&whole[..], b"x"].concat()), follows);
    assert_eq!(refusal(&[&whole[..], &whole].concat()), follows);
    assert!(refusal(&[&zipped[..], b"garbage"].concat()).starts_with("cannot read the archive: "));
    assert!(read_bytes(&[&whole[..], &[0; 9216]].concat(), LIMIT).is_ok());

    let mut broken = whole;
    broken[1024 + 512] ^= 1;
    assert_eq!(
        refusal(&broken),
        "cannot read the archive: a header has a wrong checksum"
    );
    let mut broken = zipped;
    let crc = broken.len() - 8;
    broken[crc] ^= 1;
    assert!(refusal(&broken).starts_with("cannot read the archive: "));
}
