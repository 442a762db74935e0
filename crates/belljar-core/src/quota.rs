//! How much a tenant may run under one policy. A service counts; this says what it counts against.

use crate::units::{Bytes, Seconds};

/// What one tenant may use under a policy (R10). What is unset is not counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quotas {
    pub per_minute: u32,
    pub per_hour: u32,
    /// Executions that run at the same time.
    pub concurrent: Option<u32>,
    /// CPU time of all executions in a day.
    pub cpu_per_day: Option<Seconds>,
    /// Bytes that leave the sandboxes in a day: streams, values and files.
    pub output_per_day: Option<Bytes>,
}

impl Default for Quotas {
    /// Document 000's numbers.
    fn default() -> Self {
        Self {
            per_minute: 10,
            per_hour: 100,
            concurrent: None,
            cpu_per_day: None,
            output_per_day: None,
        }
    }
}
