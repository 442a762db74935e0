//! What the store promises.

mod audit;
mod executions;
mod keys;
mod policies;
mod quotas;
mod records;
mod recovery;

use belljar_core::{Language, Policy, Quotas, Record, Request, SandboxStatus, Usage};
use belljar_engine::fresh_id;
use belljar_server::store::{Begin, Begun, Finish, Store};
use serde_json::json;

/// A moment at which a minute, an hour and a day begin.
const NOON: f64 = 1_800_014_400.0;

const ENDLESS: Quotas = Quotas {
    per_minute: u32::MAX,
    per_hour: u32::MAX,
    concurrent: None,
    cpu_per_day: None,
    output_per_day: None,
};

/// The record of something that is about to run.
fn record(tenant: &str, now: f64) -> Record {
    let mut request = Request::code(Language::Python, *b"print(1)");
    request.caller.tenant_id = Some(tenant.to_owned());
    request.caller.run_id = Some("run-1".to_owned());
    let policy = Policy::builtin("standard").unwrap();
    Record::of_request(fresh_id("exe"), &policy, &request, SandboxStatus::Running, now)
}

async fn begin(store: &Store, record: &Record, quotas: Quotas) -> Begun {
    let begin = Begin {
        record: record.clone(),
        server_id: "srv-0000000000000001".to_owned(),
        quotas,
        repeat: None,
        now: record.created_at,
    };
    store.begin(begin).await.expect("a beginning")
}

fn ended(record: &Record, wall: f64) -> Record {
    Record {
        status: SandboxStatus::Completed,
        exit_code: Some(0),
        wall_time_seconds: Some(wall),
        completed_at: Some(record.created_at + wall),
        usage: Some(Usage {
            wall_seconds: wall,
            cpu_seconds: wall / 2.0,
            memory_peak: None,
        }),
        ..record.clone()
    }
}

async fn finish(store: &Store, record: &Record, wall: f64) {
    store.finish(finishing(record, wall)).await.expect("an end");
}

fn finishing(record: &Record, wall: f64) -> Finish {
    Finish {
        record: ended(record, wall),
        more: json!({ "receipt": { "provider": "native" } }),
        bytes_out: 1 << 20,
        result: None,
        now: record.created_at + wall,
    }
}

/// Something that ran, from its beginning to its end.
async fn run(store: &Store, tenant: &str, now: f64) -> Record {
    let record = record(tenant, now);
    assert_eq!(begin(store, &record, ENDLESS).await, Begun::Reserved);
    finish(store, &record, 0.5).await;
    record
}
