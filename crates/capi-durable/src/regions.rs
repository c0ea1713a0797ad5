//! Where the open states lie: for stores that no command makes.

use std::sync::RwLock;

use spandrel_os::slices::FIXED_BASE_WINDOW;
use spandrel_pages::TIB;
use spandrel_pmem::{Medium as _, Notes as _};

use crate::handle::SpandrelDurable;

/// Durable states and other heaps with a fixed base lie there, and nothing else.
const WINDOW: core::ops::Range<usize> = FIXED_BASE_WINDOW.start * TIB..FIXED_BASE_WINDOW.end * TIB;

struct Region {
    base: usize,
    bytes: usize,
    handle: usize,
}

static OPEN: RwLock<Vec<Region>> = RwLock::new(Vec::new());

/// A state is open.
pub fn add(base: usize, bytes: usize, handle: *const SpandrelDurable) {
    if let Ok(mut open) = OPEN.write() {
        open.push(Region { base, bytes, handle: handle as usize });
    }
}

/// It is about to be closed.
pub fn remove(handle: *const SpandrelDurable) {
    if let Ok(mut open) = OPEN.write() {
        open.retain(|region| region.handle != handle as usize);
    }
}

/// Whether an address may lie in a state at all.
#[inline(always)]
pub fn may_hold(at: usize) -> bool {
    WINDOW.contains(&at)
}

/// A thread stores there, and runs no command that may: the state that has the address refuses all that follows.
#[cold]
#[inline(never)]
pub fn strayed(at: usize) {
    let Ok(open) = OPEN.read() else { return };
    let its = open.iter().find(|region| at.wrapping_sub(region.base) < region.bytes);
    if let Some(region) = its {
        let handle = region.handle as *const SpandrelDurable;
        // SAFETY: a handle in the list is open; `remove` waits for this.
        let memory = unsafe { (*(*handle).arena()).medium() };
        // No batch of this thread runs: the notes know it for a stray store.
        if at - region.base < memory.bytes() {
            memory.notes().note(at as *const u8, 1);
        }
    }
}
