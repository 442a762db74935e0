//! R32: nothing is left after success, failure, timeout, panic, or a sudden death at any moment.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use belljar::blocking;
use rustix::process::{Pid, Signal, kill_process};

use crate::again::{alone, alone_and_then, reap_orphans, test_name};
use crate::harness::{
    self, TempDir, Who, belljar, children, control_groups, everyone, is_root, orphans, run_code,
};

/// R32 in its everyday forms. The check after every run is the harness's.
#[test]
fn r32_nothing_is_left_after_success_failure_and_timeout() {
    let family = "(setsid sleep 600 &) ; sleep 600 & echo x > /tmp/f; mkdir -p a/b; ";
    for who in everyone() {
        for (end, code) in [
            ("true", 0),
            ("exit 5", 5),
            ("kill -SEGV $$", 139),
            ("sleep 600", 124),
        ] {
            let args = ["--timeout", "1s"];
            run_code(who, "bash", &format!("{family} {end}"), &args)
                .go()
                .expect_code(code);
        }
        run_code(who, "c", "int main(void) { nonsense", &[])
            .go()
            .expect_code(1);
    }
}

/// R32: a program that embeds belljar and panics takes its sandboxes along.
#[test]
fn r32_nothing_is_left_after_a_panic_of_the_embedding_program() {
    let work = || {
        let mut sandbox = blocking::Sandbox::builder().build().expect("a sandbox");
        sandbox.exec(["touch", "here"]).expect("a command");
        std::thread::spawn(|| blocking::execute_code("import time; time.sleep(600)").run());
        std::thread::sleep(Duration::from_millis(300));
        panic!("as asked for");
    };
    alone_and_then(test_name!(), work, |output, _| {
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && text.contains("as asked for"),
            "{output:?}"
        );
    });
}

/// R32: a sandbox that is dropped while something runs in it is gone, and so is what ran.
#[test]
fn r32_dropping_a_run_ends_it() {
    alone(test_name!(), || {
        let marker = marker();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let code = format!("import time\nprint('{marker}', flush=True)\ntime.sleep(600)  # {marker}");
        let run = belljar::execute_code(&code).arg(&marker).into_future();
        let dropped = runtime.block_on(async { tokio::time::timeout(Duration::from_millis(500), run).await });
        assert!(dropped.is_err(), "it should have been running still");
        wait_until("the guest is gone", || processes_with(&marker).is_empty());
        wait_until("its control groups are gone", || {
            control_groups(std::process::id()).is_empty()
        });
        // The engine is as good as new.
        let run = blocking::execute_code("print('next')").run().expect("a run");
        assert_eq!(run.outcome.stdout.text(), "next\n");
    });
}

/// Whom a round of killing hits.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Engine,
    Launcher,
    Both,
}

/// R32, S1: killed at any moment, whoever it hits, nothing survives. Where launcher and engine die at
/// once, nobody is left to remove the control group, and the next start does.
#[test]
fn r32_nothing_survives_a_kill_at_any_moment() {
    alone(test_name!(), || {
        let who = if is_root() { Who::Root } else { Who::User };
        for round in 0..21 {
            let victim = [Victim::Engine, Victim::Launcher, Victim::Both][round % 3];
            kill_round(who, victim, Duration::from_millis(random(150)));
        }
    });
}

