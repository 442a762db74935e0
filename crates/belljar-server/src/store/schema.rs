//! The tables, as a list of steps that each bring them from one form to the next. A step that was released is
//! never changed: the next one is added after it.

use sqlx::{AnyConnection, Connection, Row};

use super::error::{During, StoreError};
use super::place::Place;

/// Written so that both databases take them.
const STEPS: [&str; 1] = ["
CREATE TABLE chain (
    id BIGINT PRIMARY KEY,
    -- The last entry.
    seq BIGINT NOT NULL,
    hash TEXT NOT NULL,
    -- The last entry that retention removed, or 0.
    removed_seq BIGINT NOT NULL,
    removed_hash TEXT NOT NULL
);
CREATE TABLE audit (
    seq BIGINT PRIMARY KEY,
    kind TEXT NOT NULL,
    hash TEXT NOT NULL,
    body TEXT NOT NULL,
    -- What follows is also in the body; it is here to be searched.
    record_id TEXT NOT NULL UNIQUE,
    tenant_id TEXT,
    user_id TEXT,
    run_id TEXT,
    language TEXT,
    policy_id TEXT,
    status TEXT,
    created_at DOUBLE PRECISION NOT NULL,
    wall_time_seconds DOUBLE PRECISION
);
CREATE INDEX audit_by_tenant ON audit (tenant_id, seq);
CREATE INDEX audit_by_run ON audit (run_id, seq);
CREATE INDEX audit_by_time ON audit (created_at);
CREATE TABLE unfinished (
    execution_id TEXT PRIMARY KEY,
    server_id TEXT NOT NULL,
    tenant_id TEXT NOT NULL,
    policy_id TEXT NOT NULL,
    -- Whether it waits for an approval and takes no place in a quota yet.
    is_pending BIGINT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    body TEXT NOT NULL
);
CREATE INDEX unfinished_by_tenant ON unfinished (tenant_id, policy_id);
CREATE TABLE used (
    tenant_id TEXT NOT NULL,
    policy_id TEXT NOT NULL,
    span BIGINT NOT NULL,
    slot BIGINT NOT NULL,
    runs BIGINT NOT NULL,
    cpu_ms BIGINT NOT NULL,
    bytes_out BIGINT NOT NULL,
    PRIMARY KEY (tenant_id, policy_id, span, slot)
);
CREATE TABLE tenants (
    tenant_id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL
);
CREATE TABLE keys (
    key_id TEXT PRIMARY KEY,
    secret_hash TEXT NOT NULL,
    name TEXT NOT NULL,
    tenant_id TEXT,
    roles TEXT NOT NULL,
    policies TEXT,
    created_at DOUBLE PRECISION NOT NULL,
    expires_at DOUBLE PRECISION,
    revoked_at DOUBLE PRECISION
);
CREATE TABLE policies (
    policy_id TEXT NOT NULL,
    version BIGINT NOT NULL,
    hash TEXT NOT NULL,
    body TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    deleted_at DOUBLE PRECISION,
    PRIMARY KEY (policy_id, version)
);
CREATE TABLE results (
    execution_id TEXT PRIMARY KEY,
    tenant_id TEXT NOT NULL,
    body TEXT NOT NULL,
    expires_at DOUBLE PRECISION NOT NULL
);
CREATE TABLE repeats (
    tenant_id TEXT NOT NULL,
    repeat_key TEXT NOT NULL,
    request_hash TEXT NOT NULL,
    execution_id TEXT NOT NULL,
    expires_at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (tenant_id, repeat_key)
);
CREATE TABLE approvals (
    approval_id TEXT PRIMARY KEY,
    execution_id TEXT NOT NULL,
    tenant_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    state TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    expires_at DOUBLE PRECISION NOT NULL,
    decided_at DOUBLE PRECISION,
    decided_by TEXT,
    reason TEXT,
    -- What the approver sees.
    summary TEXT NOT NULL,
    -- The request with its code, until the decision.
    held TEXT
);
CREATE INDEX approvals_by_state ON approvals (state, created_at);
INSERT INTO chain (id, seq, hash, removed_seq, removed_hash) VALUES (1, 0, '', 0, '')
"];

/// Brings the tables to the form that this belljar knows.
pub(super) async fn migrate(connection: &mut AnyConnection, place: &Place) -> Result<(), StoreError> {
    const OPERATION: &str = "bring the store up to date";
    let mut transaction = connection.begin().await.during(OPERATION)?;
    if place.is_postgres() {
        // Two servers may start at the same time; SQLite's own lock does the same.
        sqlx::query("SELECT pg_advisory_xact_lock(7810482901)")
            .execute(&mut *transaction)
            .await
            .during(OPERATION)?;
    }
    sqlx::query("CREATE TABLE IF NOT EXISTS belljar_form (version BIGINT PRIMARY KEY)")
        .execute(&mut *transaction)
        .await
        .during(OPERATION)?;
    let found: i64 = sqlx::query("SELECT COALESCE(MAX(version), 0) FROM belljar_form")
        .fetch_one(&mut *transaction)
        .await
        .and_then(|row| row.try_get(0))
        .during(OPERATION)?;
    let known = STEPS.len() as i64;
    if found > known {
        return Err(StoreError::Newer { found, known });
    }
    for (version, step) in (1..).zip(STEPS).filter(|(version, _)| *version > found) {
        for statement in step.split(";\n") {
            sqlx::query(statement)
                .execute(&mut *transaction)
                .await
                .during(OPERATION)?;
        }
        sqlx::query("INSERT INTO belljar_form (version) VALUES ($1)")
            .bind(version)
            .execute(&mut *transaction)
            .await
            .during(OPERATION)?;
    }
    transaction.commit().await.during(OPERATION)
}
