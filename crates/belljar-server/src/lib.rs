//! belljar's service: many callers share one engine, none can exceed what it is allowed, and
//! afterwards everyone can see what ran.
//!
//! [`store`] keeps what must outlive the process.
#![forbid(unsafe_code)]

pub mod store;
