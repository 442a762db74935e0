//! P19 to P24: system calls and sockets.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
#[cfg(feature = "weaken")]
use std::fs;

use belljar_linux::{RuleAction, rules};

#[cfg(feature = "weaken")]
use super::enforced;
use super::{Done, answer, answers, expect_only, number, program};
use crate::harness::{Run, Who, everyone};

const EPERM: i32 = 1;
const ENOSYS: i32 = 38;
const EOPNOTSUPP: i32 = 95;
/// uretprobe and uprobe, which the kernel itself lets pass every filter (since 6.12). Where no probe
/// was set they do nothing but fail.
const UNFILTERED: [i64; 2] = [335, 336];
/// How `p19_every_syscall.c` tells that SIGSYS ended it.
const KILLED: &str = "1031";

/// Every number that may not succeed, and the errno it must fail with, as lines.
fn refused_calls() -> String {
    let known: BTreeMap<i64, RuleAction> = rules().iter().map(|rule| (rule.number, rule.action)).collect();
    let mut table = String::new();
    for number in (0..=470).filter(|number| !UNFILTERED.contains(number)) {
        let errno = match known.get(&number) {
            None => ENOSYS,
            Some(RuleAction::Deny) => EPERM,
            Some(RuleAction::Unsupported) => EOPNOTSUPP,
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
        // The filter that counts processes knows one architecture only, too.
        let done = every_call(who)
            .without("seccomp,countprocesses")
            .go()
            .expect_code(0);
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
