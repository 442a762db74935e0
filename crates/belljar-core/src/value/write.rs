//! A value as JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::{Fields, Value};

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
