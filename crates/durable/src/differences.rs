//! Where memory differs from the state's file: what was stored and was not noted.

use core::ops::Range;

use spandrel_capture::differing;
use spandrel_pages::PAGE_BYTES;
use spandrel_pmem::disk::{Disk, Which};
use spandrel_pmem::{Failed, Medium};

use crate::store::{Files, Memory};

/// Blocks are compared of this many bytes, as a power of two: a log's record has the differing ones.
const SHIFT: u32 = 5;
/// Pages that are read from the file at a time.
const PIECE_PAGES: usize = 16;

/// A piece of the file, aligned so that words can be compared.
#[repr(align(64))]
struct Piece([[u8; PAGE_BYTES]; PIECE_PAGES]);

/// Calls `see` with the offset and the length of each block of these pages of the state, as offsets, that differs from the file's. What lies behind the file's end is zero there.
///
/// # Errors
/// The disk's.
///
/// # Safety
/// The open bytes of the memory that are in the range, which is whole pages, are readable.
pub unsafe fn each(
    files: &Files,
    base: *const u8,
    pages: Range<usize>,
    see: &mut dyn FnMut(usize, usize),
) -> Result<(), Failed> {
    let mut piece = Piece([[0; PAGE_BYTES]; PIECE_PAGES]);
    for from in pages.clone().step_by(PIECE_PAGES * PAGE_BYTES) {
        let count = (pages.end - from).div_ceil(PAGE_BYTES).min(PIECE_PAGES);
        let all = piece.0.get_mut(..count).unwrap_or(&mut []);
        let bytes = all.as_flattened_mut();
        let read = files.read(Which::Image, from as u64, bytes)?;
        bytes.get_mut(read..).unwrap_or(&mut []).fill(0);
        for (number, page) in all.iter().enumerate() {
            let at = from + number * PAGE_BYTES;
            // SAFETY: promised by the caller.
            unsafe {
                differing(base.wrapping_add(at).cast(), page, SHIFT, |block| {
                    see(at + (block << SHIFT), 1 << SHIFT);
                });
            }
        }
    }
    Ok(())
}

/// The open bytes of a state that lie in a range of addresses, as offsets of whole pages.
pub fn within(memory: &Memory, at: usize, bytes: usize) -> Range<usize> {
    let (base, open) = (memory.base().as_ptr() as usize, memory.bytes());
    let from = at.saturating_sub(base).min(open) / PAGE_BYTES * PAGE_BYTES;
    from..at.saturating_add(bytes).saturating_sub(base).min(open)
}
