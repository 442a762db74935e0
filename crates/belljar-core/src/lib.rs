//! The words of belljar and its guard.
//!
//! Everything here is data and pure functions: no I/O, no clock, no async runtime, no unsafe. A
//! caller builds a [`Request`], [`guard::check`] turns it into a [`Plan`] or a [`Denial`], and a
//! [`Provider`] accepts plans only. Nothing outside this crate can make a [`Plan`].
#![forbid(unsafe_code)]

pub mod capabilities;
pub mod command;
pub mod config;
pub mod control;
pub mod denial;
pub mod egress;
pub mod environment;
pub mod error;
pub mod frame;
pub mod guard;
pub mod identifier;
pub mod language;
pub mod lifecycle;
pub mod limits;
pub mod mount;
pub mod outcome;
pub mod path;
pub mod plan;
pub mod policy;
pub mod provider;
pub mod quota;
pub mod receipt;
pub mod record;
pub mod request;
pub mod session;
pub mod status;
pub mod units;
pub mod value;
pub mod variables;
pub mod verdict;
pub mod weight;

pub use capabilities::{Capabilities, Support, Toolchain};
pub use config::SandboxConfig;
pub use control::{Control, Demand};
pub use denial::{Denial, DenialCode};
pub use environment::{Environment, EnvironmentName, EnvironmentUsed, Root};
pub use error::ErrorKind;
pub use identifier::{IdentifierError, check_identifier};
pub use language::Language;
pub use lifecycle::Lifecycle;
pub use limits::{LimitOverrides, Limits};
pub use mount::{Access, Mount};
pub use outcome::{Captured, Display, Exception, Failure, FailureKind, Outcome, StateLost, ToolCall, Usage};
pub use path::{GuestPath, WorkspaceId};
pub use plan::{Plan, Stage, StageKind, Warm};
pub use policy::Policy;
pub use provider::{Footing, Provider, ProviderError, Sandbox};
pub use quota::Quotas;
pub use receipt::Receipt;
pub use record::Record;
pub use request::{Request, Source};
pub use session::{SessionRules, SessionWishes};
pub use status::{IsolationLevel, NetworkPolicy, ProviderName, SandboxStatus};
pub use units::{Bytes, Seconds};
pub use value::{FromValue, Value};
pub use verdict::{Comparison, Verdict};
pub use weight::Weight;
