//! The integration tests: the real executable against the real kernel, as root and as an ordinary
//! user. Every run is checked for what it left behind.
#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test that cannot go on says why and ends"
)]

mod again;
mod cli;
mod degraded;
mod docs;
#[path = "../../../../tests/engines.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod engines;
mod escape;
mod executable;
mod fidelity;
mod harness;
mod inventory;
mod languages;
mod machine;
mod network;
mod requirements;
mod service;
mod session;
mod smoke;
mod warm;
mod workspace;
