//! What the first forks find out for the zygote, which has no `/proc`.
//!
//! A guest has one. So the first forks look at their memory, which is laid out as the zygote's is, before anything of a guest's runs
//! in them. That they share none of it with anybody they must see, else they end. And where it is written they tell the zygote, which
//! then puts that into huge pages.

use core::ffi::{c_char, c_void};

use super::huge::{self, Ranges};
use super::maps;
use super::syscall;

/// A pipe takes so much at once, or nothing.
const MOST_BYTES: usize = 4096;
/// Where memory begins and where it ends.
const RANGE_BYTES: usize = 16;

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// In a fork that shares no memory: says so, and which memory is written.
pub fn tell(pipe: i32) {
    let mut bytes = [0u8; MOST_BYTES];
    let mut count = 0u64;
    // The first says how many follow.
    let mut places = bytes.chunks_exact_mut(RANGE_BYTES).skip(1);
    maps::written(|start, end| {
        if let Some((first, second)) = places.next().and_then(|place| place.split_at_mut_checked(8)) {
            first.copy_from_slice(&start.to_le_bytes());
            second.copy_from_slice(&end.to_le_bytes());
            count += 1;
        }
    });
    if let Some(head) = bytes.first_chunk_mut() {
        *head = count.to_le_bytes();
    }
    let size = RANGE_BYTES * (1 + count as usize);
    syscall::write(pipe, bytes.get(..size).unwrap_or(&[]));
}

/// In the zygote: whether a fork has told that it shares no memory. Does with the rest what there is to do.
pub fn hear(pipe: i32) -> bool {
    let mut bytes = [0u8; MOST_BYTES];
    let Some(head) = read(pipe, &mut bytes, RANGE_BYTES) else {
        return false;
    };
    let (count, _) = words(head);
    let size = count.saturating_mul(RANGE_BYTES);
    if let Some(ranges) = read(pipe, &mut bytes, size)
        && is_alone()
    {
        let mut moved = Ranges::new();
        for range in ranges.chunks_exact(RANGE_BYTES) {
            let (start, end) = words(range);
            moved.add_written(start, end);
        }
        huge::replace(&moved);
    }
    true
}

/// Whether this process never had another thread. One might write to memory while we move it.
fn is_alone() -> bool {
    // SAFETY: the name is a text, and what it stands for is a byte.
    unsafe {
        let single = dlsym(core::ptr::null_mut(), c"__libc_single_threaded".as_ptr()).cast::<u8>();
        !single.is_null() && *single != 0
    }
}

/// Exactly so much.
fn read(pipe: i32, bytes: &mut [u8], size: usize) -> Option<&[u8]> {
    let bytes = bytes.get_mut(..size)?;
    (syscall::read(pipe, bytes) == size as i64).then_some(bytes)
}

fn words(range: &[u8]) -> (usize, usize) {
    let word = |bytes: Option<&[u8; 8]>| bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes) as usize);
    (word(range.first_chunk()), word(range.last_chunk()))
}
