//! Values cross and come back, and nothing that is sent does more than be data.

use proptest::prelude::*;

use super::*;

const CAPS: JsonCaps = JsonCaps {
    bytes: 1 << 20,
    depth: 200,
    items: 10_000,
};

fn read(text: &str) -> Result<Value, ValueError> {
    Value::from_json(text.as_bytes(), CAPS)
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z$]{0,6}", ".{0,12}"]
}

fn fields(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Fields> {
    proptest::collection::btree_map(text(), value, 0..4).prop_map(|map| map.into_iter().collect())
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::None),
        Just(Value::Undefined),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        "-?[1-9][0-9]{20,30}".prop_map(Value::BigInt),
        prop_oneof![
            any::<f64>().prop_filter("NaN is not equal to itself", |number| !number.is_nan()),
            Just(f64::INFINITY),
            Just(f64::NEG_INFINITY),
            Just(-0.0),
        ]
        .prop_map(Value::Float),
        (-9.5e9..9.5e9, -1.0..1.0).prop_map(|(re, im)| Value::Complex(re, im)),
        text().prop_map(Value::Text),
        proptest::collection::vec(any::<u8>(), 0..40).prop_map(Value::Bytes),
        text().prop_map(Value::DateTime),
        text().prop_map(Value::Decimal),
        text().prop_map(Value::Path),
        (any::<i64>(), any::<i64>(), any::<i64>()).prop_map(|(days, seconds, microseconds)| {
            Value::TimeDelta(Box::new(TimeDelta {
                days,
                seconds,
                microseconds,
            }))
        }),
        (text(), proptest::collection::vec(0..9u64, 0..3), any::<[u8; 7]>()).prop_map(
            |(dtype, shape, bytes)| {
                Value::Array(Box::new(Array {
                    dtype,
                    shape,
                    bytes: bytes.into(),
                }))
            }
        ),
        (text(), text()).prop_map(|(kind, text)| Value::Repr(Box::new(Repr { kind, text }))),
        (text(), text()).prop_map(|(kind, message)| Value::Error(Box::new(ErrorValue { kind, message }))),
    ];
    leaf.prop_recursive(5, 60, 6, |inner| {
        let list = || proptest::collection::vec(inner.clone(), 0..5);
        prop_oneof![
            list().prop_map(Value::List),
            list().prop_map(Value::Tuple),
            list().prop_map(Value::Set),
            list().prop_map(Value::FrozenSet),
            fields(inner.clone()).prop_map(Value::Object),
            proptest::collection::vec((inner.clone(), inner.clone()), 0..4)
                .prop_filter("a dict of text with `$` is an object", |pairs| {
                    !pairs.iter().any(|(key, _)| key.as_text() == Some("$"))
                })
                .prop_map(Value::Dict),
            (text(), fields(inner.clone()))
                // The fields of a class cannot be called `$`.
                .prop_filter("no such field", |(_, fields)| fields
                    .iter()
                    .all(|(name, _)| name != "$"))
                .prop_map(|(name, fields)| Value::DataClass(Box::new(Named { name, fields }))),
            (text(), inner.clone()).prop_map(|(name, value)| Value::Enum(Box::new(Member { name, value }))),
            (inner.clone(), list(), list()).prop_map(|(name, index, values)| {
                Value::Series(Box::new(Series { name, index, values }))
            }),
            (list(), list(), proptest::collection::vec(list(), 0..3)).prop_map(|(columns, index, rows)| {
                Value::DataFrame(Box::new(DataFrame { columns, index, rows }))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn every_value_comes_back_as_it_went(value in values()) {
        let json = value.to_json().unwrap();
        prop_assert_eq!(Value::from_json(&json, CAPS).unwrap(), value);
    }

    #[test]
    fn any_bytes_are_a_value_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Value::from_json(&bytes, CAPS);
    }

    /// Whatever stands behind a tag is data, and data that can be sent on.
    #[test]
    fn any_tag_is_a_value(tag in "[a-z]{0,10}", inner in values(), key in "v|name|dtype|shape|index") {
        let inner = String::from_utf8(inner.to_json().unwrap()).unwrap();
        for tag in [tag.as_str(), "int", "bytes", "dict", "ndarray", "dataframe", "timedelta", "complex"] {
            let value = read(&format!("{{\"$\":\"{tag}\",\"{key}\":{inner}}}")).unwrap();
            let again = Value::from_json(&value.to_json().unwrap(), CAPS).unwrap();
            prop_assert_eq!(again, value);
        }
    }

    #[test]
    fn what_is_shown_cannot_act(value in values()) {
        prop_assert!(!value.to_string().chars().any(char::is_control));
    }
}

#[test]
fn plain_json_is_plain() {
    for text in [
        "null",
        "true",
        "[1,-2,3.0,1e300]",
        "{\"b\":1,\"a\":\"x\"}",
        "9223372036854775807",
    ] {
        let value = read(text).unwrap();
        let written = String::from_utf8(value.to_json().unwrap()).unwrap();
        assert_eq!(written, text.replace("1e300", "1e+300"));
    }
}

#[test]
fn a_tag_that_is_unknown_or_lies_stays_data() {
    for (text, shown) in [
        (r#"{"$":"pickle","v":"gASV"}"#, r#"{"$": "pickle", "v": "gASV"}"#),
        (r#"{"$":"bytes","v":"!"}"#, r#"{"$": "bytes", "v": "!"}"#),
        (r#"{"$":"int","v":"1e5"}"#, r#"{"$": "int", "v": "1e5"}"#),
        (r#"{"$":"tuple","v":1}"#, r#"{"$": "tuple", "v": 1}"#),
        (
            r#"{"$":"tuple","v":[],"w":2}"#,
            r#"{"$": "tuple", "v": [], "w": 2}"#,
        ),
        (r#"{"$":1}"#, r#"{"$": 1}"#),
        (r#"{"$":"dict","v":[[1]]}"#, r#"{"$": "dict", "v": [[1]]}"#),
        (
            r#"{"$":"ndarray","dtype":"u1","shape":[-1],"v":""}"#,
            r#"{"$": "ndarray", "dtype": "u1", "shape": [-1], "v": ""}"#,
        ),
    ] {
        let value = read(text).unwrap();
        assert!(matches!(value, Value::Object(_)), "{value:?}");
        assert_eq!(value.to_string(), shown);
    }
}

#[test]
fn caps_hold_before_anything_is_built() {
    let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(read(&deep(200)).is_ok());
    assert!(matches!(read(&deep(201)), Err(ValueError::TooDeep(200))));
    assert!(matches!(read(&deep(400_000)), Err(ValueError::TooDeep(200))));
    let wide = format!("[{}1]", "1,".repeat(10_000));
    assert!(matches!(read(&wide), Err(ValueError::TooMany(10_000))));
    let long = format!("\"{}\"", "x".repeat(1 << 20));
    assert!(matches!(read(&long), Err(ValueError::TooLong(_))));
    assert!(
        read(&format!("\"{}\\\"\"", "[".repeat(1000))).is_ok(),
        "brackets in text are text"
    );
    assert!(matches!(read("[1] [2]"), Err(ValueError::NotJson(_))));
    assert!(matches!(read("NaN"), Err(ValueError::NotJson(_))));
}

#[test]
fn a_value_that_is_too_deep_to_write_is_refused() {
    let mut value = Value::None;
    for _ in 0..2_000 {
        value = Value::List(vec![value]);
    }
    assert!(matches!(value.to_json(), Err(ValueError::TooDeep(_))));
}

#[test]
fn rust_types_become_values_and_come_back() {
    assert_eq!(Value::from(7u8), Value::Int(7));
    assert_eq!(
        Value::from(u64::MAX),
        Value::BigInt("18446744073709551615".to_owned())
    );
    assert_eq!(Value::from(u64::MAX).to::<u64>(), Ok(u64::MAX));
    assert_eq!(
        Value::from(vec!["a", "b"]).to::<Vec<String>>().unwrap(),
        ["a", "b"]
    );
    assert_eq!(Value::from(None::<i64>).to::<Option<i64>>(), Ok(None));
    assert_eq!(Value::Int(3).to::<f64>(), Ok(3.0));
    assert_eq!(i64::try_from(Value::Int(3)), Ok(3));
    assert_eq!(
        Value::from("x").to::<i64>().unwrap_err().to_string(),
        "expected a whole number, got text"
    );
    assert_eq!(
        Value::Int(300).to::<u8>().unwrap_err().to_string(),
        "expected a whole number that fits u8, got one that does not"
    );
    let plain = serde_json::json!({"$": "bytes", "v": "AA=="});
    assert!(
        matches!(Value::from(plain), Value::Object(_)),
        "plain JSON has no tags"
    );
}

#[test]
fn a_value_is_small() {
    assert!(size_of::<Value>() <= 32, "{}", size_of::<Value>());
}
