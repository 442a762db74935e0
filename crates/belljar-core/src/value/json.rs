//! The JSON form of a value, both ways.

use std::collections::HashSet;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{
    Array, Cut, DataFrame, ErrorValue, Fields, Member, Named, Repr, Scalar, Series, TimeDelta, Value,
};

/// The deepest value that is written. Reading has caps of its own.
const DEEPEST_WRITTEN: usize = 1_000;

/// How much of somebody else's JSON is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonCaps {
    pub bytes: usize,
    /// Brackets within brackets.
    pub depth: usize,
    /// Values of any kind, all levels together: each costs memory whatever its length.
    pub items: usize,
}

impl JsonCaps {
    /// What is read of a runner's message.
    pub const MESSAGE: Self = Self {
        bytes: crate::provider::LONGEST_MESSAGE,
        depth: 200,
        items: 4_000_000,
    };
}

/// Why something is no value.
#[derive(Debug, thiserror::Error)]
pub enum ValueError {
    #[error("it is nested deeper than {0}")]
    TooDeep(usize),
    #[error("it is longer than {0} bytes")]
    TooLong(usize),
    #[error("it holds more than {0} values")]
    TooMany(usize),
    #[error("it is not JSON: {0}")]
    NotJson(#[from] serde_json::Error),
}

/// Looks at JSON without building anything of it: whether it is within `caps`.
pub fn check_json(bytes: &[u8], caps: JsonCaps) -> Result<(), ValueError> {
    if bytes.len() > caps.bytes {
        return Err(ValueError::TooLong(caps.bytes));
    }
    let (mut depth, mut items, mut in_text, mut escaped) = (0usize, 1usize, false, false);
    for byte in bytes {
        if in_text {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_text = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_text = true,
            b'[' | b'{' => {
                depth += 1;
                items += 1;
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' | b':' => items += 1,
            _ => {}
        }
        if depth > caps.depth {
            return Err(ValueError::TooDeep(caps.depth));
        }
        if items > caps.items {
            return Err(ValueError::TooMany(caps.items));
        }
    }
    Ok(())
}

impl Value {
    /// Reads a value from JSON that anybody may have written.
    pub fn from_json(bytes: &[u8], caps: JsonCaps) -> Result<Self, ValueError> {
        check_json(bytes, caps)?;
        let mut deserializer = serde_json::Deserializer::from_slice(bytes);
        // Depth was bounded above, by our own number.
        deserializer.disable_recursion_limit();
        let value = Self::deserialize(&mut deserializer)?;
        deserializer.end()?;
        Ok(value)
    }

    /// Writes it; fails where it is nested absurdly deep.
    pub fn to_json(&self) -> Result<Vec<u8>, ValueError> {
        if !self.within_depth(DEEPEST_WRITTEN) {
            return Err(ValueError::TooDeep(DEEPEST_WRITTEN));
        }
        Ok(serde_json::to_vec(self)?)
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use Part::{Fields as Named, List, Numbers, Pairs, Rows, Shape, Text, TextPairs, Whole};
        let base64;
        let (tag, parts): (&str, &[(&str, Part<'_>)]) = match self {
            Self::None => return serializer.serialize_unit(),
            Self::Bool(value) => return serializer.serialize_bool(*value),
            Self::Int(number) => return serializer.serialize_i64(*number),
            Self::Float(number) if number.is_finite() => return serializer.serialize_f64(*number),
            Self::Text(text) => return serializer.serialize_str(text),
            Self::List(items) => return items.serialize(serializer),
            Self::Object(fields) if fields.iter().all(|(name, _)| name != "$") => {
                return Named(fields).serialize(serializer);
            }
            Self::Object(fields) => ("dict", &[("v", TextPairs(fields))]),
            Self::Undefined => ("undefined", &[]),
            Self::BigInt(digits) => ("int", &[("v", Text(digits))]),
            Self::Float(number) => ("float", &[("v", Text(unreal(*number)))]),
            Self::Complex(re, im) => ("complex", &[("v", Part::Floats([*re, *im]))]),
            Self::Bytes(bytes) => {
                base64 = STANDARD.encode(bytes);
                ("bytes", &[("v", Text(&base64))])
            }
            Self::Tuple(items) => ("tuple", &[("v", List(items))]),
            Self::Set(items) => ("set", &[("v", List(items))]),
            Self::FrozenSet(items) => ("frozenset", &[("v", List(items))]),
            Self::Dict(pairs) => ("dict", &[("v", Pairs(pairs))]),
            Self::DateTime(text) => ("datetime", &[("v", Text(text))]),
            Self::Date(text) => ("date", &[("v", Text(text))]),
            Self::Time(text) => ("time", &[("v", Text(text))]),
            Self::TimeDelta(it) => (
                "timedelta",
                &[("v", Numbers([it.days, it.seconds, it.microseconds]))],
            ),
            Self::Decimal(text) => ("decimal", &[("v", Text(text))]),
            Self::Fraction(text) => ("fraction", &[("v", Text(text))]),
            Self::Uuid(text) => ("uuid", &[("v", Text(text))]),
            Self::Path(text) => ("path", &[("v", Text(text))]),
            Self::NamedTuple(it) => (
                "namedtuple",
                &[("name", Text(&it.name)), ("v", Named(&it.fields))],
            ),
            Self::DataClass(it) => ("dataclass", &[("name", Text(&it.name)), ("v", Named(&it.fields))]),
            Self::Enum(it) => ("enum", &[("name", Text(&it.name)), ("v", Whole(&it.value))]),
            Self::Array(it) => {
                base64 = STANDARD.encode(&it.bytes);
                (
                    "ndarray",
                    &[
                        ("dtype", Text(&it.dtype)),
                        ("shape", Shape(&it.shape)),
                        ("v", Text(&base64)),
                    ],
                )
            }
            Self::Scalar(it) => ("scalar", &[("dtype", Text(&it.dtype)), ("v", Whole(&it.value))]),
            Self::Series(it) => (
                "series",
                &[
                    ("name", Whole(&it.name)),
                    ("index", List(&it.index)),
                    ("v", List(&it.values)),
                ],
            ),
            Self::DataFrame(it) => (
                "dataframe",
                &[
                    ("columns", List(&it.columns)),
                    ("index", List(&it.index)),
                    ("v", Rows(&it.rows)),
                ],
            ),
            Self::Error(it) => (
                "error",
                &[("type", Text(&it.kind)), ("message", Text(&it.message))],
            ),
            Self::Repr(it) => ("repr", &[("type", Text(&it.kind)), ("v", Text(&it.text))]),
            Self::Cut(it) => ("cut", &[("why", Text(&it.why)), ("v", Text(&it.text))]),
        };
        let mut map = serializer.serialize_map(Some(parts.len() + 1))?;
        map.serialize_entry("$", tag)?;
        for (key, part) in parts {
            map.serialize_entry(key, part)?;
        }
        map.end()
    }
}

/// One key's content in a tagged object.
enum Part<'a> {
    Text(&'a str),
    Whole(&'a Value),
    List(&'a [Value]),
    Rows(&'a [Vec<Value>]),
    Fields(&'a Fields),
    Pairs(&'a [(Value, Value)]),
    TextPairs(&'a Fields),
    Numbers([i64; 3]),
    Floats([f64; 2]),
    Shape(&'a [u64]),
}

impl Serialize for Part<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Whole(value) => value.serialize(serializer),
            Self::List(values) => values.serialize(serializer),
            Self::Rows(rows) => rows.serialize(serializer),
            Self::Fields(fields) => serializer.collect_map(fields.iter().map(|(name, value)| (name, value))),
            Self::Pairs(pairs) => pairs.serialize(serializer),
            Self::TextPairs(fields) => fields.serialize(serializer),
            Self::Numbers(numbers) => numbers.serialize(serializer),
            Self::Floats(parts) => parts.map(Value::Float).serialize(serializer),
            Self::Shape(shape) => shape.serialize(serializer),
        }
    }
}

/// A number that JSON cannot hold, in a word.
const fn unreal(number: f64) -> &'static str {
    if number.is_nan() {
        "nan"
    } else if number > 0.0 {
        "inf"
    } else {
        "-inf"
    }
}

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
        Ok(Value::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Fields::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        let mut fields = last_of_each(fields);
        Ok(read_tagged(&mut fields).unwrap_or(Value::Object(fields)))
    }
}

/// A name that comes twice has its last value, as in every JSON reader.
fn last_of_each(fields: Fields) -> Fields {
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
