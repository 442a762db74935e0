//! Environments: an interpreter with packages, built once, never changed, shown read-only.
//!
//! The store, below one base directory:
//!
//! ```text
//! environments/
//!   lock               held while names or contents change
//!   names/NAME         a line: the key of the content that it means
//!   content/KEY/       manifest.json, and tree/, where it stands for good
//!   building/ID/       a build that goes on; ID.lock tells one that is alive from one that died
//! ```
//!
//! KEY is the SHA-256 of everything that goes in: the interpreter, every wheel by its own hash, the
//! modules to preload. It is known before anything is installed, so the tree is made at the very path
//! where it will stand: the build's sandbox sees it there, and a rename puts it there.
//!
//! What must never happen here: code out of a package running outside of a sandbox. Wheels are fetched
//! by a pip that can start nothing, unpacked in a sandbox, and first imported in a sandbox that shows
//! the tree read-only.

mod build;
mod error;
mod fetch;
mod import;
mod interpreter;
mod manifest;
mod progress;
mod requirement;
mod sandboxed;
mod source;
mod specification;
mod store;
mod tree;
mod unpack;

pub use build::{Created, create};
pub use error::EnvironmentError;
pub use import::import;
pub use manifest::{Interpreter, Manifest, Package, TreeSum};
pub use progress::{Cancel, Progress, Quiet};
pub use requirement::{Requirement, RequirementError, split_packages};
pub use specification::{Module, PythonWish, Specification};
pub use store::{Described, Environments, Lease};
pub use unpack::ImportLimits;
