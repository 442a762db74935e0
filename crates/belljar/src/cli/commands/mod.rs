//! One file for each command; each takes what it was asked for and gives an exit code.

pub(crate) mod approvals;
pub(crate) mod audit;
pub(crate) mod batch;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod doctor;
pub(crate) mod embedded;
pub(crate) mod environments;
pub(crate) mod execute;
pub(crate) mod keys;
pub(crate) mod languages;
pub(crate) mod policy;
pub(crate) mod providers;
mod receipt;
pub(crate) mod records;
pub(crate) mod reference;
mod remote;
pub(crate) mod serve;
pub(crate) mod session;
