//! `belljar session`: at a terminal, from a pipe, and driven by a program.

mod lines;
mod pipe;
mod prompt;
pub(crate) mod terminal;
