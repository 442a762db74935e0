//! The system-call rules: which calls a guest may make, each with its reason.
//!
//! Unknown numbers fail with ENOSYS, so that programs written for newer kernels fall back as they
//! would on an older one. Known and dangerous ones fail with EPERM. A foreign architecture or an
//! x32 number ends the process.

pub mod arguments;
mod assemble;
mod checks;
mod compile;
#[cfg(test)]
mod interpret;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use assemble::Program;
#[cfg(feature = "weaken")]
pub(crate) use compile::count_alone;
pub(crate) use compile::{FilterOptions, PreparedFilters};
pub use table::{Rule, RuleAction, rules};
