//! Values: any bytes are a value or an error, and a value can be sent on and read again.
#![no_main]

use belljar_core::Value;
use belljar_core::value::JsonCaps;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(value) = Value::from_json(bytes, JsonCaps::MESSAGE) {
        let json = value.to_json().expect("what was read can be written");
        // A tag that is only data takes more brackets to write.
        let caps = JsonCaps {
            bytes: usize::MAX,
            depth: 4 * JsonCaps::MESSAGE.depth,
            items: usize::MAX,
        };
        let again = Value::from_json(&json, caps).expect("and read again");
        // Compared as text: NaN is not equal to itself.
        assert_eq!(again.to_json().expect("twice"), json);
        assert!(!value.to_string().chars().any(char::is_control));
    }
});
