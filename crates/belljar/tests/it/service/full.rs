//! S8: a disk that is full. Nothing is told that is not on record, and when there is room again, it goes on.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::json;

use super::{Serving, ask};
use crate::harness::{TempDir, executable, is_root, spawn};
use crate::machine::absent;

/// Only root can make a small file system; the summary of the tests says so.
#[test]
fn on_a_full_disk_nothing_runs_and_nothing_is_lost() {
    if !is_root() {
        absent("a full disk", "only root can make a small one");
        return;
    }
    let home = TempDir::new();
    let place = home.path().to_string_lossy().into_owned();
    let mut command = Command::new("unshare");
    let script = format!(
        "mount -t tmpfs -o size=4m none {place} && exec {} serve --listen 127.0.0.1:0",
        executable().display()
    );
    command
        .args(["--mount", "sh", "-c", &script])
        .env("BELLJAR_HOME", &place)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let server = Serving::of(spawn(&mut command));
    let key = server.key.clone().expect("a key");
    let run = |code: &str| {
        let body = json!({ "code": code }).to_string();
        ask(&server.address, "POST", "/v1/executions", Some(&key), &body).expect("an answer")
    };
    assert_eq!(run("print(1)").0, 200);
    // As the server sees it.
    let full = format!("/proc/{}/root{place}/full", server.pid());
    fill(&full);
    let (status, answer) = run("print(2)");
    assert_eq!(
        (status, &answer["kind"]),
        (503, &json!("unavailable")),
        "{answer}"
    );
    assert_eq!(answer["detail"], "the store's disk is full");
    assert!(
        answer["hint"].as_str().expect("a hint").contains("make room"),
        "{answer}"
    );
    let (status, _) = ask(&server.address, "GET", "/readyz", None, "").expect("an answer");
    assert_eq!(status, 503);
    // One that runs while the disk fills up is told only when there is room for its record.
    fs::remove_file(&full).expect("room");
    let address = server.address.clone();
    let (slow_key, slow) = (
        key.clone(),
        r#"{"code": "import time; time.sleep(2); print(3)", "run_id": "slow"}"#,
    );
    let running = std::thread::spawn(move || ask(&address, "POST", "/v1/executions", Some(&slow_key), slow));
    std::thread::sleep(Duration::from_millis(500));
    fill(&full);
    // What an earlier try left of the log is used first.
    let refused = r#"{"code": "x", "language": "c"}"#;
    let is_full = (0..500).any(|_| {
        let (status, _) =
            ask(&server.address, "POST", "/v1/executions", Some(&key), refused).expect("an answer");
        status == 503
    });
    assert!(is_full, "the disk is not full");
    std::thread::sleep(Duration::from_millis(2500));
    assert!(!running.is_finished(), "told without a record");
    fs::remove_file(&full).expect("room");
    let (status, answer) = running.join().expect("a thread").expect("an answer");
    assert_eq!(
        (status, &answer["outcome"]["stdout"]),
        (200, &json!("3\n")),
        "{answer}"
    );
    let (_, verified) = ask(&server.address, "GET", "/v1/audit/verify", Some(&key), "").expect("an answer");
    assert_eq!(verified["valid"], true, "{verified}");
    let (_, stats) = ask(&server.address, "GET", "/v1/stats", Some(&key), "").expect("an answer");
    assert_eq!(stats["by_status"]["completed"], 2, "{stats}");
    server.end();
}

/// Takes all the room that is left.
fn fill(path: &str) {
    let mut file = fs::File::create(path).expect("a file");
    for size in [1 << 16, 1 << 12, 1] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
}
