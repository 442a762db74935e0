//! What the engine reads from an agent in somebody else's sandbox: any bytes are frames or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = belljar_providers::read_agent_frames(bytes);
});
