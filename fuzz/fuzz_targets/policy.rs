//! Policies: any text is read or refused with a place, and what is read can be written and read again.
#![no_main]

use belljar_core::Policy;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match Policy::from_toml(text, "fuzz.toml") {
        Ok(policy) => {
            let again = Policy::from_toml(&policy.to_toml(), "again.toml");
            assert_eq!(again.as_ref(), Ok(&policy));
            assert_eq!(again.map(|again| again.hash()), Ok(policy.hash()));
        }
        Err(error) => assert!(error.line >= 1 && error.line <= text.lines().count().max(1) + 1),
    }
});
