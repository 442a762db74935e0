//! The provider contract: one suite, written once, and run against every wall that this machine has.
//!
//! A check says what a user can count on, whichever wall the policy picked. What a provider does not promise is named in
//! `subject.rs`, and is what its receipts say as well. `weak.rs` runs the same suite against a wall that
//! holds nothing: every check that is about holding must fail there, or it tests nothing.

#![expect(clippy::expect_used, reason = "tests fail by panicking")]

mod checks;
#[path = "../../../../tests/engines.rs"]
mod engines;
mod odd;
mod packages;
mod registry;
mod subject;
mod weak;

use std::io::Write;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use checks::{CHECKS, Check};
use subject::Subject;

/// How long one check may take.
const LONGEST: Duration = Duration::from_secs(120);

/// What became of one check.
enum Verdict {
    Holds,
    NotPromised,
    Fails(String),
}

fn run(check: &Check, subject: &Subject) -> Verdict {
    run_within(check, subject, LONGEST)
}

fn run_within(check: &Check, subject: &Subject, longest: Duration) -> Verdict {
    if !subject.promises(check.promise) {
        return Verdict::NotPromised;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async { tokio::time::timeout(longest, (check.run)(subject)).await })
    }));
    // What a check left undone is not waited for.
    runtime.shutdown_background();
    match outcome {
        Ok(Ok(Ok(()))) => Verdict::Holds,
        Ok(Ok(Err(why))) => Verdict::Fails(why),
        Ok(Err(_)) => Verdict::Fails(format!("it took longer than {} s", longest.as_secs())),
        Err(panic) => Verdict::Fails(format!("it panicked: {}", text(&*panic))),
    }
}

fn text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_default()
}

/// Holds a provider to the whole contract, and shows the table's column.
fn hold(subject: &Subject) {
    hold_to(subject, chosen());
}

/// The same for some of it: where the wall is another one's, and only what stands behind it is new.
fn hold_to(subject: &Subject, checks: impl Iterator<Item = &'static Check>) {
    let mut failed = Vec::new();
    for check in checks {
        let began = Instant::now();
        let verdict = run(check, subject);
        let word = match &verdict {
            Verdict::Holds => "holds",
            Verdict::NotPromised => "not promised",
            Verdict::Fails(_) => "FAILS",
        };
        show(&format!(
            "contract: {:<8} {:<52} {word} ({} ms)",
            subject.label,
            check.name,
            began.elapsed().as_millis()
        ));
        if let Verdict::Fails(why) = verdict {
            failed.push(format!("{}: {why}", check.name));
        }
    }
    assert!(failed.is_empty(), "{}:\n{}", subject.label, failed.join("\n"));
}

/// All checks, or those whose name holds the words of `BELLJAR_CONTRACT`.
fn chosen() -> impl Iterator<Item = &'static Check> {
    let wanted = std::env::var("BELLJAR_CONTRACT").unwrap_or_default();
    CHECKS.iter().filter(move |check| check.name.contains(&wanted))
}

/// Checks that are about what a program sees and starts.
fn of_the_root() -> impl Iterator<Item = &'static Check> {
    const WORDS: [&str; 8] = [
        "exit code",
        "hosts",
        "script",
        "JavaScript",
        "files",
        "state",
        "root",
        "read-only",
    ];
    chosen().filter(|check| WORDS.iter().any(|word| check.name.contains(word)))
}

/// Past what a test harness captures: the table is read also where everything holds.
fn show(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[test]
fn native_keeps_the_contract() {
    hold(&Subject::native());
}

#[test]
fn venv_keeps_the_contract() {
    hold(&Subject::venv());
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(work)
}

fn spawn(command: &mut std::process::Command) -> std::process::Child {
    command.spawn().expect("tests/engines")
}

#[test]
fn docker_keeps_the_contract() {
    if let Some(engine) = engines::docker(spawn) {
        hold(&Subject::docker("docker", &engine.socket, None));
    }
}

#[test]
fn gvisor_keeps_the_contract() {
    let subject = Subject::gvisor();
    if subject.is_present() {
        hold(&subject);
    }
}

/// gVisor as a runtime of Docker's.
#[test]
fn docker_with_gvisor_keeps_the_contract() {
    if let Some(engine) = engines::docker(spawn) {
        hold(&Subject::docker("runsc", &engine.socket, Some("runsc")));
    }
}

/// An environment with a root of its own, behind every wall that can have one: none of them shows the host's files then.
#[test]
fn an_imported_root_keeps_the_contract_behind_each_wall() {
    let archive = match engines::rootfs(spawn) {
        Ok(archive) => archive,
        Err(why) => return show(&format!("not tested here: a root file system: {why}")),
    };
    let base = std::env::temp_dir().join(format!("belljar-contract-rooted-{}", std::process::id()));
    hold(&Subject::native().rooted("n-root", &archive, &base));
    let gvisor = Subject::gvisor();
    if gvisor.is_present() {
        hold_to(&gvisor.rooted("g-root", &archive, &base), of_the_root());
    }
    if let Some(engine) = engines::docker(spawn) {
        let docker = Subject::docker("docker", &engine.socket, None);
        hold_to(&docker.rooted("d-root", &archive, &base), of_the_root());
    }
    let _ = std::process::Command::new("chmod")
        .args(["-R", "u+w"])
        .arg(&base)
        .status();
    let _ = std::fs::remove_dir_all(&base);
}

#[test]
fn podman_keeps_the_contract() {
    if let Some(engine) = engines::podman(spawn) {
        hold(&Subject::docker("podman", &engine.socket, None));
    }
}

/// On control groups of version 1 rootless Podman takes every limit and ignores it.
#[test]
fn rootless_podman_keeps_the_contract() {
    if let Some(engine) = engines::podman_rootless("belljar-test", spawn) {
        hold(&Subject::docker("rootless", &engine.socket, None).without_groups());
    }
}
