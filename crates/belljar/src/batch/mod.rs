//! Many requests, one JSON object on each line: in order, some at a time, never all in memory.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use belljar::batch::{Batch, Lines};
//!
//! let input = br#"{"id": "a", "language": "python", "code": "print(int(input()) * 2)",
//!                  "cases": [{"stdin": "1", "expected_stdout": "2"}, {"stdin": "5", "expected_stdout": "11"}]}"#;
//! let input: Vec<u8> = input.iter().copied().filter(|byte| *byte != b'\n').collect();
//!
//! let mut answers = Batch::new().jobs(2).run(Lines::new(std::io::Cursor::new(input)))?;
//! while let Some(answer) = answers.next().await {
//!     let json = serde_json::to_value(answer?)?;
//!     assert_eq!(json["line"], 1);
//!     assert_eq!(json["id"], "a");
//!     assert_eq!(json["cases"][0]["verdict"], "accepted");
//!     assert_eq!(json["cases"][1]["verdict"], "wrong_output");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! What can stand on a line is in docs/guides/batch.md. A line that cannot be understood is an answer
//! with an error and stops nothing.

mod answer;
mod answers;
mod closest;
mod elsewhere;
mod fields;
mod lines;
mod options;
mod request;
mod strict;

pub use answer::{Answer, Answered};
pub use answers::Answers;
pub use elsewhere::Elsewhere;
pub use lines::{LARGEST_LINE, Line, Lines};
pub use options::Batch;
pub use request::LineError;
