//! From Rust types to values and back.

use std::collections::{BTreeMap, HashMap};

use super::Value;

/// A value that is not what the host's code wants.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, got {got}")]
pub struct WrongType {
    pub expected: &'static str,
    pub got: &'static str,
}

/// A Rust type that a value can become.
pub trait FromValue: Sized {
    fn from_value(value: Value) -> Result<Self, WrongType>;
}

impl Value {
    /// The value as a Rust type.
    pub fn to<T: FromValue>(self) -> Result<T, WrongType> {
        T::from_value(self)
    }
}

const fn wrong(expected: &'static str, value: &Value) -> WrongType {
    WrongType {
        expected,
        got: value.kind(),
    }
}

macro_rules! from_small {
    ($($type:ty),*) => {$(
        impl From<$type> for Value {
            fn from(number: $type) -> Self {
                Self::Int(i64::from(number))
            }
        }
    )*};
}
from_small!(i8, i16, i32, i64, u8, u16, u32);

macro_rules! from_large {
    ($($type:ty),*) => {$(
        impl From<$type> for Value {
            fn from(number: $type) -> Self {
                i64::try_from(number).map_or_else(|_| Self::BigInt(number.to_string()), Self::Int)
            }
        }
    )*};
}
from_large!(u64, i128, u128, usize, isize);

macro_rules! to_whole {
    ($($type:ty),*) => {$(
        impl FromValue for $type {
            fn from_value(value: Value) -> Result<Self, WrongType> {
                let found = match &value {
                    Value::Int(number) => <$type>::try_from(*number).ok(),
                    Value::BigInt(digits) => digits.parse().ok(),
                    Value::Scalar(scalar) => return Self::from_value(scalar.value.clone()),
                    _ => return Err(wrong("a whole number", &value)),
                };
                found.ok_or(WrongType {
                    expected: concat!("a whole number that fits ", stringify!($type)),
                    got: "one that does not",
                })
            }
        }
    )*};
}
to_whole!(i8, i16, i32, i64, i128, isize, u8, u16, u32, u64, u128, usize);

macro_rules! try_from {
    ($($type:ty),*) => {$(
        impl TryFrom<Value> for $type {
            type Error = WrongType;

            fn try_from(value: Value) -> Result<Self, WrongType> {
                Self::from_value(value)
            }
        }
    )*};
}
try_from!(
    i8, i16, i32, i64, i128, isize, u8, u16, u32, u64, u128, usize, f64, bool, String
);

impl From<()> for Value {
    fn from((): ()) -> Self {
        Self::None
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Float(number)
    }
}

impl From<f32> for Value {
    fn from(number: f32) -> Self {
        Self::Float(f64::from(number))
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<char> for Value {
    fn from(c: char) -> Self {
        Self::Text(c.into())
    }
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::None, Into::into)
    }
}

impl<T: Into<Self>> From<Vec<T>> for Value {
    fn from(items: Vec<T>) -> Self {
        Self::List(items.into_iter().map(Into::into).collect())
    }
}

impl<T: Into<Self>, const N: usize> From<[T; N]> for Value {
    fn from(items: [T; N]) -> Self {
        Self::List(items.into_iter().map(Into::into).collect())
    }
}

impl<K: Into<String>, V: Into<Self>> From<BTreeMap<K, V>> for Value {
    fn from(map: BTreeMap<K, V>) -> Self {
        Self::object(map)
    }
}

impl<K: Into<String>, V: Into<Self>> From<HashMap<K, V>> for Value {
    fn from(map: HashMap<K, V>) -> Self {
        Self::object(map)
    }
}

impl<A: Into<Self>, B: Into<Self>> From<(A, B)> for Value {
    fn from((a, b): (A, B)) -> Self {
        Self::Tuple(vec![a.into(), b.into()])
    }
}

impl<A: Into<Self>, B: Into<Self>, C: Into<Self>> From<(A, B, C)> for Value {
    fn from((a, b, c): (A, B, C)) -> Self {
        Self::Tuple(vec![a.into(), b.into(), c.into()])
    }
}

/// Plain JSON as data; never read as tags.
impl From<serde_json::Value> for Value {
    fn from(value: serde_json::Value) -> Self {
        match value {
            serde_json::Value::Null => Self::None,
            serde_json::Value::Bool(value) => Self::Bool(value),
            serde_json::Value::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(number), _) => Self::Int(number),
                (None, Some(number)) => Self::from(number),
                (None, None) => Self::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            serde_json::Value::String(text) => Self::Text(text),
            serde_json::Value::Array(items) => Self::from(items),
            serde_json::Value::Object(map) => Self::object(map),
        }
    }
}

impl FromValue for Value {
    fn from_value(value: Value) -> Result<Self, WrongType> {
        Ok(value)
    }
}

impl FromValue for bool {
    fn from_value(value: Value) -> Result<Self, WrongType> {
        match value {
            Value::Bool(value) => Ok(value),
            other => Err(wrong("a bool", &other)),
        }
    }
}

impl FromValue for f64 {
    fn from_value(value: Value) -> Result<Self, WrongType> {
        match value {
            Value::Float(number) => Ok(number),
            Value::Int(number) => Ok(number as Self),
            Value::Scalar(scalar) => Self::from_value(scalar.value),
            other => Err(wrong("a number", &other)),
        }
    }
}

impl FromValue for String {
    fn from_value(value: Value) -> Result<Self, WrongType> {
        match value {
            Value::Text(text) => Ok(text),
            other => Err(wrong("text", &other)),
        }
    }
}

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: Value) -> Result<Self, WrongType> {
        match value {
            Value::None | Value::Undefined => Ok(None),
            value => T::from_value(value).map(Some),
        }
    }
}

impl<T: FromValue> FromValue for Vec<T> {
    fn from_value(value: Value) -> Result<Self, WrongType> {
        match value {
            Value::List(items) | Value::Tuple(items) | Value::Set(items) | Value::FrozenSet(items) => {
                items.into_iter().map(T::from_value).collect()
            }
            other => Err(wrong("a list", &other)),
        }
    }
}

impl<T: FromValue> FromValue for BTreeMap<String, T> {
    fn from_value(value: Value) -> Result<Self, WrongType> {
        match value {
            Value::Object(fields) => fields
                .into_iter()
                .map(|(name, value)| Ok((name, T::from_value(value)?)))
                .collect(),
            Value::Dict(pairs) => pairs
                .into_iter()
                .map(|(key, value)| Ok((String::from_value(key)?, T::from_value(value)?)))
                .collect(),
            other => Err(wrong("a dictionary with text keys", &other)),
        }
    }
}
