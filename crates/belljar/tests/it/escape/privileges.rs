//! P25 to P30: mounts, other processes, terminals, privileged files, devices, core files; and what privileges are left.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Command, Stdio};

use super::{answer, answers, expect_only, program};
use crate::harness::{TempDir, Who, become_who, everyone, executable, finish, is_root, spawn};

#[test]
fn p25_mounts_are_refused() {
    for who in everyone() {
        expect_only(
            &program!("p25_mount.py").run(who, &[], &[]).go().expect_code(0),
            &["EPERM"],
        );
    }
}

/// Seen failing without the filter and Landlock, each of which holds it: through a user namespace
/// of its own.
#[cfg(feature = "weaken")]
#[test]
fn p25_mounts_get_through_without_seccomp_and_landlock() {
    for who in everyone() {
        let done = program!("p25_mount.py")
            .run(who, &[], &[])
            .without("seccomp,landlock")
            .go();
        for way in [
            "as root mount",
            "as root bind",
            "as root fsopen",
            "as root chroot",
        ] {
            assert_eq!(answer(&done, way), "ok");
        }
        let done = program!("p25_mount.py")
            .run(who, &[], &[])
            .without("seccomp")
            .go();
        assert_eq!(answer(&done, "as root mount"), "EPERM");
    }
}

#[test]
fn p26_other_processes_are_out_of_reach() {
    for who in everyone() {
        // Its own exit code also shows that init outlived its signals.
        let done = program!("p26_other_processes.py")
            .run(who, &[], &[])
            .go()
            .expect_code(7);
        expect_only(&done, &["EPERM", "ENOENT"]);
    }
}

/// Seen failing without the filter, for a child of its own. Init is not dumpable and stays out of
/// reach.
#[cfg(feature = "weaken")]
#[test]
fn p26_children_are_steered_without_seccomp() {
    for who in everyone() {
        let done = program!("p26_other_processes.py")
            .run(who, &[], &[])
            .without("seccomp")
            .go()
            .expect_code(7);
        for way in ["process_vm_readv", "process_vm_writev", "pidfd_getfd", "ptrace"] {
            assert_eq!(answer(&done, way), "ok");
        }
        assert_eq!(answer(&done, "ptrace init"), "EPERM");
    }
}

/// Seen getting further without the restrictions on `/proc`: init's files are there, and denied.
#[cfg(feature = "weaken")]
#[test]
fn p26_init_is_seen_without_privateproc() {
    for who in everyone() {
        let done = program!("p26_other_processes.py")
            .run(who, &[], &[])
            .without("privateproc")
            .go();
        assert_eq!(answer(&done, "/proc/1/maps"), "EACCES");
        assert_eq!(answer(&done, "/proc/1/mem"), "EACCES");
    }
}

#[test]
fn p27_nothing_can_be_typed_into_a_terminal() {
    for who in everyone() {
        let done = program!("p27_terminal.py").run(who, &[], &[]).go().expect_code(0);
        expect_only(&done, &["EPERM", "ENOENT", "False"]);
    }
}

/// The same where belljar's own streams are a terminal that it is told to pass on.
#[test]
fn p27_a_terminal_that_is_passed_on_cannot_be_typed_into() {
    for who in everyone() {
        let mut command = Command::new("python3");
        command
            .args(["-c", "import pty, sys; pty.spawn(sys.argv[1:])"])
            .arg(executable());
        command.args(["run", "--stdin", "-", "-c", program!("p27_terminal.py").code]);
        command
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        become_who(&mut command, who);
        let output = finish(spawn(&mut command)).stdout;
        let text = String::from_utf8_lossy(&output).replace('\r', "");
        let answers = answers(&text);
        for descriptor in 0..3 {
            assert_eq!(
                answers.get(&*format!("terminal {descriptor}")),
                Some(&"False"),
                "{text}"
            );
            assert_eq!(
                answers.get(&*format!("TIOCSTI {descriptor}")),
                Some(&"EPERM"),
                "{text}"
            );
        }
    }
}

/// Seen failing without the filter: the request goes through to what is no terminal.
#[cfg(feature = "weaken")]
#[test]
fn p27_the_request_gets_through_without_seccomp() {
    for who in everyone() {
        let done = program!("p27_terminal.py")
            .run(who, &[], &[])
            .without("seccomp")
            .go();
        assert_eq!(answer(&done, "TIOCSTI 0"), "ENOTTY");
    }
}

