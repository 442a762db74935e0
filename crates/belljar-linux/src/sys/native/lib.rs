//! The part of Python's zygote that is no Python: it waits for the engine, forks, and takes the fork into its sandbox.
//!
//! An interpreter that does this in Python touches hundreds of pages on its way, and each of them is copied: once for the fork,
//! once for the zygote itself. This touches a handful. It is a library without a runtime of its own, loaded by zygote.py
//! and built by the crate that embeds it.

#![no_std]

mod arenas;
mod calls;
mod fill;
mod fork;
mod frames;
mod guest;
mod holder;
mod huge;
mod line;
mod maps;
mod report;
mod syscall;
mod text;

use huge::Ranges;

unsafe extern "C" {
    fn PyOS_AfterFork_Child();
    fn __errno_location() -> *mut i32;
}

/// Nothing here panics; if it did, this process could not be trusted any more.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    syscall::exit(70)
}

/// Tables for unwinding name it. Nothing unwinds here.
#[unsafe(no_mangle)]
pub extern "C" fn rust_eh_personality() {}

/// Serves the engine on `channel`, and returns only in a fork that has become a guest: what it is for.
/// `own_namespace` is a handle of the pid namespace to come back to.
#[unsafe(no_mangle)]
pub extern "C" fn belljar_serve(channel: i32, own_namespace: i32) -> i32 {
    fork::serve(channel, own_namespace)
}

/// To be called at the start of a zygote.
#[unsafe(no_mangle)]
pub extern "C" fn belljar_begin() {
    fork::begin();
    if huge::is_usual() {
        arenas::begin();
    }
}

/// To be called once everything is loaded, before the first fork.
#[unsafe(no_mangle)]
pub extern "C" fn belljar_prepare() {
    fork::rehearse();
    if huge::is_usual() {
        fill::fill();
        arenas::end();
        let mut ranges = Ranges::new();
        let (interpreter, library) = (PyOS_AfterFork_Child as *const (), __errno_location as *const ());
        text::constants(
            &mut ranges,
            &[interpreter, library, belljar_prepare as *const ()].map(|function| function as usize),
        );
        huge::replace(&ranges);
    }
}
