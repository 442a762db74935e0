//! Memory for the interpreter's objects in huge pages, for as long as it is the zygote. Most of it is never written by a fork.

use core::ffi::c_void;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::huge::{self, HUGE};

/// How much is taken from the kernel at a time.
const CHUNK: usize = 4 * HUGE;

/// Of the chunk in use: where it goes on, and where it ends.
static NEXT: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);
/// Where the chunks are, and how many; beyond so many the pages are small.
static CHUNKS: [AtomicUsize; 256] = [const { AtomicUsize::new(0) }; 256];
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// What gave the interpreter memory before, for its forks.
static mut BEFORE: Allocator = Allocator {
    context: core::ptr::null_mut(),
    allocate: None,
    free: None,
};

/// The interpreter's own struct: who gives it large pieces of memory for its objects.
#[derive(Clone, Copy)]
#[repr(C)]
struct Allocator {
    context: *mut c_void,
    allocate: Option<unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void>,
    free: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, usize)>,
}

unsafe extern "C" {
    fn PyObject_GetArenaAllocator(allocator: *mut Allocator);
    fn PyObject_SetArenaAllocator(allocator: *const Allocator);
}

/// From here on the interpreter's objects are in huge pages.
pub fn begin() {
    let ours = Allocator {
        context: core::ptr::null_mut(),
        allocate: Some(allocate),
        free: Some(free),
    };
    // SAFETY: the structs are the interpreter's own, the functions keep its contract, and it has one thread.
    unsafe {
        PyObject_GetArenaAllocator(&raw mut BEFORE);
        PyObject_SetArenaAllocator(&raw const ours);
    }
}

/// What comes now is a fork's: small pages, as ever. What is left of the last chunk goes.
pub fn end() {
    // SAFETY: as in `begin`.
    unsafe { PyObject_SetArenaAllocator(&raw const BEFORE) };
    for chunk in CHUNKS.iter().take(COUNT.load(Ordering::Relaxed)) {
        huge::settle(chunk.load(Ordering::Relaxed), CHUNK);
    }
    // Within a huge page it stays: the kernel would have to take that apart.
    let next = NEXT.load(Ordering::Relaxed).next_multiple_of(HUGE);
    huge::unmap(next, END.load(Ordering::Relaxed));
}

extern "C" fn allocate(_: *mut c_void, size: usize) -> *mut c_void {
    let (next, end) = (NEXT.load(Ordering::Relaxed), END.load(Ordering::Relaxed));
    if size <= end - next {
        NEXT.store(next + size, Ordering::Relaxed);
        return next as *mut c_void;
    }
    let count = COUNT.load(Ordering::Relaxed);
    if let Some(place) = CHUNKS.get(count)
        && size <= CHUNK
        && let Ok(start) = huge::take(CHUNK)
    {
        huge::unmap(next, end);
        place.store(start, Ordering::Relaxed);
        COUNT.store(count + 1, Ordering::Relaxed);
        NEXT.store(start + size, Ordering::Relaxed);
        END.store(start + CHUNK, Ordering::Relaxed);
        return start as *mut c_void;
    }
    // SAFETY: what the interpreter had for it.
    unsafe {
        BEFORE
            .allocate
            .map_or(core::ptr::null_mut(), |before| before(BEFORE.context, size))
    }
}

extern "C" fn free(_: *mut c_void, start: *mut c_void, size: usize) {
    huge::unmap(start as usize, start as usize + size);
}
