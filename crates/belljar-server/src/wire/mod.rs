//! Everything that crosses the wire, as it is written there. One form for HTTP, the command line and every SDK.
//!
//! What comes in is read strictly: an unknown field is an error. What goes out has every field, also where it is null.

mod approval;
mod execution;
mod outcome;
mod problem;
mod quantity;
mod session;

pub use approval::{Approval, Word};
pub use execution::{CommandWish, ExecutionRequest, FileBytes, FileContent, LimitWishes, WireError};
pub(crate) use execution::{check_name, paths};
pub use outcome::{
    CompileOutput, Display, Execution, Failure, FileOut, Outcome, Receipt, Stream, StreamEvent, ToolCall,
    Usage,
};
pub use problem::Problem;
pub use quantity::Quantity;
pub(crate) use session::globals;
pub use session::{CellRequest, Logs, Session, SessionFile, SessionRequest};
