//! P19 to P30: the kernel's interfaces.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Command, Stdio};

use belljar_linux::{RuleAction, rules};

use super::{Done, answer, answers, enforced, expect_only, number, program};
use crate::harness::{Run, TempDir, Who, become_who, everyone, executable, finish, is_root, spawn};

const EPERM: i32 = 1;
const ENOSYS: i32 = 38;
/// How `p19_every_syscall.c` tells that SIGSYS ended it.
const KILLED: &str = "1031";

/// Every number that may not succeed, and the errno it must fail with, as lines.
fn refused_calls() -> String {
    let known: BTreeMap<i64, RuleAction> = rules().iter().map(|rule| (rule.number, rule.action)).collect();
    let mut table = String::new();
    for number in 0..=470 {
        let errno = match known.get(&number) {
            None => ENOSYS,
            Some(RuleAction::Deny) => EPERM,
            Some(_) => continue,
        };
        writeln!(table, "{number} {errno}").expect("write to a string");
    }
    table
}

fn every_call(who: Who) -> Run {
    program!("p19_every_syscall.c")
        .run(who, &[], &[])
        .stdin(refused_calls())
}

#[test]
fn p19_every_call_outside_the_list_is_refused() {
    for who in everyone() {
        let done = every_call(who).go().expect_code(0);
        assert_eq!(answer(&done, "wrong"), "0", "{}", done.guest_stdout());
        assert_eq!(number(&done, "checked") as usize, refused_calls().lines().count());
        assert_eq!(answer(&done, "x32"), KILLED);
        assert_eq!(answer(&done, "int80"), KILLED);
    }
}

/// Seen failing without the filter. With zeroes for arguments and no capabilities the calls do no
/// harm.
#[cfg(feature = "weaken")]
#[test]
fn p19_calls_get_through_without_seccomp() {
    for who in everyone() {
        let done = every_call(who).without("seccomp").go().expect_code(0);
        assert!(number(&done, "wrong") > 40, "{}", done.guest_stdout());
        assert_ne!(answer(&done, "x32"), KILLED);
        assert_ne!(answer(&done, "int80"), KILLED);
        assert!(!enforced(&done, "seccomp"));
    }
}

#[test]
fn p20_io_uring_is_refused() {
    for who in everyone() {
        expect_only(
            &program!("p20_io_uring.py").run(who, &[], &[]).go().expect_code(0),
            &["EPERM"],
        );
    }
}

/// Seen failing without the filter, where the machine has io_uring enabled.
#[cfg(feature = "weaken")]
#[test]
fn p20_io_uring_gets_through_without_seccomp() {
    let disabled =
        fs::read_to_string("/proc/sys/kernel/io_uring_disabled").is_ok_and(|text| text.trim() != "0");
    for who in everyone() {
        let done = program!("p20_io_uring.py")
            .run(who, &[], &[])
            .without("seccomp")
            .go();
        assert_eq!(
            answer(&done, "io_uring_setup"),
            if disabled { "EPERM" } else { "ok" }
        );
        assert_ne!(answer(&done, "io_uring_register"), "EPERM");
    }
}

#[test]
fn p21_new_namespaces_are_refused() {
    for who in everyone() {
        let done = program!("p21_namespaces.c")
            .run(who, &[], &[])
            .go()
            .expect_code(0);
        let stdout = done.guest_stdout();
        assert_eq!(answers(&stdout).len(), 25, "{stdout}");
        for (name, answer) in answers(&stdout) {
            assert_eq!(
                answer,
                if name.starts_with("clone3") {
                    "ENOSYS"
                } else {
                    "EPERM"
                },
                "{name}"
            );
        }
    }
}

/// Seen failing without the filter: a user namespace needs no capability.
#[cfg(feature = "weaken")]
#[test]
fn p21_a_user_namespace_gets_through_without_seccomp() {
    for who in everyone() {
        let done = program!("p21_namespaces.c")
            .run(who, &[], &[])
            .without("seccomp")
            .go();
        for way in ["unshare user", "clone user", "clone3 user"] {
            assert_eq!(answer(&done, way), "ok");
        }
    }
}

#[test]
fn p22_dangerous_interfaces_are_refused() {
    for who in everyone() {
        expect_only(
            &program!("p22_kernel_interfaces.py")
                .run(who, &[], &[])
                .go()
                .expect_code(0),
            &["EPERM"],
        );
    }
}

/// Seen failing without the filter: the first of them is open to everyone.
#[cfg(feature = "weaken")]
#[test]
fn p22_dangerous_interfaces_get_through_without_seccomp() {
    for who in everyone() {
        let done = program!("p22_kernel_interfaces.py")
            .run(who, &[], &[])
            .without("seccomp")
            .go();
        assert_eq!(answer(&done, "userfaultfd"), "ok");
    }
}

#[test]
fn p23_key_rings_are_refused() {
    for who in everyone() {
        let program = program!("p23_keys.py");
        expect_only(
            &program.run(who, &[], &["add_key"]).go().expect_code(0),
            &["EPERM"],
        );
        expect_only(
            &program
                .run(who, &[], &["keyctl", "request_key"])
                .go()
                .expect_code(0),
            &["EPERM"],
        );
    }
}

/// Seen failing without the filter: a key is stored and found. A later run has a user namespace
/// with key rings of its own, so even then it finds nothing.
#[cfg(feature = "weaken")]
#[test]
fn p23_keys_get_through_without_seccomp() {
    for who in everyone() {
        let program = program!("p23_keys.py");
        expect_only(
            &program
                .run(who, &[], &["add_key", "keyctl"])
                .without("seccomp")
                .go(),
            &["ok"],
        );
        expect_only(
            &program.run(who, &[], &["keyctl"]).without("seccomp").go(),
            &["ENOKEY"],
        );
    }
}

/// The sockets that a run could make.
fn sockets(done: &Done) -> BTreeSet<String> {
    let stdout = done.guest_stdout();
    answers(&stdout)
        .into_iter()
        .filter(|(_, answer)| *answer == "ok")
        .map(|(name, _)| name.to_owned())
        .collect()
}

#[test]
fn p24_only_listed_sockets_exist() {
    // Local streams, datagrams and packets; streams and datagrams of both internet families.
    let listed = [
        "1 1 0", "1 2 0", "1 5 0", "2 1 0", "2 2 0", "10 1 0", "10 2 0", "done",
    ];
    for who in everyone() {
        let done = program!("p24_sockets.py").run(who, &[], &[]).go().expect_code(0);
        assert_eq!(sockets(&done), listed.map(str::to_owned).into());
        // Other families fail in the filter, before the kernel could load a module for them.
        let stdout = done.guest_stdout();
        let families = answers(&stdout)
            .into_keys()
            .map(|name| name.trim_start_matches("pair ").to_owned());
        assert!(
            families
                .filter(|name| name != "done")
                .all(|name| { ["1 ", "2 ", "10 "].iter().any(|family| name.starts_with(family)) })
        );
    }
}

/// Seen failing without the filter: raw local sockets, netlink, and whatever the kernel has.
#[cfg(feature = "weaken")]
#[test]
fn p24_other_sockets_get_through_without_seccomp() {
    for who in everyone() {
        let sockets = sockets(
            &program!("p24_sockets.py")
                .run(who, &[], &[])
                .without("seccomp")
                .go(),
        );
        for name in ["1 3 0", "16 3 0"] {
            assert!(sockets.contains(name), "{sockets:?}");
        }
    }
}

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
