//! The integration tests: the real executable against the real kernel, as root and as an ordinary
//! user. Every run is checked for what it left behind.

mod again;
mod cli;
mod degraded;
mod docs;
mod escape;
mod fidelity;
mod harness;
mod languages;
mod machine;
mod requirements;
mod smoke;
mod workspace;
