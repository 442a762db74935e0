//! Returns freed memory to the system.

/// Asks the allocator to return the pages that it holds and nobody uses. glibc keeps what was freed below something that is still in
/// use, in every arena, for as long as the process lives; other C libraries return it by themselves.
pub fn release_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes no pointer, locks every arena it looks at, and touches only memory that has been freed.
    unsafe {
        libc::malloc_trim(0);
    }
}
