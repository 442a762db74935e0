//! Code and constants, to be moved into memory of the zygote's own.
//!
//! A fork is given its parent's page tables for memory, but not for mapped files: those it looks up again, page by page, each time
//! that it first comes by. Of what is memory, nothing is looked up again. So what is read-only in the few libraries where nearly
//! all of that happens is copied and put in the place of the file's pages, at the same addresses.

use core::ffi::c_void;

use super::huge::{PAGE, Range, Ranges, Rights};

const LOADED: u32 = 1;
const WRITABLE: u32 = 2;

/// What `dl_iterate_phdr` says of a library: its base, its name, its segments.
#[repr(C)]
struct Library {
    base: usize,
    name: *const u8,
    segments: *const Segment,
    count: u16,
}

#[repr(C)]
struct Segment {
    kind: u32,
    flags: u32,
    offset: usize,
    address: usize,
    physical: usize,
    file_size: usize,
    size: usize,
    alignment: usize,
}

unsafe extern "C" {
    fn dl_iterate_phdr(
        callback: extern "C" fn(*const Library, usize, *mut c_void) -> i32,
        data: *mut c_void,
    ) -> i32;
}

/// Names code and constants of the libraries that contain one of these addresses.
pub fn constants(ranges: &mut Ranges, known: &[usize]) {
    let mut wanted = Wanted { ranges, known };
    // SAFETY: the callback keeps nothing of what it is shown, and is given what it expects.
    unsafe { dl_iterate_phdr(of_library, (&raw mut wanted).cast()) };
}

struct Wanted<'a> {
    ranges: &'a mut Ranges,
    known: &'a [usize],
}

extern "C" fn of_library(library: *const Library, _: usize, wanted: *mut c_void) -> i32 {
    // SAFETY: the loader shows a library and its segments for as long as this call lasts, and passes on what it was given.
    let (base, segments, wanted) = unsafe {
        let library = &*library;
        if library.segments.is_null() {
            return 0;
        }
        let segments = core::slice::from_raw_parts(library.segments, usize::from(library.count));
        (library.base, segments, &mut *wanted.cast::<Wanted<'_>>())
    };
    let constant = segments
        .iter()
        .filter(|segment| segment.kind == LOADED && segment.flags & WRITABLE == 0)
        .map(|segment| {
            let start = (base + segment.address) & !(PAGE - 1);
            (
                start,
                (base + segment.address + segment.size).next_multiple_of(PAGE),
            )
        });
    let is_known =
        |(start, end): (usize, usize)| wanted.known.iter().any(|known| (start..end).contains(known));
    if constant.clone().any(is_known) {
        // Neighbours together: large enough, they are a few huge pages instead of many small ones.
        let mut range = (0, 0);
        for (start, end) in constant.chain([(usize::MAX, usize::MAX)]) {
            if start == range.1 {
                range.1 = end;
                continue;
            }
            if range.0 < range.1 {
                wanted.ranges.add(Range {
                    start: range.0,
                    end: range.1,
                    rights: Rights::ReadExecute,
                });
            }
            range = (start, end);
        }
    }
    0
}
