//! How an executable that links this crate becomes the launcher, or opens doors, when it is started for that.
//!
//! The launcher is the same executable, started again from a sealed copy under a name of its own.
//! A hook that runs before `main` sees that name and never lets `main` start. So every program
//! that uses the library, test binaries and documentation examples included, can start a launcher
//! without calling anything first.

use std::ffi::{CStr, c_char, c_int};

/// The name (`argv[0]`) that makes an executable the launcher.
pub(crate) const LAUNCHER_NAME: &str = "belljar: launcher";

#[used]
#[unsafe(link_section = ".init_array")]
static HOOK: extern "C" fn(c_int, *const *const c_char) = at_start;

extern "C" fn at_start(count: c_int, arguments: *const *const c_char) {
    // glibc passes the arguments to these functions; elsewhere the registers hold anything.
    if cfg!(not(target_env = "gnu")) || count != 1 || arguments.is_null() {
        return;
    }
    // SAFETY: glibc passes main's own argc and argv, and argc is 1, so argv[0] is a pointer.
    let name = unsafe { *arguments };
    if name.is_null() {
        return;
    }
    // SAFETY: argv's strings are NUL-terminated and live as long as the process.
    let name = unsafe { CStr::from_ptr(name) };
    if name.to_bytes() == LAUNCHER_NAME.as_bytes() {
        crate::launcher::main();
    }
    if name.to_bytes() == crate::doors::DOORS_NAME.as_bytes() {
        crate::doors::main();
    }
}
