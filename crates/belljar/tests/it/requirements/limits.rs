//! R25: each limit bites. R31: so does the cap on output.

use std::fs::{self, File};
use std::process::Stdio;
use std::time::Duration;

use crate::harness::{self, TempDir, Who, belljar, everyone, executable, run_code};

/// R25: CPU time is counted to the end, and over all processes together.
#[test]
fn r25_cpu_time_is_limited_for_all_processes_together() {
    let spinners = "for _ in 1 2 3 4; do (while :; do :; done) & done; wait";
    // Each of these is too short-lived to reach the limit by itself.
    let generations = "while :; do bash -c 'for ((i = 0; i < 2000; i++)); do :; done'; done";
    for who in everyone() {
        for code in ["while :; do :; done", spinners, generations] {
            let done = run_code(who, "bash", code, &["--cpu-seconds", "1s", "--timeout", "60s"])
                .go()
                .expect_code(124);
            let outcome = done.json()["outcome"].clone();
            assert_eq!(outcome["status"], "timeout", "{done:#?}");
            assert_eq!(outcome["error"]["type"], "cpu_time", "{done:#?}");
            let cpu = outcome["usage"]["cpu_seconds"].as_f64().expect("a time");
            assert!((0.8..2.5).contains(&cpu), "{cpu} s of CPU time for {code}");
        }
        // Sleeping costs none.
        let code = "sleep 1.5; echo rested";
        let done = run_code(who, "bash", code, &["--cpu-seconds", "1s"])
            .go()
            .expect_code(0);
        assert_eq!(done.guest_stdout(), "rested\n");
    }
}

/// R25: no file grows beyond its limit, on any file system of the sandbox.
#[test]
fn r25_file_size_is_limited() {
    let code = "import errno, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n\
                for place in ('/workspace/x', '/tmp/x', '/dev/shm/x'):\n    \
                    try:\n        with open(place, 'wb') as f:\n            \
                        while f.write(b'x' * 65536): pass\n    \
                    except OSError as error:\n        \
                        import os; print(errno.errorcode[error.errno], os.path.getsize(place))";
    for who in everyone() {
        let done = run_code(who, "python", code, &["--file-size", "1M"])
            .go()
            .expect_code(0);
        assert_eq!(done.guest_stdout(), "EFBIG 1048576\n".repeat(3));
        // A program that does not care is ended by its signal.
        let code = "trap - XFSZ; exec dd if=/dev/zero of=x bs=64k count=64 status=none";
        let done = run_code(who, "bash", code, &["--file-size", "1M"]).go();
        assert_eq!(done.json()["outcome"]["error"]["type"], "file_size", "{done:#?}");
    }
}

/// R25: open files are limited, and the limit cannot be raised from inside.
#[test]
fn r25_open_files_are_limited() {
    let code = "import os, resource\n\
                try: resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))\n\
                except (ValueError, PermissionError): print('kept')\n\
                opened = 3\n\
                try:\n    while True: os.open('/dev/null', os.O_RDONLY); opened += 1\n\
                except OSError as error: print(error.strerror, opened)";
    for who in everyone() {
        let done = run_code(who, "python", code, &["--open-files", "32"])
            .go()
            .expect_code(0);
        assert_eq!(done.guest_stdout(), "kept\nToo many open files 32\n");
    }
}

/// R25: room that threads leave behind is not room for processes: what slips in is ended.
#[test]
fn r25_threads_that_ended_leave_no_room_for_processes() {
    let code = "
import os, threading, time
done = threading.Event()
threads = [threading.Thread(target=done.wait) for _ in range(30)]
[thread.start() for thread in threads]
done.set()
[thread.join() for thread in threads]
try:
    for _ in range(40):
        if os.fork() == 0: time.sleep(20)
except BlockingIOError:
    pass
time.sleep(1)
alive = 0
for pid in filter(str.isdigit, os.listdir('/proc')):
    with open(f'/proc/{pid}/stat') as stat: alive += stat.read().rsplit(')', 1)[1].split()[0] != 'Z'
print(alive)";
    for who in everyone() {
        let done = run_code(who, "python", code, &["--processes", "3"])
            .go()
            .expect_code(0);
        assert_eq!(done.guest_stdout(), "3\n", "{who:?}");
    }
}

