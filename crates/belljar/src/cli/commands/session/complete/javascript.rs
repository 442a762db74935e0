//! JavaScript: brackets, templates and block comments are open until they are closed, and so is a line
//! that ends in an operator, until an empty line.

use super::{Brackets, ends_blank};

/// Words after which `/` begins a regular expression and not a division.
const BEFORE_REGEX: [&str; 9] = [
    "return", "typeof", "case", "in", "of", "delete", "void", "await", "yield",
];

pub(super) fn is_complete(text: &str) -> bool {
    let mut brackets = Brackets::default();
    // The last code that was seen, enough of it to know what a `/` means and whether a line goes on.
    let mut seen = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        if let Some(comment) = rest.strip_prefix("/*") {
            let Some(end) = comment.find("*/") else {
                return false;
            };
            rest = &comment[end + 2..];
            continue;
        }
        if rest.starts_with("//") {
            rest = after.find('\n').map_or("", |end| &after[end..]);
            continue;
        }
        let passed = match c {
            '\'' | '"' => short_string(after, c),
            '`' => template(after, &mut brackets),
            '/' if begins_regex(&seen) => regex(after),
            // The end of `${…}` is where its template goes on.
            '}' if brackets.0.last() == Some(&'`') => {
                brackets.0.pop();
                template(after, &mut brackets)
            }
            '(' | '[' | '{' => {
                brackets.open(c);
                Literal::Ended(after)
            }
            ')' | ']' | '}' if !brackets.close(c) => Literal::Wrong,
            _ => Literal::Ended(after),
        };
        rest = match passed {
            Literal::Ended(rest) => rest,
            Literal::Open => return false,
            Literal::Wrong => return true,
        };
        if c.is_whitespace() {
            // A word ends here; only the end of the code matters otherwise.
            if !seen.ends_with(' ') {
                seen.push(' ');
            }
        } else {
            seen.push(c);
        }
        if seen.len() > 64 {
            seen = last_signs(&seen);
        }
    }
    !brackets.are_open() && (!goes_on(seen.trim_end()) || ends_blank(text))
}

fn last_signs(seen: &str) -> String {
    let start = seen.char_indices().rev().nth(15).map_or(0, |(at, _)| at);
    seen[start..].to_owned()
}

/// Whether a line that ends so wants another one. A `++` or `--` ends an expression.
fn goes_on(seen: &str) -> bool {
    !seen.ends_with("++")
        && !seen.ends_with("--")
        && seen.ends_with(['=', ',', '.', '&', '|', '+', '-', '*', '?'])
}

fn begins_regex(seen: &str) -> bool {
    let seen = seen.trim_end();
    match seen.chars().next_back() {
        None => true,
        Some(c) if c.is_alphanumeric() || matches!(c, '_' | '$') => {
            let word = seen
                .rsplit(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '$')))
                .next();
            word.is_some_and(|word| BEFORE_REGEX.contains(&word))
        }
        Some(c) => !matches!(c, ')' | ']' | '}' | '"' | '\'' | '`' | '/'),
    }
}

/// How a literal ended.
enum Literal<'a> {
    /// What follows it.
    Ended(&'a str),
    /// It can go on in the next line.
    Open,
    /// Its line ended first.
    Wrong,
}

fn short_string(text: &str, quote: char) -> Literal<'_> {
    let mut signs = text.char_indices();
    while let Some((at, c)) = signs.next() {
        match c {
            '\\' if signs.next().is_none() => return Literal::Open,
            '\n' => return Literal::Wrong,
            c if c == quote => return Literal::Ended(&text[at + 1..]),
            _ => {}
        }
    }
    Literal::Wrong
}

/// Passes over a template up to its end or its next `${`, which is noted as an open bracket of its own.
fn template<'a>(text: &'a str, brackets: &mut Brackets) -> Literal<'a> {
    let mut signs = text.char_indices();
    while let Some((at, c)) = signs.next() {
        match c {
            '\\' => {
                signs.next();
            }
            '`' => return Literal::Ended(&text[at + 1..]),
            '$' if text[at + 1..].starts_with('{') => {
                brackets.open('`');
                return Literal::Ended(&text[at + 2..]);
            }
            _ => {}
        }
    }
    Literal::Open
}

fn regex(text: &str) -> Literal<'_> {
    let mut in_class = false;
    let mut signs = text.char_indices();
    while let Some((at, c)) = signs.next() {
        match c {
            '\\' => {
                signs.next();
            }
            '\n' => return Literal::Wrong,
            '[' => in_class = true,
            ']' => in_class = false,
            '/' if !in_class => return Literal::Ended(&text[at + 1..]),
            _ => {}
        }
    }
    Literal::Wrong
}