fn kill_round(who: Who, victim: Victim, after: Duration) {
    let scratch = TempDir::new();
    let marker = marker();
    let code = format!("sleep {marker} & (setsid sleep {marker} &) ; while :; do :; done");
    let mut command = belljar(who, ["run", "--lang", "bash", "--timeout", "60s", "-c", &code]).command();
    command.env("TMPDIR", scratch.path());
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let child = harness::spawn(&mut command);
    let engine = child.id();
    std::thread::sleep(after);
    let launcher = children(engine).into_iter().find(|pid| is_launcher(*pid));
    let shown = format!("{victim:?} after {after:?}, launcher {launcher:?}");
    let kill = |pid: u32| signal(pid, Signal::KILL);
    match (victim, launcher) {
        (Victim::Engine, _) | (Victim::Launcher, None) => kill(engine),
        (Victim::Launcher, Some(launcher)) => kill(launcher),
        (Victim::Both, launcher) => {
            launcher.into_iter().for_each(kill);
            kill(engine);
        }
    }
    let output = harness::finish(child);
    assert_ne!(output.status.code(), Some(0), "{shown}");
    wait_until(&format!("no process is left: {shown}"), || {
        reap_orphans();
        processes_with(&marker).is_empty() && orphans().is_empty()
    });
    // A group that the launcher had not been told of waits for the next start as well.
    if !control_groups(engine).is_empty() {
        std::thread::sleep(Duration::from_secs(1));
    }
    if matches!(victim, Victim::Both) || !control_groups(engine).is_empty() {
        belljar(who, ["run", "--lang", "bash", "-c", ":"])
            .go()
            .expect_code(0);
    }
    wait_until(&format!("no control group is left: {shown}"), || {
        control_groups(engine).is_empty()
    });
    let left: Vec<_> = fs::read_dir(scratch.path()).expect("scratch").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// R32: an engine that dies just when its launcher has something to tell it is cleared up after as well.
#[test]
fn r32_nothing_survives_an_engine_that_hears_no_more() {
    alone(test_name!(), || {
        let who = if is_root() { Who::Root } else { Who::User };
        let marker = marker();
        let code = format!("sleep {marker}");
        let mut command = belljar(who, ["run", "--lang", "bash", "--timeout", "60s", "-c", &code]).command();
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = harness::spawn(&mut command);
        let engine = child.id();
        wait_until("it runs", || !processes_with(&marker).is_empty());
        assert_eq!(
            control_groups(engine).is_empty(),
            !is_root(),
            "only root has groups here"
        );
        let launcher = children(engine).into_iter().find(|pid| is_launcher(*pid));
        let launcher = launcher.expect("a launcher");
        let nursery = children(launcher)[0];
        // Both are news to it when it goes on.
        signal(launcher, Signal::STOP);
        signal(nursery, Signal::KILL);
        signal(engine, Signal::KILL);
        harness::finish(child);
        wait_until("the nursery is over", || {
            fs::read_to_string(format!("/proc/{nursery}/stat")).is_ok_and(|stat| stat.contains(") Z "))
        });
        signal(launcher, Signal::CONT);
        wait_until("no process is left", || {
            reap_orphans();
            processes_with(&marker).is_empty() && orphans().is_empty()
        });
        assert_eq!(control_groups(engine), Vec::<PathBuf>::new());
    });
}

/// P55: jails whose engine is gone exit in turn, so that the kernel never has to free thousands of filters at once. Here the test holds
/// every slot, and nobody else ends the jail. Seen failing where init does not wait for its slot.
#[test]
fn p55_a_jail_waits_for_its_exit_slot() {
    if !is_root() {
        println!("not tested here: exit slots, which only root can hold");
        return;
    }
    alone(test_name!(), || {
        let marker = marker();
        let code = format!("sleep {marker}");
        let args = ["run", "--lang", "bash", "--timeout", "60s", "-c", &code];
        let mut command = belljar(Who::Root, args).command();
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = harness::spawn(&mut command);
        let engine = child.id();
        wait_until("it runs", || !processes_with(&marker).is_empty());
        let launcher = children(engine).into_iter().find(|pid| is_launcher(*pid));
        let launcher = launcher.expect("a launcher");
        let nursery = children(launcher)[0];
        signal(launcher, Signal::STOP);
        signal(nursery, Signal::STOP);
        let slots = hold_exit_slots(nursery);
        assert!(!slots.is_empty(), "it has no slot");
        let jails = children(nursery);
        signal(engine, Signal::KILL);
        harness::finish(child);
        wait_until("the jail waits for its slot", || {
            let locks = fs::read_to_string("/proc/locks").expect("locks");
            let waits = |pid: &u32| {
                let pid = pid.to_string();
                let mut lines = locks.lines().filter(|line| line.contains("->"));
                lines.any(|line| line.split_whitespace().any(|word| word == pid))
            };
            jails.iter().any(waits)
        });
        assert!(!processes_with(&marker).is_empty(), "its guest was ended");
        drop(slots);
        wait_until("its guest is gone", || processes_with(&marker).is_empty());
        signal(nursery, Signal::CONT);
        signal(launcher, Signal::CONT);
        wait_until("no process is left", || {
            reap_orphans();
            orphans().is_empty()
        });
    });
}

/// Takes every exit slot of a nursery, until they are dropped.
fn hold_exit_slots(nursery: u32) -> Vec<fs::File> {
    let descriptors = fs::read_dir(format!("/proc/{nursery}/fd")).expect("its descriptors");
    let slots = descriptors.flatten().map(|entry| entry.path()).filter(|path| {
        fs::read_link(path).is_ok_and(|target| target.to_string_lossy().starts_with("/memfd:belljar-exit"))
    });
    let hold = |path: PathBuf| {
        let slot = fs::File::options()
            .read(true)
            .write(true)
            .open(path)
            .expect("a slot");
        rustix::fs::fcntl_lock(&slot, rustix::fs::FlockOperation::NonBlockingLockExclusive).expect("a lock");
        slot
    };
    slots.map(hold).collect()
}

fn signal(pid: u32, signal: Signal) {
    let _ = kill_process(Pid::from_raw(pid.cast_signed()).expect("a pid"), signal);
}

/// A number that no other process has among its arguments.
fn marker() -> String {
    format!("6000.{}{:08}", std::process::id(), random(100_000_000))
}

fn random(below: u64) -> u64 {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).expect("random bytes");
    u64::from_ne_bytes(bytes) % below
}

#[track_caller]
fn wait_until(what: &str, done: impl Fn() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(
            started.elapsed() < Duration::from_secs(10),
            "not within 10 s: {what}; {:?}",
            orphans()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_launcher(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "bj-launcher")
}

/// Processes other than belljar that have `marker` among their arguments.
fn processes_with(marker: &str) -> Vec<PathBuf> {
    let processes = fs::read_dir("/proc")
        .expect("/proc")
        .flatten()
        .map(|entry| entry.path());
    processes
        .filter(|process| {
            let line = fs::read(process.join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).into_owned();
            line.contains(marker) && !line.contains("belljar")
        })
        .collect()
}
