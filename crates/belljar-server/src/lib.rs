//! belljar's service: many callers share one engine, none can exceed what it is allowed, and
//! afterwards everyone can see what ran.
//!
//! [`http`] is its face, [`service`] decides, [`store`] keeps what must outlive the process, and [`wire`] is the form of
//! everything that is said.
#![forbid(unsafe_code)]

pub mod client;
pub mod http;
pub mod service;
pub mod store;
pub mod traces;
pub mod wire;
