//! The integration tests: the real executable against the real kernel, as root and as an ordinary
//! user. Every run is checked for what it left behind.

mod again;
mod degraded;
mod docs;
mod escape;
mod harness;
mod languages;
mod machine;
mod requirements;
mod smoke;
mod workspace;
