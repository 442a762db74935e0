//! Data that crosses the wall, with its type kept where JSON has none.
//!
//! The JSON form is the table of `guest/PROTOCOL.md`. Reading it never builds more than data: a tag
//! that is unknown or malformed is an object like any other, and nothing is ever executed, imported
//! or resolved. What comes from a guest is read with [`Value::from_json`], which bounds depth and size.

mod convert;
mod json;
mod read;
mod show;
#[cfg(test)]
mod tests;
mod write;

pub use convert::{FromValue, WrongType};
pub use json::{JsonCaps, JsonScan, ValueError, check_json};

/// Names and their values, in the order in which they came.
pub type Fields = Vec<(String, Value)>;

/// One value of a guest, or for one.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Python's `None`, JavaScript's `null`.
    None,
    /// JavaScript's `undefined` inside another value.
    Undefined,
    Bool(bool),
    Int(i64),
    /// A whole number beyond 64 bits, or a `BigInt`, in decimal digits.
    BigInt(String),
    Float(f64),
    Complex(f64, f64),
    Text(String),
    Bytes(Vec<u8>),
    List(Vec<Value>),
    Tuple(Vec<Value>),
    NamedTuple(Box<Named>),
    Set(Vec<Value>),
    FrozenSet(Vec<Value>),
    /// A dictionary whose keys are all text; a JavaScript object.
    Object(Fields),
    /// A dictionary with any keys; a JavaScript `Map`.
    Dict(Vec<(Value, Value)>),
    /// ISO 8601, as are the next two.
    DateTime(String),
    Date(String),
    Time(String),
    TimeDelta(Box<TimeDelta>),
    /// In decimal digits.
    Decimal(String),
    /// `numerator/denominator`.
    Fraction(String),
    Uuid(String),
    /// A path as text. It names something in the guest, if anything.
    Path(String),
    Enum(Box<Member>),
    Array(Box<Array>),
    /// A numpy scalar.
    Scalar(Box<Scalar>),
    DataClass(Box<Named>),
    Series(Box<Series>),
    DataFrame(Box<DataFrame>),
    /// An exception that is a value and was not raised.
    Error(Box<ErrorValue>),
    /// Something that is no data: its `repr`.
    Repr(Box<Repr>),
    /// Something that was too large or too deep to come across.
    Cut(Box<Cut>),
}

/// A named tuple or a dataclass instance.
#[derive(Clone, Debug, PartialEq)]
pub struct Named {
    /// The name of its class.
    pub name: String,
    pub fields: Fields,
}

/// Python's `timedelta`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeDelta {
    pub days: i64,
    pub seconds: i64,
    pub microseconds: i64,
}

/// A member of an enumeration.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// `Class.MEMBER`.
    pub name: String,
    pub value: Value,
}

/// A numpy array or a JavaScript typed array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    /// numpy's name of its type, such as `float64`.
    pub dtype: String,
    pub shape: Vec<u64>,
    /// In C order, little endian. Its length is the guest's word and need not fit the shape.
    pub bytes: Vec<u8>,
}

/// A numpy scalar.
#[derive(Clone, Debug, PartialEq)]
pub struct Scalar {
    pub dtype: String,
    pub value: Value,
}

/// A pandas Series.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    pub name: Value,
    pub index: Vec<Value>,
    pub values: Vec<Value>,
}

/// A pandas `DataFrame`, by rows.
#[derive(Clone, Debug, PartialEq)]
pub struct DataFrame {
    pub columns: Vec<Value>,
    pub index: Vec<Value>,
    pub rows: Vec<Vec<Value>>,
}

/// An exception instance as a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorValue {
    pub kind: String,
    pub message: String,
}

/// What is left of something that is no data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repr {
    /// The name of its type.
    pub kind: String,
    pub text: String,
}

/// What is left of something that did not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// `depth`, `size` or `cycle`.
    pub why: String,
    pub text: String,
}

impl Value {
    /// Bytes; a vector of numbers would be a list.
    pub fn bytes(bytes: impl Into<Vec<u8>>) -> Self {
        Self::Bytes(bytes.into())
    }

    /// An object with text keys.
    pub fn object<K: Into<String>, V: Into<Self>>(fields: impl IntoIterator<Item = (K, V)>) -> Self {
        Self::Object(
            fields
                .into_iter()
                .map(|(key, value)| (key.into(), value.into()))
                .collect(),
        )
    }

    /// The value under `key`, where this has named fields.
    pub fn get(&self, key: &str) -> Option<&Self> {
        let fields = match self {
            Self::Object(fields) => fields,
            Self::NamedTuple(named) | Self::DataClass(named) => &named.fields,
            _ => return None,
        };
        fields
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value)
    }

    /// The items, where this is a list, a tuple or a set.
    pub fn items(&self) -> Option<&[Self]> {
        match self {
            Self::List(items) | Self::Tuple(items) | Self::Set(items) | Self::FrozenSet(items) => Some(items),
            _ => None,
        }
    }

    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub const fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            _ => None,
        }
    }

    /// What sort of value it is, in a word for people.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Undefined => "undefined",
            Self::Bool(_) => "bool",
            Self::Int(_) | Self::BigInt(_) => "int",
            Self::Float(_) => "float",
            Self::Complex(..) => "complex",
            Self::Text(_) => "text",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "list",
            Self::Tuple(_) => "tuple",
            Self::NamedTuple(_) => "namedtuple",
            Self::Set(_) => "set",
            Self::FrozenSet(_) => "frozenset",
            Self::Object(_) | Self::Dict(_) => "dict",
            Self::DateTime(_) => "datetime",
            Self::Date(_) => "date",
            Self::Time(_) => "time",
            Self::TimeDelta(_) => "timedelta",
            Self::Decimal(_) => "decimal",
            Self::Fraction(_) => "fraction",
            Self::Uuid(_) => "uuid",
            Self::Path(_) => "path",
            Self::Enum(_) => "enum",
            Self::Array(_) => "ndarray",
            Self::Scalar(_) => "scalar",
            Self::DataClass(_) => "dataclass",
            Self::Series(_) => "series",
            Self::DataFrame(_) => "dataframe",
            Self::Error(_) => "error",
            Self::Repr(_) => "repr",
            Self::Cut(_) => "cut",
        }
    }

    /// Whether it is nested at most `depth` deep. A text alone has depth 1.
    pub fn within_depth(&self, depth: usize) -> bool {
        let Some(below) = depth.checked_sub(1) else {
            return false;
        };
        let all = |values: &[Self]| values.iter().all(|value| value.within_depth(below));
        let fields = |fields: &Fields| fields.iter().all(|(_, value)| value.within_depth(below));
        match self {
            Self::List(items) | Self::Tuple(items) | Self::Set(items) | Self::FrozenSet(items) => all(items),
            Self::Object(named) => fields(named),
            Self::NamedTuple(named) | Self::DataClass(named) => fields(&named.fields),
            Self::Dict(pairs) => pairs
                .iter()
                .all(|(key, value)| key.within_depth(below) && value.within_depth(below)),
            Self::Enum(member) => member.value.within_depth(below),
            Self::Scalar(scalar) => scalar.value.within_depth(below),
            Self::Series(series) => {
                series.name.within_depth(below) && all(&series.index) && all(&series.values)
            }
            Self::DataFrame(frame) => {
                all(&frame.columns) && all(&frame.index) && frame.rows.iter().all(|row| all(row))
            }
            _ => true,
        }
    }
}
