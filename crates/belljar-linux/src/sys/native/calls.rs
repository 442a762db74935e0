//! Lists of system calls: data on the way, and performed where they arrive.
//!
//! A list is one piece of memory: a head, fixes, calls, and what the calls point to. An address within it is written as an
//! offset from its start until the list is performed. Init performs lists in forks of its own, a zygote in its forks.

use super::syscall;

/// The most calls of one list.
pub const MOST: usize = 256;

/// How an argument is given.
pub const NUMBER: u8 = 0;
/// The index of a descriptor that came with the list.
pub const FD: u8 = 1;
/// The index of an earlier call, for what it returned.
pub const RESULT: u8 = 2;
/// An offset from the list's start, for the address there.
pub const MEMORY: u8 = 3;

/// Whether a call may fail.
pub const OPTIONAL: u8 = 1;
/// Whether it returns a descriptor to be sent back.
pub const SEND: u8 = 2;
/// Whether it must return `expect`.
pub const EXPECT: u8 = 4;

const EINVAL: i32 = 22;
const EPERM: i32 = 1;

#[derive(Clone, Copy)]
#[repr(C)]
pub struct Head {
    /// How many places hold the offset of something that must become its address.
    pub fixes: u32,
    /// All calls, the late ones at their end.
    pub calls: u32,
    /// How many calls are made only after the process has reported that it is ready.
    pub late: u32,
    pub unused: u32,
}

/// At `place`, eight bytes, the address of `target` is to stand; both are offsets.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Fix {
    pub place: u32,
    pub target: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct Call {
    pub number: i32,
    pub flags: u8,
    pub args: u8,
    pub kinds: [u8; 6],
    /// Where the bytes are that must stand in memory afterwards, where that is, and how many. None: no demand.
    pub left: u32,
    pub left_in: u32,
    pub left_size: u32,
    pub expect: i64,
    pub values: [i64; 6],
}

/// The call that failed, and how.
#[derive(Clone, Copy, Debug)]
pub struct Failed {
    pub call: usize,
    pub errno: i32,
}

/// Performs the calls of a list in order, but for the late ones. Returns the descriptor that is to be sent back, if there is one.
///
/// # Safety
/// The calls must be such that a process may make them in the memory of the list: the author of the list guarantees it.
pub unsafe fn perform(list: &mut [u8], fds: &[i32]) -> Result<Option<i32>, Failed> {
    let malformed = Failed {
        call: 0,
        errno: EINVAL,
    };
    let head: Head = get(list, 0).ok_or(malformed)?;
    let (fixes, calls) = (head.fixes as usize, head.calls as usize);
    if calls > MOST || fixes > MOST {
        return Err(malformed);
    }
    let start = list.as_mut_ptr();
    let mut at = size_of::<Head>();
    for _ in 0..fixes {
        let fix: Fix = get(list, at).ok_or(malformed)?;
        let (place, target) = (fix.place as usize, fix.target as usize);
        if target > list.len() {
            return Err(malformed);
        }
        let address = (start as u64 + target as u64).to_ne_bytes();
        list.get_mut(place..place.wrapping_add(8))
            .ok_or(malformed)?
            .copy_from_slice(&address);
        at += size_of::<Fix>();
    }
    let late = (head.late as usize).min(calls);
    // SAFETY: as the caller guarantees.
    unsafe { run(list, fds, 0, calls - late) }
}

/// Performs the late calls of a list that `perform` has performed.
///
/// # Safety
/// As for `perform`.
pub unsafe fn perform_late(list: &mut [u8], fds: &[i32]) -> Result<(), Failed> {
    let malformed = Failed {
        call: 0,
        errno: EINVAL,
    };
    let head: Head = get(list, 0).ok_or(malformed)?;
    let calls = head.calls as usize;
    if calls > MOST {
        return Err(malformed);
    }
    let late = (head.late as usize).min(calls);
    // SAFETY: as the caller guarantees.
    unsafe { run(list, fds, calls - late, calls) }.map(drop)
}

/// Performs the calls from `first` up to `end`.
///
/// # Safety
/// As for `perform`.
unsafe fn run(list: &mut [u8], fds: &[i32], first: usize, end: usize) -> Result<Option<i32>, Failed> {
    let malformed = Failed {
        call: first,
        errno: EINVAL,
    };
    let head: Head = get(list, 0).ok_or(malformed)?;
    let start = list.as_mut_ptr();
    let mut at = size_of::<Head>() + head.fixes as usize * size_of::<Fix>() + first * size_of::<Call>();
    let mut results = [0i64; MOST];
    let mut sent = None;
    for index in first..end {
        let failed = |errno| Failed { call: index, errno };
        let call: Call = get(list, at).ok_or(failed(EINVAL))?;
        at += size_of::<Call>();
        let mut args = [0i64; 6];
        if call.args as usize > args.len() {
            return Err(failed(EINVAL));
        }
        for position in 0..call.args as usize {
            let value = call.values[position];
            let slot = usize::try_from(value);
            args[position] = match call.kinds[position] {
                NUMBER => value,
                FD => i64::from(*slot.ok().and_then(|slot| fds.get(slot)).ok_or(failed(EINVAL))?),
                RESULT => *slot
                    .ok()
                    .filter(|slot| *slot < index)
                    .and_then(|slot| results.get(slot))
                    .ok_or(failed(EINVAL))?,
                MEMORY => {
                    let offset = slot
                        .ok()
                        .filter(|slot| *slot < list.len())
                        .ok_or(failed(EINVAL))?;
                    start as i64 + offset as i64
                }
                _ => return Err(failed(EINVAL)),
            };
        }
        // SAFETY: the caller answers for what the list does; addresses are of the list's own memory.
        let result = unsafe { syscall::call(i64::from(call.number), args) };
        let wrong = if result < 0 {
            Some(-result as i32)
        } else if (call.flags & EXPECT != 0 && result != call.expect)
            || !is_left(list, &call).ok_or(failed(EINVAL))?
        {
            Some(EPERM)
        } else {
            None
        };
        match wrong {
            Some(errno) if call.flags & OPTIONAL == 0 => return Err(failed(errno)),
            Some(_) => results[index] = -1,
            None => {
                results[index] = result;
                if call.flags & SEND != 0 {
                    sent = Some(result as i32);
                }
            }
        }
    }
    Ok(sent)
}

/// Whether there stands what the call was to leave.
fn is_left(list: &[u8], call: &Call) -> Option<bool> {
    let size = call.left_size as usize;
    let part = |at: u32| list.get(at as usize..(at as usize).wrapping_add(size));
    Some(part(call.left)? == part(call.left_in)?)
}

/// What any bytes of its size are a valid value of.
///
/// # Safety
/// It must be so.
unsafe trait Plain: Copy {}

// SAFETY: structs of integers.
unsafe impl Plain for Head {}
// SAFETY: structs of integers.
unsafe impl Plain for Fix {}
// SAFETY: structs of integers.
unsafe impl Plain for Call {}

/// A value that stands at an offset.
fn get<T: Plain>(list: &[u8], at: usize) -> Option<T> {
    let bytes = list.get(at..at.checked_add(size_of::<T>())?)?;
    // SAFETY: as many bytes as it has, and any are valid.
    Some(unsafe { core::ptr::read_unaligned(bytes.as_ptr().cast()) })
}
