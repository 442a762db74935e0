//! What a cell came to, for people: its value, what it raised, what a limit took away.

use belljar::{FailureKind, Language, Outcome, StateLost, Value};

use super::screen::Screen;
use crate::cli::messages;

/// The most characters of a value that are shown.
const LONGEST: usize = 20_000;

/// Shows the value or the exception. Before the screen is finished.
pub(super) fn result(outcome: &Outcome, language: Language, screen: &mut Screen<'_>) {
    if let Some(value) = &outcome.value
        && !was_displayed(outcome, value)
    {
        screen.print(&cut(&text(value, language)));
    }
    if let Some(exception) = &outcome.exception {
        let trace = exception.traceback.trim_end();
        if trace.is_empty() {
            let message = format!("{}: {}", exception.kind, exception.message);
            screen.print_error(message.trim_end_matches([':', ' ']));
        } else {
            screen.print_error(trace);
        }
    }
}

/// Tells how the cell ended where that does not show. After the screen is finished.
pub(super) fn ending(outcome: &Outcome) {
    match outcome.error.as_ref().map(|failure| failure.kind) {
        // Its traceback says it.
        Some(FailureKind::Exception | FailureKind::Interrupted | FailureKind::Refused)
            if outcome.exception.is_some() => {}
        Some(FailureKind::ExitCode) => {
            messages::tell(&format!(
                "the code asked to exit with {}",
                outcome.exit_code.unwrap_or_default()
            ));
        }
        _ => messages::tell_outcome(outcome),
    }
    match outcome.state_lost {
        Some(StateLost::Variables) => {
            messages::tell("all variables are lost, files are kept; the next cell finds a new interpreter");
        }
        Some(StateLost::VariablesAndFiles) => {
            messages::tell("all variables and files are lost; the next cell finds a new sandbox");
        }
        None => {}
    }
    for flag in &outcome.flags {
        messages::tell(&format!("the code broke the rules of its channel: {flag}"));
    }
}

/// Whether the last display was of this very value, by its own rich form.
fn was_displayed(outcome: &Outcome, value: &Value) -> bool {
    outcome.displays.last().is_some_and(|display| {
        display.value.as_ref() == Some(value)
            || matches!(value, Value::Repr(it) if display.data.get("text/plain") == Some(&it.text))
    })
}

/// A value as its own language would write it, where that differs.
fn text(value: &Value, language: Language) -> String {
    match (value, language) {
        (Value::DataFrame(_) | Value::Repr(_), _) | (_, Language::Python) => plain(value),
        _ => javascript(value, 0),
    }
}

/// Some texts of a guest have lines, such as the `repr` of an array.
fn plain(value: &Value) -> String {
    match value {
        Value::Repr(it) => it.text.clone(),
        Value::DataFrame(table) => {
            let mut lines = crate::cli::table::Table::default();
            lines.row([String::new()].into_iter().chain(table.columns.iter().map(bare)));
            for (index, row) in table.index.iter().zip(&table.rows) {
                lines.row([bare(index)].into_iter().chain(row.iter().map(bare)));
            }
            lines.render()
        }
        value => value.to_string(),
    }
}

/// A cell of a table needs no quotes.
fn bare(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        value => value.to_string(),
    }
}

fn javascript(value: &Value, depth: usize) -> String {
    let all = |items: &[Value]| {
        let items: Vec<_> = items.iter().map(|item| javascript(item, depth + 1)).collect();
        items.join(", ")
    };
    match value {
        _ if depth > 16 => "…".to_owned(),
        Value::None => "null".to_owned(),
        Value::Bool(truth) => truth.to_string(),
        Value::Float(number) if number.is_nan() => "NaN".to_owned(),
        Value::Float(number) if number.is_infinite() => {
            if *number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned()
        }
        Value::Float(number) => number.to_string(),
        Value::BigInt(digits) => format!("{digits}n"),
        Value::List(items) => format!("[{}]", all(items)),
        Value::Set(items) => format!("Set({}) {{{}}}", items.len(), all(items)),
        Value::Object(fields) => {
            let fields: Vec<_> = fields
                .iter()
                .map(|(name, value)| format!("{name:?}: {}", javascript(value, depth + 1)))
                .collect();
            format!("{{{}}}", fields.join(", "))
        }
        value => value.to_string(),
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        None => text.to_owned(),
        Some((end, _)) => {
            let more = text[end..].chars().count();
            format!("{}… ({more} more characters)", &text[..end])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_language_has_its_own_words() {
        let value = Value::List(vec![
            Value::Bool(true),
            Value::None,
            Value::Float(1.0),
            "a".into(),
        ]);
        assert_eq!(text(&value, Language::Python), "[True, None, 1.0, \"a\"]");
        assert_eq!(text(&value, Language::Javascript), "[true, null, 1, \"a\"]");
        let value = Value::object([("a", Value::Undefined)]);
        assert_eq!(text(&value, Language::Javascript), "{\"a\": undefined}");
    }

    #[test]
    fn long_values_are_cut() {
        assert_eq!(cut("short"), "short");
        let long = "é".repeat(LONGEST + 3);
        assert!(cut(&long).ends_with("é… (3 more characters)"));
    }

    #[test]
    fn a_table_is_shown_as_one() {
        let table = belljar::value::DataFrame {
            columns: vec!["a".into(), "b".into()],
            index: vec![0.into(), 1.into()],
            rows: vec![vec![1.into(), "x".into()], vec![22.into(), "y\x1b".into()]],
        };
        let shown = plain(&Value::DataFrame(table.into()));
        assert_eq!(shown, "   a   b\n0  1   x\n1  22  y\\u{1b}\n");
    }
}
