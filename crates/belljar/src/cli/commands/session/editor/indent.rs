//! The tab key: it indents.

use rustyline::completion::Completer;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};

/// Four spaces where a line begins, and nothing elsewhere.
pub(super) struct Indent;

impl Completer for Indent {
    type Candidate = String;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let before = line.get(..at).unwrap_or_default();
        let begun = before.rsplit('\n').next().unwrap_or_default();
        if begun.trim().is_empty() {
            Ok((at, vec!["    ".to_owned()]))
        } else {
            Ok((at, Vec::new()))
        }
    }
}

impl Hinter for Indent {
    type Hint = String;
}

impl Highlighter for Indent {}

impl Validator for Indent {}

impl Helper for Indent {}
