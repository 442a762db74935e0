//! Python: brackets, triple-quoted strings and continued lines are open until they are closed, blocks
//! until an empty line.

use super::{Brackets, ends_blank};

/// What begins a statement that may go on below it.
const COMPOUND: [&str; 13] = [
    "async", "class", "def", "elif", "else", "except", "finally", "for", "if", "match", "try", "while",
    "with",
];

/// What is known of the logical line at hand.
#[derive(Debug, Default)]
struct Line {
    indented: bool,
    /// The first word, or the first sign where there is none.
    start: String,
    /// The last sign that is no comment.
    end: Option<char>,
}

pub(super) fn is_complete(text: &str) -> bool {
    let mut brackets = Brackets::default();
    let mut last = Line::default();
    let mut line = Line::default();
    let mut at_start = true;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        match c {
            '\n' if !brackets.are_open() => {
                keep(&mut last, std::mem::take(&mut line));
                at_start = true;
                rest = after;
                continue;
            }
            '\\' if after.trim_end_matches([' ', '\t', '\r']).is_empty() => return false,
            // A line that goes on: its end means nothing.
            '\\' => {
                rest = after
                    .strip_prefix("\r\n")
                    .or(after.strip_prefix('\n'))
                    .unwrap_or(after);
                if rest.trim().is_empty() {
                    return ends_blank(rest);
                }
                continue;
            }
            '#' => {
                rest = after.find('\n').map_or("", |end| &after[end..]);
                continue;
            }
            c if c.is_whitespace() => {
                line.indented |= at_start;
                rest = after;
                continue;
            }
            _ => {}
        }
        at_start = false;
        if line.end.is_none() {
            line.start = word(rest);
        }
        line.end = Some(c);
        rest = match c {
            '"' | '\'' => match string(rest, c) {
                Literal::Ended(after) => after,
                Literal::Open => return false,
                Literal::Wrong => return true,
            },
            '(' | '[' | '{' => {
                brackets.open(c);
                after
            }
            ')' | ']' | '}' if !brackets.close(c) => return true,
            _ => after,
        };
    }
    keep(&mut last, line);
    !brackets.are_open() && (!goes_on(&last) || ends_blank(text))
}

/// Lines without anything in them do not count.
fn keep(last: &mut Line, line: Line) {
    if line.end.is_some() {
        *last = line;
    }
}

fn goes_on(line: &Line) -> bool {
    line.indented
        || line.end == Some(':')
        || line.start == "@"
        // `match` is a word like any other unless a block follows, which is seen by its colon.
        || (line.start != "match" && COMPOUND.contains(&line.start.as_str()))
}

fn word(rest: &str) -> String {
    let word: String = rest
        .chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect();
    if word.is_empty() {
        rest.chars().take(1).collect()
    } else {
        word
    }
}

/// How a string literal ended.
enum Literal<'a> {
    /// What follows it.
    Ended(&'a str),
    /// It can go on in the next line.
    Open,
    /// Its line ended first.
    Wrong,
}

/// Passes over the string that `text` begins with. Prefixes such as `r` make no difference: a quote
/// behind a backslash does not end a raw string either.
fn string(text: &str, quote: char) -> Literal<'_> {
    let triple: &str = if quote == '"' { "\"\"\"" } else { "'''" };
    let long = text.starts_with(triple);
    let mut rest = &text[if long { 3 } else { 1 }..];
    while let Some(c) = rest.chars().next() {
        if c == quote && (!long || rest.starts_with(triple)) {
            return Literal::Ended(&rest[if long { 3 } else { 1 }..]);
        }
        if c == '\n' && !long {
            return Literal::Wrong;
        }
        rest = &rest[c.len_utf8()..];
        if c == '\\' {
            let Some(escaped) = rest.chars().next() else {
                return Literal::Open;
            };
            rest = &rest[escaped.len_utf8()..];
        }
    }
    // The text has ended within a line: a short string is wrong, since the line is over.
    if long { Literal::Open } else { Literal::Wrong }
}