/// A directory for the guest to write to, with a setuid program of the host's in it.
fn shared_place() -> TempDir {
    let place = TempDir::new();
    let tool = place.path().join("host-id");
    fs::copy("/usr/bin/id", &tool).expect("copy a program");
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o4755)).expect("make it setuid");
    place
}

/// Files of a directory that are setuid or setgid, the planted one aside.
fn privileged(place: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(place.path()).expect("a place").flatten();
    let found = entries.filter(|entry| entry.metadata().is_ok_and(|data| data.mode() & 0o6000 != 0));
    found
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name != "host-id")
        .collect()
}

#[test]
fn p28_setuid_files_are_neither_made_nor_heeded() {
    for who in everyone() {
        let place = shared_place();
        let mount = format!("{}:/workspace/shared:rw", place.path().display());
        let done = program!("p28_setuid.py")
            .run(who, &["--mount", &mount], &[])
            .go()
            .expect_code(0);
        expect_only(&done, &["EPERM"]);
        // The host's own setuid program was run last and tells who it is.
        assert!(done.guest_stdout().ends_with("\n1000\n"), "{done:#?}");
        assert_eq!(privileged(&place), [""; 0]);
    }
    // Seen failing outside: there the program makes an ordinary user root.
    if is_root() {
        let place = shared_place();
        let mut command = Command::new(place.path().join("host-id"));
        command.arg("-u").stdout(Stdio::piped());
        become_who(&mut command, Who::User);
        assert_eq!(finish(spawn(&mut command)).stdout, b"0\n");
    }
}

/// Seen failing without the filter: every way carries a setuid file to the host.
#[cfg(feature = "weaken")]
#[test]
fn p28_setuid_files_get_made_without_seccomp() {
    for who in everyone() {
        let place = shared_place();
        let mount = format!("{}:/workspace/shared:rw", place.path().display());
        let done = program!("p28_setuid.py")
            .run(who, &["--mount", &mount], &[])
            .without("seccomp")
            .go();
        expect_only(&done, &["ok"]);
        assert_eq!(privileged(&place).len(), 14);
    }
}

#[test]
fn p29_devices_are_absent_and_cannot_be_made() {
    for who in everyone() {
        let done = program!("p29_devices.py")
            .run(who, &[], &["/workspace"])
            .go()
            .expect_code(0);
        let devices = "full null random shm urandom zero";
        expect_only(&done, &["EPERM", "ENOENT", devices]);
    }
    // The user namespace holds it and cannot be left out. Seen failing outside, as root.
    if is_root() {
        let place = TempDir::new();
        let text = program!("p29_devices.py").outside(&[&place.path().to_string_lossy()]);
        assert_eq!(answers(&text).get("mknod mem"), Some(&"ok"), "{text}");
    }
}

#[test]
fn p30_a_crash_leaves_no_core() {
    for who in everyone() {
        let done = program!("p30_core.py").run(who, &[], &[]).go().expect_code(0);
        assert_eq!(answer(&done, "raise"), "refused");
        assert_eq!(answer(&done, "dumped"), "False");
        assert_eq!(answer(&done, "files"), "");
    }
}

/// Seen failing without resource limits, unless the machine hands cores to a program of its own:
/// that would run on the host, so it is not tried there.
#[cfg(feature = "weaken")]
#[test]
fn p30_a_crash_leaves_a_core_without_rlimits() {
    if fs::read_to_string("/proc/sys/kernel/core_pattern").is_ok_and(|pattern| pattern.starts_with('|')) {
        return;
    }
    for who in everyone() {
        let done = program!("p30_core.py")
            .run(who, &[], &[])
            .without("rlimits")
            .go()
            .expect_code(0);
        assert_eq!(answer(&done, "dumped"), "True");
    }
}

/// What every other test of privileges leans on: none is held, and none can be had again.
#[test]
fn no_capability_is_left() {
    for who in everyone() {
        let done = program!("capabilities.py").run(who, &[], &[]).go().expect_code(0);
        expect_only(&done, &["0000000000000000"]);
        assert_eq!(answers(&done.guest_stdout()).len(), 5, "{done:#?}");
    }
}

/// Seen failing without the step that gives them up: the bounding set is full.
#[cfg(feature = "weaken")]
#[test]
fn capabilities_are_left_without_nocapabilities() {
    for who in everyone() {
        let done = program!("capabilities.py")
            .run(who, &[], &[])
            .without("nocapabilities")
            .go();
        assert_ne!(answer(&done, "CapBnd"), "0000000000000000");
    }
}
