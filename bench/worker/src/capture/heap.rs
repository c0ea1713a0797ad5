//! The C library's heap.

use std::ops::Range;
use std::ptr;

/// Of `mallopt` (glibc's `malloc.h`).
const M_TRIM_THRESHOLD: i32 = -1;
/// Bytes of an object that `brk` gives.
const PIECE: usize = 64 << 10;

/// Where it is, with `bytes` free bytes at its end, which stay there.
///
/// # Errors
/// The system has no memory, or does not say where the heap is.
pub fn with_room(bytes: usize) -> Result<Range<usize>, String> {
    // SAFETY: a setting of the allocator, and objects that nothing else has.
    unsafe {
        libc::mallopt(M_TRIM_THRESHOLD, i32::MAX);
        let pieces: Vec<_> = (0..bytes.div_ceil(PIECE)).map(|_| libc::malloc(PIECE)).collect();
        let is_full = pieces.contains(&ptr::null_mut());
        pieces.into_iter().for_each(|piece| libc::free(piece));
        if is_full {
            return Err(format!("no {bytes} bytes"));
        }
    }
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(|why| why.to_string())?;
    let line = maps.lines().find(|line| line.ends_with("[heap]"));
    let range = line.and_then(|line| line.split(' ').next()?.split_once('-'));
    let number = |text| usize::from_str_radix(text, 16).ok();
    let range = range.and_then(|(from, to)| Some(number(from)?..number(to)?));
    range.ok_or_else(|| "the process has no heap".into())
}
