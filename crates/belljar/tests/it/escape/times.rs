//! P12 to P18: outstaying its time, leaving something behind, and attacks on the compiler.

use std::fs;
use std::time::Duration;

use super::{Done, Program, error_kind, number, program};
use crate::harness::{TempDir, Who, everyone, run_code};

/// Seconds from the first stage's start to the last one's end.
fn duration(done: &Done) -> f64 {
    done.json()["outcome"]["duration"].as_f64().expect("a duration")
}

/// Killed at the deadline, within half a second. The deadline is the control: with a later one the
/// program was seen living longer.
#[track_caller]
fn expect_deadline_kept(program: Program, who: Who) {
    for limit in [0.3, 0.9] {
        let done = program
            .run(who, &["--timeout", &format!("{limit}s")], &[])
            .go()
            .expect_code(124);
        assert_eq!(error_kind(&done), "timeout");
        assert!(
            (limit..limit + 0.5).contains(&duration(&done)),
            "{} after {limit}",
            duration(&done)
        );
    }
}

#[test]
fn p12_spinning_with_signals_blocked_ends_at_the_deadline() {
    for who in everyone() {
        expect_deadline_kept(program!("p12_spin.py"), who);
    }
}

#[test]
fn p13_sleeping_ends_at_the_deadline() {
    for who in everyone() {
        expect_deadline_kept(program!("p13_sleep.bash"), who);
    }
}

#[test]
fn p14_a_daemon_writes_nothing_after_the_result() {
    for who in everyone() {
        let place = TempDir::new();
        let mount = format!("{}:/workspace/shared:rw", place.path().display());
        let done = program!("p14_double_fork.py")
            .run(who, &["--mount", &mount], &[])
            .go()
            .expect_code(0);
        let ticks = || fs::read(place.path().join("ticks")).expect("it did write");
        let seen = ticks();
        assert!(!seen.is_empty() && !seen.ends_with(b"end"), "{done:#?}");
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(ticks(), seen);
    }
}

/// Seen failing without the kill of everything that is left: the daemon comes to its end.
#[cfg(feature = "weaken")]
#[test]
fn p14_a_daemon_gets_through_without_killrest() {
    for who in everyone() {
        let place = TempDir::new();
        let mount = format!("{}:/workspace/shared:rw", place.path().display());
        program!("p14_double_fork.py")
            .run(who, &["--mount", &mount], &[])
            .without("killrest")
            .go()
            .expect_code(0);
        assert!(
            fs::read(place.path().join("ticks"))
                .expect("it did write")
                .ends_with(b"end")
        );
    }
}

/// Fewer than ten thousand, for the sake of time: the limit is ten, so each hundred proves the
/// same. Those whose parent lives are not init's to reap, and fill the limit: without reaping this
/// is what would be seen.
#[test]
fn p15_orphans_are_reaped() {
    for who in everyone() {
        let program = program!("p15_unreaped.c");
        let done = program.run(who, &[], &["orphans", "500"]).go().expect_code(0);
        assert_eq!(number(&done, "made"), 500);
        let done = program.run(who, &[], &["own", "500"]).go().expect_code(0);
        assert_eq!(number(&done, "made"), 9);
    }
}

#[test]
fn p16_a_child_that_keeps_stdout_open_holds_up_nothing() {
    for who in everyone() {
        let done = program!("p16_held_stdout.bash")
            .run(who, &[], &[])
            .go()
            .expect_code(0);
        assert_eq!(done.guest_stdout(), "ended\n");
        assert!(duration(&done) < 1.0, "{}", duration(&done));
    }
}

/// Seen failing without the kill of everything that is left: the result waits for the child.
#[cfg(feature = "weaken")]
#[test]
fn p16_a_child_holds_up_the_result_without_killrest() {
    for who in everyone() {
        let done = program!("p16_held_stdout.bash")
            .run(who, &[], &[])
            .without("killrest")
            .go();
        assert!(duration(&done) >= 1.5, "{}", duration(&done));
    }
}

/// What ends a compiler: too large a file, or too much memory.
#[track_caller]
fn expect_compiler_stopped(done: &Done) {
    let outcome = &done.json()["outcome"];
    assert!(
        ["compile_failed", "out_of_memory"].contains(&error_kind(done).as_str()),
        "{done:#?}"
    );
    assert_eq!(outcome["error"]["stage"], "compile");
    assert_eq!(outcome["stdout"], "", "nothing may run");
}

/// It is the size that is refused: a smaller array compiles (and is no program, so it crashes).
#[test]
fn p17_a_huge_array_ends_the_compiler() {
    for who in everyone() {
        expect_compiler_stopped(&program!("p17_huge_array.c").run(who, &[], &[]).go());
        let small = Program {
            name: "small.c",
            code: "int main[1 << 20] = {1};",
        };
        assert_eq!(error_kind(&small.run(who, &[], &[]).go()), "signal");
    }
}

/// Never tried without the limit, since nothing else would end it; that it is the endless one that
/// is refused shows in one that ends at once.
#[test]
fn p18_an_endless_header_ends_the_compiler() {
    for who in everyone() {
        let done = program!("p18_endless_include.c")
            .run(who, &[], &[])
            .go()
            .expect_code(137);
        expect_compiler_stopped(&done);
        let ending = Program {
            name: "ending.c",
            code: "#include \"/dev/null\"\nint main(void) { return 0; }",
        };
        ending.run(who, &[], &[]).go().expect_code(0);
    }
}

/// P16 again: a copy of standard output that waits in a socket of somebody outside must not keep the
/// result from coming back. Seen hanging until the socket was closed.
#[test]
fn p16_a_stdout_sent_elsewhere_does_not_hold_up_the_result() {
    let dir = TempDir::new();
    let socket = dir.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
    std::fs::set_permissions(&socket, std::os::unix::fs::PermissionsExt::from_mode(0o777))
        .expect("open socket");
    let mount = format!("{}:/m:ro", dir.path().display());
    let code = "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect('/m/socket')\n\
                socket.send_fds(s, [b'x'], [1, 2])\nprint('sent')";
    for who in everyone() {
        let done = run_code(who, "python", code, &["--mount", &mount, "--timeout", "20s"])
            .go()
            .expect_code(0);
        assert_eq!(done.guest_stdout(), "sent\n");
        assert!(done.took < std::time::Duration::from_secs(15), "{done:#?}");
    }
}

/// Watching files would show what the host does, and use up instances that belong to the host's user.
#[test]
fn p22_files_cannot_be_watched_or_leased() {
    let code = "
import ctypes, fcntl, os
libc = ctypes.CDLL(None, use_errno=True)
print(libc.inotify_init1(0), os.strerror(ctypes.get_errno()))
file = open('mine', 'w')
for name, request in (('lease', 1024), ('notify', 1026)):
    try: print(name, fcntl.fcntl(file, request, 0))
    except OSError as error: print(name, error.strerror)
print(fcntl.fcntl(file, fcntl.F_GETFD))";
    for who in everyone() {
        let done = run_code(who, "python", code, &[]).go().expect_code(0);
        let refused = "Operation not permitted";
        assert_eq!(
            done.guest_stdout(),
            format!("-1 {refused}\nlease {refused}\nnotify {refused}\n1\n")
        );
    }
}
