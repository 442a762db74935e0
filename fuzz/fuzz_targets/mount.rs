//! Mounts: any text is refused or is a mount that stays where it may be.
#![no_main]

use std::path::{Component, Path};

use belljar_core::Mount;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(mount) = Mount::parse(text, Path::new("/base")) else {
        return;
    };
    for path in [mount.host(), mount.guest()] {
        assert!(path.is_absolute());
        assert!(path.components().all(|part| part != Component::ParentDir));
    }
    let guest = mount.guest();
    for ours in ["/proc", "/dev", "/sys", "/etc", "/usr", "/run"] {
        assert!(!guest.starts_with(ours));
    }
    for exactly in ["/", "/workspace", "/tmp"] {
        assert_ne!(guest, Path::new(exactly));
    }
    assert_eq!(mount.to_string().parse(), Ok(mount));
});
