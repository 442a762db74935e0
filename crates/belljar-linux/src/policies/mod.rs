//! The system-call rules: which calls a guest may make, each with its reason.
//!
//! Unknown numbers fail with ENOSYS, so that programs written for newer kernels fall back as they
//! would on an older one. Known and dangerous ones fail with EPERM. A foreign architecture or an
//! x32 number ends the process.

mod compile;
mod table;

pub(crate) use compile::{FilterOptions, Filters, PreparedFilters};
pub use table::{Rule, RuleAction, rules};
