//! Filling up the gaps in the zygote's memory, before it forks.
//!
//! What a fork allocates would be put into those gaps, all over the place, and each page so touched is a page to copy. With no gaps
//! left, new things lie side by side in pages that nobody has used yet.

use core::ffi::c_void;

/// What the interpreter gives out itself, in pools; larger things come from the C library.
const LARGEST_OBJECT: usize = 512;
const GRAIN: usize = 16;
/// The interpreter's pools, since 3.10. At the start of each is a head.
const POOL: usize = 16 << 10;
const HEAD: usize = 48;
/// What of the C library's is filled; it asks the kernel for what is larger.
const LARGEST: usize = 96 << 10;
/// So much at the most goes into gaps.
const MOST_BYTES: usize = 16 << 20;

unsafe extern "C" {
    fn PyObject_Malloc(size: usize) -> *mut c_void;
    fn PyObject_Free(object: *mut c_void);
    fn malloc(size: usize) -> *mut c_void;
    fn free(memory: *mut c_void);
    fn sbrk(more: isize) -> *mut c_void;
}

/// Who gives out memory.
#[derive(Clone, Copy)]
struct Source {
    take: unsafe extern "C" fn(usize) -> *mut c_void,
    give_back: unsafe extern "C" fn(*mut c_void),
}

const INTERPRETER: Source = Source {
    take: PyObject_Malloc,
    give_back: PyObject_Free,
};
const LIBRARY: Source = Source {
    take: malloc,
    give_back: free,
};

pub fn fill() {
    let mut left = MOST_BYTES;
    for size in (GRAIN..=LARGEST_OBJECT).step_by(GRAIN) {
        INTERPRETER.fill(size, &mut left, |object| object % POOL == HEAD);
    }
    // Where the C library's memory ends now.
    // SAFETY: it changes nothing.
    let end = unsafe { sbrk(0) } as usize;
    let mut size = LARGEST;
    while size >= GRAIN {
        LIBRARY.fill(size, &mut left, |memory| memory >= end);
        size -= if size > 2048 {
            size / 8 / GRAIN * GRAIN
        } else {
            GRAIN
        };
    }
}

impl Source {
    /// Takes one piece after the other until one is not in a gap. That one it gives back.
    fn fill(self, size: usize, left: &mut usize, is_new: impl Fn(usize) -> bool) {
        while *left >= size {
            *left -= size;
            // SAFETY: what was given out is given back, or never.
            unsafe {
                let taken = (self.take)(size);
                if taken.is_null() {
                    return;
                }
                if is_new(taken as usize) {
                    return (self.give_back)(taken);
                }
            }
        }
    }
}
