//! Memory for the interpreter in huge pages, for as long as it is the zygote.
//!
//! A fork copies its parent's page tables, entry by entry, and at its end gives back what each of them holds. Most of the
//! interpreter's memory is never written by a fork, and of a huge page that takes one entry instead of five hundred.

use core::ffi::c_void;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::syscall::{self, check, number};

pub const PAGE: usize = 4096;
const HUGE: usize = 2 << 20;
/// How much is taken from the kernel at a time.
const CHUNK: usize = 4 * HUGE;

const READ_WRITE: i64 = 3;
const PRIVATE_ANONYMOUS: i64 = 0x22;

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
    fn getpagesize() -> i32;
    fn PyObject_GetArenaAllocator(allocator: *mut Allocator);
    fn PyObject_SetArenaAllocator(allocator: *const Allocator);
}

/// Whether pages have the size that all of this is made for.
pub fn is_usual() -> bool {
    // SAFETY: it only says how large they are.
    unsafe { getpagesize() as usize == PAGE }
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
        settle(chunk.load(Ordering::Relaxed), CHUNK);
    }
    // Within a huge page it stays: the kernel would have to take that apart.
    let next = NEXT.load(Ordering::Relaxed).next_multiple_of(HUGE);
    unmap(next, END.load(Ordering::Relaxed));
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
        && let Ok(start) = huge(CHUNK, 0)
    {
        unmap(next, end);
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
    unmap(start as usize, start as usize + size);
}

/// New memory for huge pages, as far from the boundary of one as `like`.
fn huge(size: usize, like: usize) -> Result<usize, i32> {
    const WANT_HUGE: i64 = 14;
    let room = size + HUGE;
    let args = [0, room as i64, READ_WRITE, PRIVATE_ANONYMOUS, -1, 0];
    // SAFETY: new memory, wherever there is room.
    let memory = check(unsafe { syscall::call(number::MMAP, args) })? as usize;
    let start = memory + (like.wrapping_sub(memory) & (HUGE - 1));
    unmap(memory, start);
    unmap(start + size, memory + room);
    syscall::plain(number::MADVISE, [start as i64, size as i64, WANT_HUGE]);
    Ok(start)
}

/// Lets it be as it is. Else the kernel would gather the small pages of forks into huge ones, one by one.
fn settle(start: usize, size: usize) {
    const NOT_HUGE: i64 = 15;
    syscall::plain(number::MADVISE, [start as i64, size as i64, NOT_HUGE]);
}

fn unmap(from: usize, to: usize) {
    if from < to {
        // SAFETY: the callers give what is theirs and what nobody uses any more.
        unsafe { syscall::call(number::MUNMAP, [from as i64, (to - from) as i64, 0, 0, 0, 0]) };
    }
}

/// Replaces code and constants by a copy of them in huge pages.
pub fn replace(start: usize, size: usize) -> Result<(), i32> {
    const MOVE_TO: i64 = 3;
    // For constants too: they share huge pages with the code. A guest can make executable what it likes anyway.
    const READ_EXECUTE: i64 = 5;
    let copy = huge(size, start)?;
    // SAFETY: the first is mapped and can be read, the second is memory of our own of the same size. What takes the place of the
    // first holds the same bytes and can be used in the same ways, from one instruction to the next.
    let moved = unsafe {
        core::ptr::copy_nonoverlapping(start as *const u8, copy as *mut u8, size);
        settle(copy, size);
        check(syscall::call(
            number::MPROTECT,
            [copy as i64, size as i64, READ_EXECUTE, 0, 0, 0],
        ))
        .and_then(|_| {
            let args = [copy as i64, size as i64, size as i64, MOVE_TO, start as i64, 0];
            check(syscall::call(number::MREMAP, args))
        })
    };
    if moved.is_err() {
        unmap(copy, copy + size);
    }
    moved.map(drop)
}
