//! Memory in huge pages.
//!
//! A fork copies its parent's page tables, entry by entry, and at its end gives back what each of them holds. Of a huge page that
//! takes one entry instead of five hundred.

use super::syscall::{self, check, number};

pub const PAGE: usize = 4096;
pub const HUGE: usize = 2 << 20;
/// Less than this is not moved, and no more than that in all: those who were forked before keep what it was.
const WORTH_WHILE: usize = 64 << 10;
const MOST_WRITTEN: usize = 128 << 20;

const READ_WRITE: i64 = 3;
const PRIVATE_ANONYMOUS: i64 = 0x22;

unsafe extern "C" {
    fn getpagesize() -> i32;
    fn __errno_location() -> *mut i32;
}

/// Whether pages have the size that all of this is made for.
pub fn is_usual() -> bool {
    // SAFETY: it only says how large they are.
    unsafe { getpagesize() as usize == PAGE }
}

/// New memory in huge pages.
pub fn take(size: usize) -> Result<usize, i32> {
    const WANT_HUGE: i64 = 14;
    let room = size + HUGE;
    let args = [0, room as i64, READ_WRITE, PRIVATE_ANONYMOUS, -1, 0];
    // SAFETY: new memory, wherever there is room.
    let memory = check(unsafe { syscall::call(number::MMAP, args) })? as usize;
    let start = memory.next_multiple_of(HUGE);
    unmap(memory, start);
    unmap(start + size, memory + room);
    syscall::plain(number::MADVISE, [start as i64, size as i64, WANT_HUGE]);
    Ok(start)
}

/// Lets it be as it is. Else the kernel would gather the small pages of forks into huge ones, one by one.
pub fn settle(start: usize, size: usize) {
    const NOT_HUGE: i64 = 15;
    syscall::plain(number::MADVISE, [start as i64, size as i64, NOT_HUGE]);
}

pub fn unmap(from: usize, to: usize) {
    if from < to {
        // SAFETY: the callers give what is theirs and what nobody uses any more.
        unsafe { syscall::call(number::MUNMAP, [from as i64, (to - from) as i64, 0, 0, 0, 0]) };
    }
}

/// Memory that is to be moved.
#[derive(Clone, Copy)]
pub struct Range {
    pub start: usize,
    pub end: usize,
    /// What it may be used for then.
    pub rights: Rights,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Rights {
    /// Constants too: they share pages with code. A guest can make executable what it likes anyway.
    ReadExecute = 5,
    ReadWrite = 3,
}

/// A few ranges; those for which there is no place stay where they are.
pub struct Ranges {
    list: [Range; 256],
    count: usize,
}

impl Ranges {
    pub const fn new() -> Self {
        let none = Range {
            start: 0,
            end: 0,
            rights: Rights::ReadWrite,
        };
        Self {
            list: [none; 256],
            count: 0,
        }
    }

    pub fn add(&mut self, range: Range) {
        if let Some(place) = self.list.get_mut(self.count) {
            *place = range;
            self.count += 1;
        }
    }

    /// Adds memory that is written now and then, if that is worth while.
    pub fn add_written(&mut self, start: usize, end: usize) {
        // SAFETY: it only says where that is.
        let of_thread = unsafe { __errno_location() } as usize;
        let written = self
            .list()
            .iter()
            .map(|range| range.end - range.start)
            .sum::<usize>();
        // What the kernel itself writes to while we run is of the thread.
        if end - start >= WORTH_WHILE
            && written + (end - start) <= MOST_WRITTEN
            && !(start..end).contains(&of_thread)
        {
            let rights = Rights::ReadWrite;
            self.add(Range { start, end, rights });
        }
    }

    fn list(&self) -> &[Range] {
        self.list.get(..self.count).unwrap_or(&[])
    }
}

/// Replaces memory by a copy of it that comes from huge pages. Where the kernel does not let us, it stays as it is.
///
/// At its place most of it is not mapped as huge pages, since it does not begin where one does. But the kernel passes on many neighbours
/// out of one huge page at a time.
pub fn replace(ranges: &Ranges) {
    // Where each would be, if the first began at a boundary.
    let places = || {
        ranges.list().iter().scan(0usize, |next, range| {
            let size = range.end - range.start;
            let whole = range.start.next_multiple_of(HUGE) + HUGE <= range.end;
            // What has huge pages of its own, and is not written, keeps them.
            let place = if whole && range.rights == Rights::ReadExecute {
                *next + (range.start.wrapping_sub(*next) & (HUGE - 1))
            } else {
                *next
            };
            *next = place + size;
            Some((*range, place))
        })
    };
    let size = places()
        .last()
        .map_or(0, |(range, place)| place + range.end - range.start);
    let size = size.next_multiple_of(HUGE);
    if size == 0 {
        return;
    }
    let Ok(copy) = take(size) else {
        return;
    };
    let blocked = syscall::block_signals(u64::MAX);
    // What is not moved goes, and nothing else: another thread may have been given a place from which something was moved.
    let mut end = copy;
    for (range, place) in places() {
        let (place, size) = (copy + place, range.end - range.start);
        unmap(end, place);
        end = place + size;
        if !move_to(place, range) {
            unmap(place, end);
        }
    }
    unmap(end, copy + size);
    syscall::block_signals(blocked);
}

/// Puts a copy at `copy` in the place of that memory. Whether it did.
fn move_to(copy: usize, range: Range) -> bool {
    const MOVE_TO: i64 = 3;
    let size = range.end - range.start;
    if !is_mapped(range.start, size) {
        return false;
    }
    // SAFETY: the first is mapped and can be read, the second is memory of our own of the same size. What takes the place of the
    // first holds the same bytes and can be used in the same ways, from one instruction to the next; and nobody
    // writes to it meanwhile, as the one thread is here.
    unsafe {
        core::ptr::copy_nonoverlapping(range.start as *const u8, copy as *mut u8, size);
        settle(copy, size);
        let rights = range.rights as i64;
        let allowed = syscall::call(number::MPROTECT, [copy as i64, size as i64, rights, 0, 0, 0]);
        let args = [
            copy as i64,
            size as i64,
            size as i64,
            MOVE_TO,
            range.start as i64,
            0,
        ];
        allowed == 0 && syscall::call(number::MREMAP, args) == range.start as i64
    }
}

/// Whether there is memory in all of that range.
fn is_mapped(start: usize, size: usize) -> bool {
    // It has nothing to write back here, and says so of what is not there.
    const ASYNC: i64 = 1;
    syscall::plain(number::MSYNC, [start as i64, size as i64, ASYNC]) == 0
}
