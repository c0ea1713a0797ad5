//! The pages that were written, compared with an older copy: for code that notes nothing.
//!
//! The kernel names the written pages (`spandrel_os::written`); a comparison finds the blocks of each that differ. A first write to a page
//! costs a fault, and each named page the reading of 8 KiB. So this way is for the programs that the other ways cannot serve, and the
//! measure of these.
//!
//! Invariants:
//! - Pages are named in order of address. So after an error the pages behind the last named one are compared, all of them.
//! - The copy is the region as of the last batch's end: a block is named if and only if it differs from what the log has.
//! - Memory that other threads may write is read in whole words, each once.

use spandrel_os::written::{Names, Written};
use spandrel_pages::PAGE_BYTES;

use crate::captured::name;
use crate::ranges::Run;
use crate::{Capture, Refused, Statistics};

const WORD_BYTES: usize = size_of::<u64>();

/// A page's bytes, aligned so that words can be compared.
#[repr(align(64))]
struct Page([u8; PAGE_BYTES]);

/// The older copy of a region.
pub trait Older {
    /// Fills in the page at an address of the region as the last batch left it, with all runs that were named so far. Older it must not be: a block that one
    /// batch changes and the next one changes back would be equal to the copy, and the second write would be lost.
    fn page(&mut self, at: *const u8, into: &mut [u8; PAGE_BYTES]);
}

impl<F: FnMut(*const u8, &mut [u8; PAGE_BYTES])> Older for F {
    fn page(&mut self, at: *const u8, into: &mut [u8; PAGE_BYTES]) {
        self(at, into);
    }
}

/// A capture of writes to one region that needs no notes. It names the blocks that differ from an older copy.
pub struct DirtyPages<F> {
    written: Written,
    at: usize,
    bytes: usize,
    shift: u32,
    older: F,
    blocks: u64,
}

impl<F: Older> DirtyPages<F> {
    /// A capture of writes to `bytes` bytes at `at`, in blocks of `block_bytes` bytes: 16, 32, 64 or 128.
    ///
    /// # Errors
    /// [`Refused::Size`].
    ///
    /// # Safety
    /// `written` watches this range of whole pages. The range is readable as long as the value lives. `older` does not change it.
    pub unsafe fn new(
        written: Written,
        at: *const u8,
        bytes: usize,
        block_bytes: usize,
        older: F,
    ) -> Result<Self, Refused> {
        let at = at as usize;
        let is_valid = matches!(block_bytes, 16 | 32 | 64 | 128)
            && at.is_multiple_of(PAGE_BYTES)
            && bytes.is_multiple_of(PAGE_BYTES)
            && at.checked_add(bytes).is_some();
        if !is_valid {
            return Err(Refused::Size);
        }
        let shift = block_bytes.trailing_zeros();
        Ok(Self { written, at, bytes, shift, older, blocks: 0 })
    }

    /// The range has `bytes` bytes from now on, if these are fewer than before. It is whole pages.
    pub fn shorten(&mut self, bytes: usize) {
        self.bytes = self.bytes.min(bytes);
        self.written.shorten(self.bytes);
    }

    /// What the kernel names.
    pub fn names(&self) -> Names {
        self.written.names()
    }

    /// The older copy.
    pub fn older(&self) -> &F {
        &self.older
    }

    /// The same, to change it.
    pub fn older_mut(&mut self) -> &mut F {
        &mut self.older
    }

    /// The range has `bytes` bytes from now on.
    ///
    /// # Errors
    /// [`Refused::Size`]: this is no number of whole pages, or fewer than before. [`Refused::Memory`]: the kernel does not watch the new
    /// pages; the range stays as it was.
    ///
    /// # Safety
    /// As for [`Written::extend`]; the new pages are readable as long as the value lives.
    pub unsafe fn extend(&mut self, bytes: usize) -> Result<(), Refused> {
        let end = self.at.checked_add(bytes);
        if bytes < self.bytes || !bytes.is_multiple_of(PAGE_BYTES) || end.is_none() {
            return Err(Refused::Size);
        }
        // SAFETY: passed on from the caller; the exclusive reference makes this the only thread.
        unsafe { self.written.extend(bytes) }.map_err(|_| Refused::Memory)?;
        self.bytes = bytes;
        Ok(())
    }
}

impl<F: Older> Capture for DirtyPages<F> {
    /// Does nothing: writes between two batches differ from the copy as well, and count for the second one.
    fn begin(&mut self) {}

    /// Does nothing: a noted page is a written one.
    fn note(&mut self, _: *const u8, _: usize) {}

    fn end(&mut self, see: &mut dyn FnMut(*const u8, usize)) {
        let Self { written, at, bytes, shift, older, blocks } = self;
        let mut copy = Page([0; PAGE_BYTES]);
        let (at, end, mut open) = (*at, *at + *bytes, None::<Run>);
        let mut compare = |page: usize| {
            let from = core::ptr::with_exposed_provenance::<u64>(page);
            older.page(from.cast(), &mut copy.0);
            let mut differs = |block: usize| {
                *blocks += 1;
                let start = page + (block << *shift);
                let run = Run { start, last: start }.widened(*shift);
                match &mut open {
                    Some(before) if before.touches(run) => *before = before.joined(run),
                    _ => {
                        if let Some(before) = open.replace(run) {
                            name(before, &mut *see);
                        }
                    }
                }
            };
            // SAFETY: a page of the range, which is readable, as the constructor's caller promises.
            unsafe { differing(from, &copy.0, *shift, &mut differs) };
        };
        let mut next = at;
        let taken = written.take(|from, len| {
            let to = (at + from).saturating_add(len).min(end);
            (at + from..to).step_by(PAGE_BYTES).for_each(&mut compare);
            next = to;
        });
        if taken.is_err() {
            (next..end).step_by(PAGE_BYTES).for_each(&mut compare);
        }
        if let Some(run) = open {
            name(run, see);
        }
    }

    fn statistics(&self) -> Statistics {
        Statistics { blocks: self.blocks, ..Statistics::default() }
    }
}

/// Calls `see` with the number of each block, of `1 << shift` bytes, of the page at `from` that differs from the copy. Other threads may store there meanwhile.
///
/// # Safety
/// The page is readable.
#[inline]
pub unsafe fn differing(
    from: *const u64,
    copy: &[u8; PAGE_BYTES],
    shift: u32,
    mut see: impl FnMut(usize),
) {
    for (block, copied) in copy.chunks_exact(1 << shift).enumerate() {
        let mut different = 0;
        for (number, word) in copied.chunks_exact(WORD_BYTES).enumerate() {
            let word = word.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
            let at = from.wrapping_add((block << shift) / WORD_BYTES + number);
            // SAFETY: a word of the page, which is readable, as the caller promises. Volatile: another thread may write it.
            different |= word ^ unsafe { at.read_volatile() };
        }
        if different != 0 {
            see(block);
        }
    }
}
