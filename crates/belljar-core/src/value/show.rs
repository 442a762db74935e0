//! A value for people, on one line, much as Python would show it.

use std::fmt::{self, Display, Formatter, Write};

use super::{Fields, Value};

/// How deep is shown; below that stand dots.
const DEEPEST: usize = 32;

impl Display for Value {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        show(self, f, 0)
    }
}

fn show(value: &Value, f: &mut Formatter<'_>, depth: usize) -> fmt::Result {
    if depth > DEEPEST {
        return f.write_char('…');
    }
    match value {
        Value::None => f.write_str("None"),
        Value::Undefined => f.write_str("undefined"),
        Value::Bool(true) => f.write_str("True"),
        Value::Bool(false) => f.write_str("False"),
        Value::Int(number) => write!(f, "{number}"),
        Value::BigInt(text) | Value::DateTime(text) | Value::Date(text) | Value::Time(text) => plain(text, f),
        Value::Decimal(text) | Value::Fraction(text) | Value::Uuid(text) | Value::Path(text) => {
            plain(text, f)
        }
        Value::Float(number) if number.is_nan() => f.write_str("nan"),
        Value::Float(number) if number.is_infinite() => {
            f.write_str(if *number > 0.0 { "inf" } else { "-inf" })
        }
        Value::Float(number) => write!(f, "{number:?}"),
        Value::Complex(re, im) => write!(f, "({re}{im:+}j)"),
        Value::Text(text) => write!(f, "{text:?}"),
        Value::Bytes(bytes) => write!(f, "b\"{}\"", bytes.escape_ascii()),
        Value::List(items) => list("[", items, "]", f, depth),
        Value::Tuple(items) if items.len() == 1 => list("(", items, ",)", f, depth),
        Value::Tuple(items) => list("(", items, ")", f, depth),
        Value::Set(items) if items.is_empty() => f.write_str("set()"),
        Value::Set(items) => list("{", items, "}", f, depth),
        Value::FrozenSet(items) => list("frozenset({", items, "})", f, depth),
        Value::Object(fields) => {
            f.write_char('{')?;
            for (index, (name, value)) in fields.iter().enumerate() {
                comma(index, f)?;
                write!(f, "{name:?}: ")?;
                show(value, f, depth + 1)?;
            }
            f.write_char('}')
        }
        Value::Dict(pairs) => {
            f.write_char('{')?;
            for (index, (key, value)) in pairs.iter().enumerate() {
                comma(index, f)?;
                show(key, f, depth + 1)?;
                f.write_str(": ")?;
                show(value, f, depth + 1)?;
            }
            f.write_char('}')
        }
        Value::NamedTuple(it) | Value::DataClass(it) => call(&it.name, &it.fields, f, depth),
        Value::TimeDelta(it) => write!(
            f,
            "{} days {}.{:06} seconds",
            it.days, it.seconds, it.microseconds
        ),
        Value::Enum(it) => plain(&it.name, f),
        Value::Array(it) => {
            write!(f, "array({:?}, ", it.shape)?;
            plain(&it.dtype, f)?;
            f.write_char(')')
        }
        Value::Scalar(it) => show(&it.value, f, depth + 1),
        Value::Series(it) => list("Series([", &it.values, "])", f, depth),
        Value::DataFrame(it) => {
            write!(f, "DataFrame({} rows, columns ", it.rows.len())?;
            list("[", &it.columns, "])", f, depth)
        }
        Value::Error(it) => {
            plain(&it.kind, f)?;
            write!(f, "({:?})", it.message)
        }
        Value::Repr(it) => plain(&it.text, f),
        Value::Cut(it) => {
            plain(&it.text, f)?;
            f.write_str("… (cut: ")?;
            plain(&it.why, f)?;
            f.write_char(')')
        }
    }
}

/// A guest's text without quotes; control characters cannot act on a terminal (P52).
fn plain(text: &str, f: &mut Formatter<'_>) -> fmt::Result {
    for c in text.chars() {
        if c.is_control() {
            write!(f, "{}", c.escape_default())?;
        } else {
            f.write_char(c)?;
        }
    }
    Ok(())
}

fn comma(index: usize, f: &mut Formatter<'_>) -> fmt::Result {
    if index > 0 { f.write_str(", ") } else { Ok(()) }
}

fn list(open: &str, items: &[Value], close: &str, f: &mut Formatter<'_>, depth: usize) -> fmt::Result {
    f.write_str(open)?;
    for (index, item) in items.iter().enumerate() {
        comma(index, f)?;
        show(item, f, depth + 1)?;
    }
    f.write_str(close)
}

fn call(name: &str, fields: &Fields, f: &mut Formatter<'_>, depth: usize) -> fmt::Result {
    plain(name, f)?;
    f.write_char('(')?;
    for (index, (name, value)) in fields.iter().enumerate() {
        comma(index, f)?;
        plain(name, f)?;
        f.write_char('=')?;
        show(value, f, depth + 1)?;
    }
    f.write_char(')')
}
