//! New objects that are expected to grow.
//!
//! `remap` learns which these are. As long as no thread expects any the table has new
//! objects served without a look; when a thread does it has those of a page or more
//! looked at one by one, until looks have been for nothing too often.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use spandrel_backends::remap;
use spandrel_os::clock;
use spandrel_pages::PAGE_BYTES;

use crate::modes;

/// Looks that may be for nothing before they end...
const MOST_IDLE_LOOKS: u32 = 64;
/// ... for so long: beginning and ending to look writes to what every request reads.
const REST_MS: u64 = 16;

/// Whether a thread has ever expected an object to grow.
static EXPECTED: AtomicBool = AtomicBool::new(false);
/// Looks for nothing since they began. Lost counts do not matter.
static IDLE_LOOKS: AtomicU32 = AtomicU32::new(0);
/// When to begin again.
static NEXT_MS: AtomicU64 = AtomicU64::new(0);

/// Notes that an object which had `usable` bytes was copied to a slot because it grew.
pub(crate) fn note_late(usable: usize) {
    if usable < PAGE_BYTES || !remap::note_late() || modes::table().is_looking_early() {
        return;
    }
    let now = clock::coarse_ms();
    if now >= NEXT_MS.load(Relaxed) {
        NEXT_MS.store(now + REST_MS, Relaxed);
        EXPECTED.store(true, Relaxed);
        IDLE_LOOKS.store(0, Relaxed);
        modes::look_early(true);
    }
}

/// A slot for a new object of `size` bytes if it is expected to grow; else null.
pub(crate) fn alloc(size: usize) -> *mut u8 {
    if !EXPECTED.load(Relaxed) {
        return core::ptr::null_mut();
    }
    let object = remap::alloc_early(size);
    if object.is_null() && modes::table().is_looking_early() {
        let looks = IDLE_LOOKS.load(Relaxed) + 1;
        IDLE_LOOKS.store(looks, Relaxed);
        if looks >= MOST_IDLE_LOOKS {
            modes::look_early(false);
        }
    }
    object
}
