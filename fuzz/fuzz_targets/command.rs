//! R56, R57: any line is split and checked, or refused; quoted words come back as they were.
#![no_main]

use belljar_core::command::{check, split};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|line: &str| {
    let Ok(words) = split(line) else { return };
    let _ = check(&words, &[]);
    assert!(check(&words, &["only this".to_owned()]).is_err() || words[0] == "only this");
    let quoted: Vec<String> = words
        .iter()
        .map(|word| format!("'{}'", word.replace('\'', r"'\''")))
        .collect();
    assert_eq!(split(&quoted.join(" ")).as_ref(), Ok(&words));
});
