//! Machines and containers that lack a control: what is preferred is reported absent, what is
//! required is a denial that says what to do. Each is a real lack, made with `unshare` or `setpriv`.

use std::process::{Command, Stdio};

use crate::harness::{self, Done, Who, belljar, is_root, run_code};
use crate::machine::absent;

/// Runs belljar within `before`, a command that takes another as its last arguments.
fn within(before: &[&str], who: Who, args: &[&str]) -> Done {
    belljar(who, args.iter().copied()).within(before).go()
}

fn observed<'a>(outcome: &'a serde_json::Value, control: &str) -> &'a str {
    outcome["outcome"]["receipt"]["controls"][control]["state"]
        .as_str()
        .unwrap_or("missing")
}

/// A shell line that hides a part of /proc, as container engines do, and then runs its arguments.
const MASKED_PROC: [&str; 6] = [
    "unshare",
    "--mount",
    "sh",
    "-c",
    "mount --bind /dev/null /proc/version && exec \"$0\" \"$@\"",
    "env",
];

#[test]
fn an_ordinary_user_without_a_control_group_is_told_so() {
    let done = run_code(Who::User, "python", "print(1)", &[])
        .go()
        .expect_code(0)
        .json();
    if observed(&done, "memory-cgroup") == "enforced" {
        absent(
            "an ordinary user without control groups",
            "this machine delegates them",
        );
        return;
    }
    assert!(
        !done["outcome"]["receipt"]["controls"]["memory-cgroup"]["why"]
            .as_str()
            .unwrap()
            .is_empty()
    );
    let denied = run_code(Who::User, "python", "print(1)", &["--require", "memory-cgroup"])
        .go()
        .expect_code(126);
    let denial = denied.json();
    assert_eq!(denial["denial"]["code"], "control_unavailable");
    assert_eq!(denial["denial"]["value"], "memory-cgroup");
    assert!(!denial["denial"]["fix"].as_str().unwrap().is_empty());
}

#[test]
fn a_hidden_proc_leaves_the_guest_without_one() {
    if !is_root() {
        absent("a machine whose /proc is hidden in part", "hiding it needs root");
        return;
    }
    let code = "import os; print(os.path.exists('/proc/self')); os.fork()";
    let done = within(&MASKED_PROC, Who::Root, &["run", "--json", "-c", code]).expect_code(0);
    assert_eq!(done.guest_stdout(), "False\n");
    assert_eq!(observed(&done.json(), "private-proc"), "absent");
    assert_eq!(observed(&done.json(), "process-count"), "absent");
    let denied = within(
        &MASKED_PROC,
        Who::Root,
        &["run", "--json", "--require", "private-proc", "-c", code],
    );
    assert_eq!(denied.expect_code(126).json()["denial"]["value"], "private-proc");
}

/// Without the exact count, threads and processes are bounded together: a fork bomb still ends.
#[test]
fn processes_are_bounded_without_a_proc_to_count_them() {
    if !is_root() {
        absent("a machine whose /proc is hidden in part", "hiding it needs root");
        return;
    }
    let code = "import os, time\ncount = 0\ntry:\n  while count < 5000:\n    if os.fork() == 0: time.sleep(30)\n    \
                count += 1\nexcept BlockingIOError:\n  print('refused', count < 1000)";
    let done = within(&MASKED_PROC, Who::Root, &["run", "--json", "-c", code]).expect_code(0);
    assert_eq!(done.guest_stdout(), "refused True\n");
}

#[test]
fn root_without_capabilities_works_like_an_ordinary_user() {
    if !is_root() {
        absent("root without capabilities", "dropping them needs root");
        return;
    }
    let before = ["setpriv", "--bounding-set=-sys_admin"];
    let code = "import os; print(os.getuid(), sorted(os.listdir('/proc')))";
    let done = within(&before, Who::Root, &["run", "--json", "-c", code]).expect_code(0);
    // Group 0 has privileges with some forms of hidepid; init must stay hidden all the same.
    assert_eq!(done.guest_stdout(), "1000 ['2', 'self', 'thread-self']\n");
    assert_eq!(observed(&done.json(), "fresh-uid"), "absent");
    assert_eq!(observed(&done.json(), "seccomp"), "enforced");
}

#[test]
fn a_user_namespace_with_few_ids_is_enough() {
    let before = ["unshare", "--user", "--map-root-user"];
    let done = within(&before, Who::User, &["run", "--json", "-c", "print(1)"]).expect_code(0);
    assert_eq!(observed(&done.json(), "fresh-uid"), "absent");
    assert_eq!(done.guest_stdout(), "1\n");
}

#[test]
fn without_user_namespaces_everything_is_denied_with_the_fix() {
    let before = [
        "unshare",
        "--user",
        "--map-root-user",
        "sh",
        "-c",
        "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" \"$@\"",
        "env",
    ];
    let denied = within(&before, Who::User, &["run", "--json", "-c", "print(1)"])
        .expect_code(126)
        .json();
    assert_eq!(denied["denial"]["value"], "user-namespace");
    assert_eq!(
        denied["denial"]["fix"],
        "sysctl -w user.max_user_namespaces=10000"
    );
    let doctor = within(&before, Who::User, &["doctor"]).expect_code(1);
    assert!(
        doctor.stdout.contains("user-namespace is essential and missing"),
        "{doctor:#?}"
    );
}

/// The switch that the tests use to take walls down is not in a build that people get.
#[test]
fn a_build_without_the_feature_has_no_switch() {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
    let mut command = Command::new(env!("CARGO"));
    command
        .args([
            "tree",
            "--manifest-path",
            manifest,
            "--package",
            "belljar",
            "--edges",
            "features,normal",
        ])
        .args(["--prefix", "none", "--offline"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let listed = harness::finish(harness::spawn(&mut command));
    let text = String::from_utf8_lossy(&listed.stdout);
    assert!(
        listed.status.success(),
        "{}",
        String::from_utf8_lossy(&listed.stderr)
    );
    assert!(text.contains("belljar-linux"), "{text}");
    assert!(!text.contains("weaken"), "the default features include `weaken`");
}