/// R25: exactly as many processes as permitted, threads aside.
#[test]
fn r25_processes_are_limited_exactly_and_threads_do_not_count() {
    let code = "import os, sys, threading, time\n\
                hold = threading.Event()\n\
                for _ in range(int(sys.argv[1])): threading.Thread(target=hold.wait, daemon=True).start()\n\
                time.sleep(.5)\n\
                alive = 1\n\
                try:\n    while alive < 100:\n        if os.fork() == 0:\n            time.sleep(60); os._exit(0)\n        alive += 1\n\
                except OSError as error: print(error.strerror, alive)\n\
                os._exit(0)";
    for who in everyone() {
        for (threads, processes) in [("0", "1"), ("0", "10"), ("40", "10"), ("5", "3"), ("0", "50")] {
            let done = belljar(who, ["run", "--processes", processes, "-c", code, "--", threads])
                .go()
                .expect_code(0);
            assert_eq!(
                done.stdout,
                format!("Resource temporarily unavailable {processes}\n"),
                "{threads} threads"
            );
        }
        // What has ended makes room again: many in a row are no crowd.
        let code = "for i in $(seq 200); do /bin/true || exit 9; done; for i in $(seq 50); do sh -c 'echo x | cat'; done | wc -l";
        let done = run_code(who, "bash", code, &["--processes", "10"])
            .go()
            .expect_code(0);
        assert_eq!(done.guest_stdout().trim(), "50");
    }
}

/// A share of the CPU, where the machine can give one.
#[test]
fn r25_a_share_of_the_cpu_slows_a_program_down() {
    let code = "import time\nend = time.monotonic() + 2\nwhile time.monotonic() < end: pass\nprint(time.process_time())";
    for who in everyone() {
        let args = ["--cpu-percent", "20", "--require", "cpu-cgroup"];
        let done = run_code(who, "python", code, &args).go();
        if done.code == Some(126) {
            assert_eq!(done.json()["denial"]["code"], "control_unavailable");
            crate::machine::absent("a share of the CPU", &format!("{who:?} has no cpu cgroup"));
            continue;
        }
        let used: f64 = done.expect_code(0).guest_stdout().trim().parse().expect("a time");
        assert!(used < 1.2, "{used} s in 2 s");
    }
}

/// R31: each stream is cut at its cap and says so.
#[test]
fn r31_output_is_cut_with_a_marker() {
    let code = "import sys\nsys.stdout.write('o' * 5000)\nsys.stderr.write('e' * 4096)";
    for who in everyone() {
        let done = run_code(who, "python", code, &["--output-limit", "4K"])
            .go()
            .expect_code(0);
        let outcome = done.json()["outcome"].clone();
        let stdout = format!(
            "{}\n[belljar: cut after 4 KiB, 904 B more dropped]\n",
            "o".repeat(4096)
        );
        assert_eq!(outcome["stdout"], stdout.as_str());
        assert_eq!(outcome["stderr"], "e".repeat(4096));

        let done = belljar(who, ["run", "--output-limit", "4K", "-c", code])
            .go()
            .expect_code(0);
        assert_eq!(done.stdout.len(), 4096);
        assert!(done.stderr.ends_with(
            "belljar: stdout was cut after 4 KiB; 904 B more were dropped\nhint: keep more with --output-limit, \
             or write large results to a file and take it with --out\n"
        ));
    }
}

/// R31: however much is printed, belljar's own memory stays where it is.
#[test]
fn r31_memory_is_bounded_while_hundreds_of_megabytes_are_printed() {
    let code = "import os\nblock = b'x' * (1 << 20)\nfor _ in range(200):\n    os.write(1, block)\n    os.write(2, block)\n\
                os.write(1, b'end')";
    const CAP: u64 = 8;
    for who in everyone() {
        for json in [false, true] {
            let mut args = vec!["run", "--output-limit", "8M", "-c", code];
            args.extend(json.then_some("--json"));
            let peak = peak_memory(who, &args);
            assert!(
                peak < (CAP + 64) << 20,
                "{} MiB as {who:?}, json {json}",
                peak >> 20
            );
        }
    }
}

/// The most resident memory that belljar had, its output thrown away.
fn peak_memory(who: Who, args: &[&str]) -> u64 {
    assert!(executable().exists());
    let scratch = TempDir::new();
    let mut command = belljar(who, args.iter().copied()).command();
    let null = || File::options().write(true).open("/dev/null").expect("/dev/null");
    command
        .stdin(Stdio::null())
        .stdout(null())
        .stderr(null())
        .env("TMPDIR", scratch.path());
    let mut child = harness::spawn(&mut command);
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    while child.try_wait().expect("wait").is_none() {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        peak = peak.max(kib.unwrap_or(0) << 10);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(harness::finish(child).status.success());
    assert!(peak > 0, "its memory was never seen");
    peak
}
