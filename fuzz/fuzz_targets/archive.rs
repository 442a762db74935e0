//! P39: whatever the bytes, never a panic, never more than the limit, never a name that leaves.
#![no_main]

use belljar_core::request::Content;
use belljar_engine::archive::{MOST_ENTRIES, read_bytes};
use libfuzzer_sys::fuzz_target;

const LIMIT: u64 = 64 * 1024;

fuzz_target!(|bytes: &[u8]| {
    let Ok(files) = read_bytes(bytes, LIMIT) else {
        return;
    };
    assert!(files.len() <= MOST_ENTRIES);
    let mut total = 0;
    for (path, file) in &files {
        assert!(path.parts().all(|part| !matches!(part, "" | "." | "..")));
        assert!(!path.as_str().chars().any(|c| c.is_control() || c == '\\'));
        match &file.content {
            Content::Inline(bytes) => total += bytes.len() as u64,
            Content::HostFile(path) => panic!("a host path out of an archive: {}", path.display()),
        }
    }
    assert!(total <= LIMIT);
});
