//! The service against real databases: every test of the store runs on SQLite and on PostgreSQL.

#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod databases;
mod http;
mod store;
