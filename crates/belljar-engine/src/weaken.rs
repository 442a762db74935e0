//! Switching single checks off, for the tests alone: see the module of that name in `belljar-linux`.

/// Whether the check of that name is to be left out.
#[cfg(feature = "weaken")]
pub(crate) fn is_off(name: &str) -> bool {
    std::env::var("BELLJAR_WEAKEN").is_ok_and(|list| list.split(',').any(|entry| entry == name))
}

#[cfg(not(feature = "weaken"))]
pub(crate) const fn is_off(_: &str) -> bool {
    false
}
