//! S1, S8: whenever the service is killed, whatever it told is true, and nothing is left.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Serving, ask, database, postgres};
use crate::again::{alone, alone_with, test_name};
use crate::harness::{TempDir, Who, children, control_groups, is_root, orphans};

/// How often it is killed for each place. `BELLJAR_TEST_KILLS` asks for another number.
fn kills() -> u64 {
    let said = std::env::var("BELLJAR_TEST_KILLS").ok();
    said.and_then(|said| said.parse().ok()).unwrap_or(120)
}

const POLICY: &str = r#"{"policy_id": "load", "extends": "standard", "max_executions_per_minute": 1000000,
    "max_executions_per_hour": 1000000}"#;

/// A number that is different each time, and known when it fails.
fn random(turn: u64) -> u64 {
    let mut x = turn.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1;
    x ^= x >> 31;
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ (x >> 29)
}

/// Keeps it busy until it is gone, and notes what it acknowledged.
fn load(address: &str, key: &str, over: &AtomicBool, told: &Mutex<Vec<String>>) {
    while !over.load(Ordering::Relaxed) {
        let body = r#"{"code": "print(1 + 1)", "policy_id": "load"}"#;
        match ask(address, "POST", "/v1/executions", Some(key), body) {
            Some((200, answer)) => {
                let id = answer["execution_id"].as_str().expect("an id").to_owned();
                told.lock().expect("a list").push(id);
            }
            Some((status, answer)) => panic!("{status}: {answer}"),
            None => return,
        }
    }
}

fn count(told: &Mutex<Vec<String>>) -> usize {
    told.lock().expect("a list").len()
}

fn is_over(record: &Value) -> bool {
    ["completed", "killed"].contains(&record["status"].as_str().unwrap_or_default())
}

fn kill_often(store: &[&str], kills: u64) {
    let who = if is_root() { Who::Root } else { Who::User };
    let home = TempDir::new();
    let mut key = String::new();
    let told = Mutex::new(Vec::new());
    let mut slowest = Duration::ZERO;
    for turn in 0..kills {
        let server = Serving::start(who, &home, store);
        slowest = slowest.max(server.started_in);
        if let Some(first) = &server.key {
            key.clone_from(first);
            let (status, answer) = server
                .ask("POST", "/v1/policies", Some(&key), POLICY)
                .expect("an answer");
            assert_eq!(status, 200, "{answer}");
        }
        // What was under way at the last kill is over, and nothing else is under way.
        let (_, under_way) = server
            .ask("GET", "/v1/executions", Some(&key), "")
            .expect("an answer");
        assert_eq!(under_way, json!({ "executions": [] }), "turn {turn}");
        let pid = server.pid();
        let over = AtomicBool::new(false);
        let address = server.address.clone();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| load(&address, &key, &over, &told));
            }
            // At any moment, and every other time when something was told for certain, however slow the machine is.
            let before = count(&told);
            std::thread::sleep(Duration::from_millis(random(turn) % 500));
            let began = Instant::now();
            while turn % 2 == 0 && count(&told) == before && began.elapsed() < Duration::from_secs(60) {
                std::thread::sleep(Duration::from_millis(1));
            }
            let text = server.kill();
            over.store(true, Ordering::Relaxed);
            assert!(!text.contains("panicked"), "{text}");
        });
        expect_gone(pid);
    }
    let server = Serving::start(who, &home, store);
    let told = told.into_inner().expect("a list");
    // Every result that was told has a record, and it is the one that was told.
    for id in &told {
        let (status, record) = server
            .ask("GET", &format!("/v1/records/{id}"), Some(&key), "")
            .expect("an answer");
        assert_eq!(
            (status, &record["status"]),
            (200, &json!("completed")),
            "{id}: {record}"
        );
    }
    let (_, stats) = server.ask("GET", "/v1/stats", Some(&key), "").expect("an answer");
    let (_, page) = server
        .ask("GET", "/v1/records?limit=1000", Some(&key), "")
        .expect("an answer");
    assert!(page["records"].as_array().expect("records").iter().all(is_over));
    let (_, verified) = server
        .ask("GET", "/v1/audit/verify", Some(&key), "")
        .expect("an answer");
    assert_eq!(verified["valid"], true, "{verified}");
    let killed = stats["by_status"]["killed"].as_u64().unwrap_or_default();
    println!(
        "{who:?}: {kills} kills, {} told, {killed} closed as killed, slowest start {slowest:?}",
        told.len()
    );
    // A load that none of the kills met would show nothing.
    assert!(
        told.len() as u64 >= kills / 2 && killed > kills / 4,
        "{} told, {killed} killed",
        told.len()
    );
    let pid = server.pid();
    server.end();
    expect_gone(pid);
}

/// Nothing of a server that is gone is left: no process, no group.
fn expect_gone(pid: u32) {
    for _ in 0..1200 {
        if children(pid).is_empty() && control_groups(pid).is_empty() {
            return;
        }
        std::thread::sleep(Duration::from_millis(25));
    }
    panic!(
        "left: {:?} {:?} {:?}",
        children(pid),
        control_groups(pid),
        orphans()
    );
}

#[test]
fn killed_at_any_moment_it_forgets_nothing_that_it_told() {
    alone(test_name!(), || kill_often(&[], kills()));
}

/// The same with records in PostgreSQL.
#[test]
fn killed_with_its_records_in_postgresql_it_forgets_nothing_either() {
    const PLACE: &str = "BELLJAR_TEST_POSTGRES";
    let place = match std::env::var_os(PLACE) {
        Some(place) => PathBuf::from(place),
        None => match postgres() {
            Some(place) => place,
            None => return,
        },
    };
    let variables = [(PLACE, place.to_string_lossy().into_owned())];
    alone_with(test_name!(), &variables, || {
        kill_often(&["--store", &database(&place)], kills() / 2);
    });
}
