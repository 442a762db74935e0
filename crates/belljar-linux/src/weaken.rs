//! Switching single controls off, for the tests alone.
//!
//! A wall that was never seen failing proves nothing. With the `weaken` feature, which no release
//! has, `BELLJAR_WEAKEN=seccomp,landlock` removes the named controls so that a test can watch the
//! attack get through.

/// Whether the control of that name is to be left out.
#[cfg(feature = "weaken")]
pub(crate) fn is_off(name: &str) -> bool {
    std::env::var("BELLJAR_WEAKEN").is_ok_and(|list| list.split(',').any(|entry| entry == name))
}

#[cfg(not(feature = "weaken"))]
pub(crate) const fn is_off(_: &str) -> bool {
    false
}

/// The path that every sandbox is to come by, so that a test can see the walls on each of them:
/// `pooled`, `forked` or `ahead`.
#[cfg(feature = "weaken")]
pub(crate) fn path() -> Option<&'static str> {
    static PATH: std::sync::LazyLock<Option<String>> =
        std::sync::LazyLock::new(|| std::env::var("BELLJAR_PATH").ok().filter(|path| !path.is_empty()));
    PATH.as_deref()
}

#[cfg(not(feature = "weaken"))]
pub(crate) const fn path() -> Option<&'static str> {
    None
}
