//! What the engine reads from a sandbox's init: any bytes are a message or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = belljar_linux::read_event_frame(bytes);
});
