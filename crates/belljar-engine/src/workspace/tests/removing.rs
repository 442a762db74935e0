//! Trees that are made to be hard to remove. Worth running as an ordinary user too: to root, modes
//! mean little.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};

use super::*;
use crate::workspace::remove::remove_tree;

fn open(path: &Path) -> OwnedFd {
    openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()
}

fn remove(scratch: &Scratch, name: &str) -> Result<(), crate::workspace::remove::Failure> {
    remove_tree(open(&scratch.0).as_fd(), &CString::new(name).unwrap())
}

/// A chain of directories, each with a file beside the next; gives the lowest.
fn chain(top: &Path, depth: usize) -> OwnedFd {
    fs::create_dir(top).unwrap();
    let mut here = open(top);
    for _ in 0..depth {
        mkdirat(&here, "d", Mode::RWXU).unwrap();
        let flags = OFlags::CREATE | OFlags::WRONLY;
        drop(openat(&here, "f", flags, Mode::RUSR).unwrap());
        here = openat(&here, "d", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    here
}

/// P41: depth costs neither stack nor descriptors, and no path is ever that long.
#[test]
fn ten_thousand_levels_go() {
    let scratch = Scratch::new();
    chain(&scratch.0.join("deep"), 10_000);
    remove(&scratch, "deep").unwrap();
    assert!(names(&scratch.0).is_empty());
}

#[test]
fn wide_and_branching_trees_go() {
    let scratch = Scratch::new();
    let top = scratch.0.join("wide");
    for branch in 0..40 {
        let branch = top.join(branch.to_string());
        fs::create_dir_all(&branch).unwrap();
        for file in 0..50 {
            fs::write(branch.join(file.to_string()), "").unwrap();
            fs::create_dir_all(branch.join(format!("d{file}/e/f"))).unwrap();
        }
    }
    // Branches below the depth at which the upper directories are closed.
    let low = chain(&top.join("chain"), 100);
    for branch in 0..50 {
        mkdirat(&low, branch.to_string(), Mode::RWXU).unwrap();
    }
    remove(&scratch, "wide").unwrap();
    assert!(names(&scratch.0).is_empty());
}

/// Whoever may not read, enter or change a directory of theirs may still change its mode.
#[test]
fn modes_do_not_shut_us_out() {
    let scratch = Scratch::new();
    let top = scratch.0.join("shut");
    for mode in [0o000, 0o100, 0o200, 0o400, 0o500, 0o600, 0o300, 0o4777] {
        let path = top.join(format!("{mode:o}/below/x"));
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("file"), "").unwrap();
        fs::set_permissions(path.join("file"), fs::Permissions::from_mode(0o000)).unwrap();
        for shut in [
            &path,
            path.parent().unwrap(),
            path.parent().unwrap().parent().unwrap(),
        ] {
            fs::set_permissions(shut, fs::Permissions::from_mode(mode)).unwrap();
            if mode & 0o100 == 0 {
                break;
            }
        }
    }
    fs::set_permissions(&top, fs::Permissions::from_mode(0o000)).unwrap();
    remove(&scratch, "shut").unwrap();
    assert!(names(&scratch.0).is_empty());
}

/// Names that would break a line or a path are only bytes; FIFOs and sockets are not opened.
#[test]
fn odd_names_and_kinds_go() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let scratch = Scratch::new();
    let top = scratch.0.join("odd");
    for name in [&b"a\nb"[..], b"\xff\xfe", b"\x1b[2J", b"...", b"~", b"-rf", b" "] {
        let path = top.join(OsStr::from_bytes(name));
        fs::create_dir_all(path.join(OsStr::from_bytes(name))).unwrap();
    }
    let fifo = top.join("fifo");
    rustix::fs::mknodat(CWD, &fifo, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
    drop(std::os::unix::net::UnixListener::bind(top.join("socket")).unwrap());
    remove(&scratch, "odd").unwrap();
    assert!(names(&scratch.0).is_empty());
}

#[test]
fn a_file_and_nothing_go_as_well() {
    let scratch = Scratch::new();
    fs::write(scratch.0.join("file"), "").unwrap();
    remove(&scratch, "file").unwrap();
    remove(&scratch, "file").unwrap();
    assert!(names(&scratch.0).is_empty());
}

/// A mount is neither entered nor removed, and the way back from a deep failure ends.
#[test]
fn mounts_are_not_entered() {
    use rustix::mount::{UnmountFlags, mount_bind, unmount};
    let scratch = Scratch::new();
    let canary = scratch.0.join("canary");
    fs::create_dir(&canary).unwrap();
    fs::write(canary.join("file"), "alive").unwrap();
    let top = scratch.0.join("top");
    chain(&top, 100);
    let below = top.join("d/".repeat(100)).join("mount");
    fs::create_dir(&below).unwrap();
    if mount_bind(&canary, &below).is_err() {
        // Only root can make one; the rest of these tests are the ones for ordinary users.
        println!("not checked: this user cannot mount");
        return;
    }
    let result = remove(&scratch, "top");
    // Before anything can fail: a mount would outlive the test.
    unmount(&below, UnmountFlags::DETACH).unwrap();
    assert_eq!(result.unwrap_err().object, "…/d/d/d/d/mount");
    assert_eq!(names(&canary), ["file"]);
    remove(&scratch, "top").unwrap();
    assert_eq!(names(&scratch.0), ["canary"]);
}
