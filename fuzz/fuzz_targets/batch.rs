//! Lines of a batch: any bytes are read or refused with a hint, and every byte belongs to some line.
#![no_main]

use belljar::batch::{Batch, Lines};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let batch = Batch::new();
    let mut before = 0;
    for line in Lines::new(bytes) {
        let Ok(line) = line else {
            panic!("a slice can be read");
        };
        assert!(line.end > before && line.end <= bytes.len() as u64);
        before = line.end;
        // A file would be read from wherever this runs.
        let names_file = line.text.as_ref().is_some_and(|text| text.windows(4).any(|word| word == b"file"));
        if names_file {
            continue;
        }
        if let Err(error) = batch.check(&line) {
            assert!(error.hint().is_some_and(|hint| !hint.is_empty()), "{error}");
        }
    }
});
