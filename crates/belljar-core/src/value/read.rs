//! JSON as a value. A tag that is unknown, or does not fit what stands behind it, is data like any other.

use std::collections::HashSet;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{
    Array, Cut, DataFrame, ErrorValue, Fields, Member, Named, Repr, Scalar, Series, TimeDelta, Value,
};

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::None)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Int(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Value::Float(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        // A vector begins with room for four, so a list of one would take four times its size.
        items.shrink_to_fit();
        Ok(Value::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Fields::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        fields.shrink_to_fit();
        let mut fields = last_of_each(fields);
        Ok(read_tagged(&mut fields).unwrap_or(Value::Object(fields)))
    }
}

/// A name that comes twice has its last value, as in every JSON reader.
fn last_of_each(fields: Fields) -> Fields {
    if fields.len() < 2 {
        return fields;
    }
    let distinct: HashSet<&str> = fields.iter().map(|(name, _)| &**name).collect();
    if distinct.len() == fields.len() {
        return fields;
    }
    let mut seen = HashSet::new();
    let mut kept: Fields = fields
        .into_iter()
        .rev()
        .filter(|(name, _)| seen.insert(name.clone()))
        .collect();
    kept.reverse();
    kept
}

/// The value that a tagged object means; `None` leaves the fields as they were.
fn read_tagged(fields: &mut Fields) -> Option<Value> {
    let (_, Value::Text(tag)) = fields.iter().find(|(name, _)| name == "$")? else {
        return None;
    };
    let tag = tag.clone();
    let keys: &[&str] = match &*tag {
        "undefined" => &[],
        "int" | "float" | "complex" | "bytes" | "tuple" | "set" | "frozenset" | "dict" | "datetime"
        | "date" | "time" | "timedelta" | "decimal" | "fraction" | "uuid" | "path" => &["v"],
        "namedtuple" | "enum" | "dataclass" => &["name", "v"],
        "ndarray" => &["dtype", "shape", "v"],
        "scalar" => &["dtype", "v"],
        "series" => &["name", "index", "v"],
        "dataframe" => &["columns", "index", "v"],
        "error" => &["type", "message"],
        "repr" => &["type", "v"],
        "cut" => &["why", "v"],
        _ => return None,
    };
    if fields.len() != keys.len() + 1 || keys.iter().any(|key| fields.iter().all(|(name, _)| name != key)) {
        return None;
    }
    let fits = shape_of(&tag, fields)?;
    let mut take = |key: &str| {
        fields
            .iter_mut()
            .find(|(name, _)| name == key)
            .map_or(Value::None, |(_, value)| std::mem::replace(value, Value::None))
    };
    Some(match fits {
        Shape::Undefined => Value::Undefined,
        Shape::Float(number) => Value::Float(number),
        Shape::Complex(re, im) => Value::Complex(re, im),
        Shape::Bytes(bytes) => Value::Bytes(bytes),
        Shape::TimeDelta(delta) => Value::TimeDelta(Box::new(delta)),
        Shape::Text(make) => make(text(take("v"))),
        Shape::Items(make) => make(items(take("v"))),
        Shape::Dict => dict(items(take("v"))),
        Shape::Named(make) => make(Box::new(Named {
            name: text(take("name")),
            fields: match take("v") {
                Value::Object(fields) => fields,
                _ => Fields::new(),
            },
        })),
        Shape::Enum => Value::Enum(Box::new(Member {
            name: text(take("name")),
            value: take("v"),
        })),
        Shape::Array(shape, bytes) => Value::Array(Box::new(Array {
            dtype: text(take("dtype")),
            shape,
            bytes,
        })),
        Shape::Scalar => Value::Scalar(Box::new(Scalar {
            dtype: text(take("dtype")),
            value: take("v"),
        })),
        Shape::Series => Value::Series(Box::new(Series {
            name: take("name"),
            index: items(take("index")),
            values: items(take("v")),
        })),
        Shape::DataFrame => Value::DataFrame(Box::new(DataFrame {
            columns: items(take("columns")),
            index: items(take("index")),
            rows: items(take("v")).into_iter().map(items).collect(),
        })),
        Shape::Error => Value::Error(Box::new(ErrorValue {
            kind: text(take("type")),
            message: text(take("message")),
        })),
        Shape::Repr => Value::Repr(Box::new(Repr {
            kind: text(take("type")),
            text: text(take("v")),
        })),
        Shape::Cut => Value::Cut(Box::new(Cut {
            why: text(take("why")),
            text: text(take("v")),
        })),
    })
}

/// What a tagged object was found to be, before anything of it is taken.
enum Shape {
    Undefined,
    Float(f64),
    Complex(f64, f64),
    Bytes(Vec<u8>),
    TimeDelta(TimeDelta),
    Text(fn(String) -> Value),
    Items(fn(Vec<Value>) -> Value),
    Dict,
    Named(fn(Box<Named>) -> Value),
    Enum,
    Array(Vec<u64>, Vec<u8>),
    Scalar,
    Series,
    DataFrame,
    Error,
    Repr,
    Cut,
}

/// Whether the fields are what the tag says they are.
fn shape_of(tag: &str, fields: &Fields) -> Option<Shape> {
    let field = |key: &str| {
        fields
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value)
    };
    let is_text = |key: &str| field(key)?.as_text();
    let is_list = |key: &str| match field(key)? {
        Value::List(items) => Some(items),
        _ => None,
    };
    Some(match tag {
        "undefined" => Shape::Undefined,
        "int" => {
            let digits = is_text("v")?;
            let digits = digits.strip_prefix('-').unwrap_or(digits);
            if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
                return None;
            }
            Shape::Text(Value::BigInt)
        }
        "float" => Shape::Float(match is_text("v")? {
            "nan" => f64::NAN,
            "inf" => f64::INFINITY,
            "-inf" => f64::NEG_INFINITY,
            _ => return None,
        }),
        "complex" => match &**is_list("v")? {
            [re, im] => Shape::Complex(real(re)?, real(im)?),
            _ => return None,
        },
        "bytes" => Shape::Bytes(STANDARD.decode(is_text("v")?).ok()?),
        "tuple" => is_list("v").map(|_| Shape::Items(Value::Tuple))?,
        "set" => is_list("v").map(|_| Shape::Items(Value::Set))?,
        "frozenset" => is_list("v").map(|_| Shape::Items(Value::FrozenSet))?,
        "dict" => {
            let pairs = is_list("v")?;
            let is_pair = |value: &Value| matches!(value, Value::List(pair) if pair.len() == 2);
            pairs.iter().all(is_pair).then_some(Shape::Dict)?
        }
        "datetime" => is_text("v").map(|_| Shape::Text(Value::DateTime))?,
        "date" => is_text("v").map(|_| Shape::Text(Value::Date))?,
        "time" => is_text("v").map(|_| Shape::Text(Value::Time))?,
        "timedelta" => match &**is_list("v")? {
            [Value::Int(days), Value::Int(seconds), Value::Int(microseconds)] => {
                Shape::TimeDelta(TimeDelta {
                    days: *days,
                    seconds: *seconds,
                    microseconds: *microseconds,
                })
            }
            _ => return None,
        },
        "decimal" => is_text("v").map(|_| Shape::Text(Value::Decimal))?,
        "fraction" => is_text("v").map(|_| Shape::Text(Value::Fraction))?,
        "uuid" => is_text("v").map(|_| Shape::Text(Value::Uuid))?,
        "path" => is_text("v").map(|_| Shape::Text(Value::Path))?,
        "namedtuple" | "dataclass" => {
            is_text("name")?;
            let Value::Object(_) = field("v")? else {
                return None;
            };
            Shape::Named(if tag == "dataclass" {
                Value::DataClass
            } else {
                Value::NamedTuple
            })
        }
        "enum" => is_text("name").map(|_| Shape::Enum)?,
        "ndarray" => {
            is_text("dtype")?;
            let shape = is_list("shape")?
                .iter()
                .map(|size| u64::try_from(size.as_int()?).ok())
                .collect::<Option<Vec<_>>>()?;
            Shape::Array(shape, STANDARD.decode(is_text("v")?).ok()?)
        }
        "scalar" => is_text("dtype").map(|_| Shape::Scalar)?,
        "series" => is_list("index").and(is_list("v")).map(|_| Shape::Series)?,
        "dataframe" => {
            let rows = is_list("v")?;
            let all_rows = rows.iter().all(|row| matches!(row, Value::List(_)));
            (all_rows && is_list("columns").is_some() && is_list("index").is_some())
                .then_some(Shape::DataFrame)?
        }
        "error" => is_text("type").and(is_text("message")).map(|_| Shape::Error)?,
        "repr" => is_text("type").and(is_text("v")).map(|_| Shape::Repr)?,
        "cut" => is_text("why").and(is_text("v")).map(|_| Shape::Cut)?,
        _ => return None,
    })
}

fn text(value: Value) -> String {
    match value {
        Value::Text(text) => text,
        _ => String::new(),
    }
}

fn items(value: Value) -> Vec<Value> {
    match value {
        Value::List(items) => items,
        _ => Vec::new(),
    }
}

const fn real(value: &Value) -> Option<f64> {
    match value {
        Value::Float(number) => Some(*number),
        Value::Int(number) => Some(*number as f64),
        _ => None,
    }
}

/// Pairs as a dictionary; one that is only written in pairs because of a key `$` is an object again.
fn dict(pairs: Vec<Value>) -> Value {
    let pairs: Vec<(Value, Value)> = pairs
        .into_iter()
        .filter_map(|pair| {
            let mut pair = items(pair).into_iter();
            Some((pair.next()?, pair.next()?))
        })
        .collect();
    let all_text = pairs.iter().all(|(key, _)| key.as_text().is_some());
    if all_text && pairs.iter().any(|(key, _)| key.as_text() == Some("$")) {
        let fields = pairs.into_iter().map(|(key, value)| (text(key), value));
        return Value::Object(last_of_each(fields.collect()));
    }
    Value::Dict(pairs)
}
