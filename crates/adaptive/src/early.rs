//! New objects that are expected to grow.
//!
//! `remap` learns which these are. As long as nobody expects any the table has new
//! objects served without a look; when somebody does it has those of a page or more
//! looked at one by one, until looks have been for nothing too often.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use spandrel_backends::remap;
use spandrel_pages::PAGE_BYTES;

use crate::modes;

/// Looks that may be for nothing until the next object that is copied because it grew.
/// Beginning and ending to look writes to what every request reads: seldom.
const MOST_IDLE_LOOKS: u32 = 64;

/// Looks for nothing. Lost counts do not matter.
static IDLE_LOOKS: AtomicU32 = AtomicU32::new(0);

/// Notes that an object which had `usable` bytes was copied to a slot because it grew.
pub(crate) fn note_late(usable: usize) {
    if usable >= PAGE_BYTES && remap::note_late() {
        modes::look_early(true);
    }
}

/// A slot for a new object of `size` bytes if it is expected to grow; else null.
pub(crate) fn alloc(size: usize) -> *mut u8 {
    let object = remap::alloc_early(size);
    if object.is_null() {
        let looks = IDLE_LOOKS.load(Relaxed).wrapping_add(1);
        IDLE_LOOKS.store(looks, Relaxed);
        if looks.is_multiple_of(MOST_IDLE_LOOKS) {
            modes::look_early(false);
        }
    }
    object
}
