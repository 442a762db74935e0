//! What a compiler takes for granted of memory, and pieces of it.

use core::arch::asm;
use core::cell::UnsafeCell;

/// Memory of which nothing is touched but what is used.
#[repr(align(16))]
pub struct Buffer<const N: usize>(UnsafeCell<[u8; N]>);

// SAFETY: whoever takes it answers for being alone.
unsafe impl<const N: usize> Sync for Buffer<N> {}

impl<const N: usize> Buffer<N> {
    pub const fn new() -> Self {
        Self(UnsafeCell::new([0; N]))
    }

    /// # Safety
    /// There must be no other user of it.
    #[expect(clippy::mut_from_ref, reason = "it is what the caller promises")]
    pub unsafe fn get(&self) -> &mut [u8; N] {
        // SAFETY: the caller has it alone.
        unsafe { &mut *self.0.get() }
    }
}

/// Bytes that wait, in the order in which they came.
pub struct Queue {
    memory: &'static mut [u8],
    first: usize,
    end: usize,
}

impl Queue {
    pub const fn new(memory: &'static mut [u8]) -> Self {
        Self {
            memory,
            first: 0,
            end: 0,
        }
    }

    pub fn bytes(&self) -> &[u8] {
        self.memory.get(self.first..self.end).unwrap_or(&[])
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.memory.get_mut(self.first..self.end).unwrap_or(&mut [])
    }

    pub const fn is_empty(&self) -> bool {
        self.first == self.end
    }

    pub const fn room(&self) -> usize {
        self.memory.len() - (self.end - self.first)
    }

    pub fn clear(&mut self) {
        (self.first, self.end) = (0, 0);
    }

    /// The room behind what waits, all of it in one piece.
    pub fn free(&mut self) -> &mut [u8] {
        if self.first > 0 {
            self.memory.copy_within(self.first..self.end, 0);
            (self.first, self.end) = (0, self.end - self.first);
        }
        self.memory.get_mut(self.end..).unwrap_or(&mut [])
    }

    /// So many bytes were written to the room.
    pub fn grow(&mut self, count: usize) {
        self.end = (self.end + count).min(self.memory.len());
    }

    /// So many bytes need not wait any longer.
    pub fn take(&mut self, count: usize) {
        self.first = (self.first + count).min(self.end);
        if self.first == self.end {
            self.clear();
        }
    }

    /// Whether it fitted.
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        match self.free().get_mut(..bytes.len()) {
            Some(place) => {
                place.copy_from_slice(bytes);
                self.grow(bytes.len());
                true
            }
            None => false,
        }
    }
}

/// Copies forwards.
///
/// # Safety
/// Both must have `count` bytes; where they overlap, `to` must be the lower one.
unsafe fn forwards(to: *mut u8, from: *const u8, count: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller answers for both; the direction flag is clear as the ABI has it.
    unsafe {
        asm!("rep movsb", inout("rcx") count => _, inout("rdi") to => _, inout("rsi") from => _,
            options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        asm!("cbz {n}, 3f", "2:", "ldrb {b:w}, [{s}], #1", "strb {b:w}, [{d}], #1", "subs {n}, {n}, #1", "b.ne 2b", "3:",
            n = inout(reg) count => _, s = inout(reg) from => _, d = inout(reg) to => _, b = out(reg) _,
            options(nostack));
    }
}

/// # Safety
/// As C has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    // SAFETY: the caller answers for both, which do not overlap.
    unsafe { forwards(to, from, count) };
    to
}

/// # Safety
/// As C has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    if (to as usize) <= from as usize || (to as usize) >= from as usize + count {
        // SAFETY: the caller answers for both, and what is written was read before.
        unsafe { forwards(to, from, count) };
    } else {
        let mut left = count;
        while left > 0 {
            left -= 1;
            // SAFETY: below `count`. Volatile, or this loop would become a call of this function.
            unsafe { to.add(left).write_volatile(from.add(left).read_volatile()) };
        }
    }
    to
}

/// # Safety
/// As C has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memset(to: *mut u8, byte: i32, count: usize) -> *mut u8 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller answers for it.
    unsafe {
        asm!("rep stosb", inout("rcx") count => _, inout("rdi") to => _, in("al") byte as u8,
            options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    for at in 0..count {
        // SAFETY: below `count`. Volatile, or this loop would become a call of this function.
        unsafe { to.add(at).write_volatile(byte as u8) };
    }
    to
}

/// # Safety
/// As C has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcmp(one: *const u8, other: *const u8, count: usize) -> i32 {
    for at in 0..count {
        // SAFETY: below `count`. Volatile, or this loop would become a call of this function.
        let (a, b) = unsafe { (one.add(at).read_volatile(), other.add(at).read_volatile()) };
        if a != b {
            return i32::from(a) - i32::from(b);
        }
    }
    0
}

/// # Safety
/// As C has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bcmp(one: *const u8, other: *const u8, count: usize) -> i32 {
    // SAFETY: the same.
    unsafe { memcmp(one, other, count) }
}

/// # Safety
/// As C has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strlen(text: *const u8) -> usize {
    let mut size = 0;
    // SAFETY: there is a NUL. Volatile, or this loop would become a call of this function.
    while unsafe { text.add(size).read_volatile() } != 0 {
        size += 1;
    }
    size
}
