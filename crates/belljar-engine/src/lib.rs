//! The engine: guard, then provider, then record. It knows providers by their trait alone.
#![forbid(unsafe_code)]

pub mod archive;
mod cases;
mod egress;
pub mod environment;
mod execute;
#[cfg(test)]
mod fake;
mod home;
mod ident;
mod judge;
mod live;
pub mod session;
pub mod tools;
mod weaken;
pub mod workspace;

pub use cases::{Case, CaseEnd, CasesExecution};
pub use execute::{Engine, EngineError, ExecuteIo, Execution, Planned};
pub use home::home;
pub use ident::fresh_id;
pub use live::LiveSandbox;
pub use session::{Session, SessionError};
pub use tools::{Approver, Arguments, ToolError, Tools};
