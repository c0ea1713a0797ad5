//! Releases the memory of pages that are equal to the file's to the kernel.

use crate::signals::Blocked;
use spandrel_pages::PAGE_BYTES;

use super::{How, kernel, own};
use crate::vm;

/// See [`super::Written::give_back`].
///
/// # Safety
/// As there.
pub unsafe fn give(
    how: &How,
    at: usize,
    len: usize,
    mut is_equal: impl FnMut(usize) -> bool,
) -> usize {
    // A signal handler could store to a page between the comparison and the release.
    let _signals = Blocked::all();
    let mut bytes = 0;
    let mut drop_run = |from: usize, len: usize| {
        // SAFETY: the pages are equal to the file's, and neither another thread nor a signal handler stores to them meanwhile.
        if len > 0 && unsafe { vm::discard(from as *mut u8, len) } {
            bytes += len;
        }
    };
    // Pages that the kernel does not list are not released.
    let _ = match how {
        How::Kernel { pagemap, .. } => kernel::clean(pagemap, at, len, drop_run),
        How::Own { pagemap: None } => Ok(()),
        How::Own { pagemap } => own::pages(pagemap.as_ref(), at, len, |from, len| {
            let mut begun = from;
            for page in (from..from + len).step_by(PAGE_BYTES) {
                if !is_equal(page - at) {
                    drop_run(begun, page - begun);
                    begun = page + PAGE_BYTES;
                }
            }
            drop_run(begun, (from + len).saturating_sub(begun));
        }),
    };
    bytes
}
