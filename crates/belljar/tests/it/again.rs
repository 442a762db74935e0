//! Tests that start themselves again, in a process of their own and as another user.
//!
//! A program that embeds the library has a launcher as its child, and one that is killed leaves
//! orphans to whoever adopts them. So such a test does its work in a worker, below a keeper that
//! adopts what the worker leaves and waits until it is gone: no other test sees any of it.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitOptions, waitpid};

use crate::harness::{self, EXECUTABLE, Who, control_groups, everyone, everyones_copy, orphans};

/// The test that this process was started for.
const TEST: &str = "BELLJAR_IT_TEST";
/// What it is to do for it.
const ROLE: &str = "BELLJAR_IT_ROLE";
/// The exit status of a keeper whose worker left something behind.
const LEFTOVERS: i32 = 70;

/// The name of the test in which it stands.
macro_rules! test_name {
    () => {{
        const fn here() {}
        let name = std::any::type_name_of_val(&here);
        let (_, name) = name.split_once("::").expect("a path");
        name.trim_end_matches("::here")
    }};
}
pub(crate) use test_name;

/// Does `work` once as everyone, each time in a process of its own after which nothing is left.
pub(crate) fn alone(name: &str, work: impl FnOnce()) {
    alone_and_then(name, work, |output, who| expect_passed(name, &output, who));
}

/// [`alone`], with further variables.
pub(crate) fn alone_with(name: &str, variables: &[(&str, String)], work: impl FnOnce()) {
    staged(name, variables, work, |output, who| {
        expect_passed(name, &output, who)
    });
}

/// [`alone`], with `look` for what came of it.
pub(crate) fn alone_and_then(name: &str, work: impl FnOnce(), look: impl Fn(Output, Who)) {
    staged(name, &[], work, look);
}

fn staged(name: &str, variables: &[(&str, String)], work: impl FnOnce(), look: impl Fn(Output, Who)) {
    let ours = std::env::var(TEST).is_ok_and(|test| test == name);
    match std::env::var(ROLE).as_deref() {
        Ok("worker") if ours => work(),
        Ok("keeper") if ours => keep(name, variables),
        _ => {
            for who in everyone() {
                let output = run_with_pid(name, "keeper", Some(who), variables).1;
                assert_ne!(
                    output.status.code(),
                    Some(LEFTOVERS),
                    "{name} as {who:?}\n{}",
                    text(&output)
                );
                look(output, who);
            }
        }
    }
}

fn expect_passed(name: &str, output: &Output, who: Who) {
    let shown = text(output);
    assert!(
        output.status.success() && shown.contains("1 passed"),
        "{name} as {who:?}\n{shown}"
    );
}

/// Runs the worker, waits until nothing is left of it, and ends as it did.
fn keep(name: &str, variables: &[(&str, String)]) {
    let (pid, output) = run_with_pid(name, "worker", None, variables);
    let started = Instant::now();
    let gone = loop {
        reap_orphans();
        if orphans().is_empty() && control_groups(pid).is_empty() {
            break true;
        }
        if started.elapsed() > Duration::from_secs(10) {
            break false;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    print!("{}", String::from_utf8_lossy(&output.stdout));
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    if !gone {
        eprintln!("left behind: {:?} {:?}", orphans(), control_groups(pid));
        std::process::exit(LEFTOVERS);
    }
    if !output.status.success() {
        std::process::exit(output.status.code().unwrap_or(1));
    }
}

/// Waits for orphans that came to us and are over.
pub(crate) fn reap_orphans() {
    for orphan in orphans() {
        let pid = orphan
            .split(' ')
            .next()
            .and_then(|pid| pid.parse().ok())
            .and_then(Pid::from_raw);
        let _ = waitpid(pid, WaitOptions::NOHANG);
    }
}

fn run_with_pid(name: &str, role: &str, who: Option<Who>, variables: &[(&str, String)]) -> (u32, Output) {
    static COPY: LazyLock<PathBuf> = LazyLock::new(|| {
        let this = std::env::current_exe().expect("this executable");
        if std::env::var_os(ROLE).is_some() {
            this
        } else {
            everyones_copy(&this)
        }
    });
    let mut command = Command::new(&*COPY);
    command
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env_clear()
        .env("PATH", std::env::var("PATH").unwrap_or_default())
        .env("HOME", "/nonexistent")
        .env(TEST, name)
        .env(ROLE, role)
        .env(EXECUTABLE, harness::executable())
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    if let Some(who) = who {
        harness::become_who(&mut command, who);
    }
    let child = harness::spawn(&mut command);
    let pid = child.id();
    (pid, harness::finish(child))
}

fn text(output: &Output) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}
