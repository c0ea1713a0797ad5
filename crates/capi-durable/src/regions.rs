//! Where the open states lie: for stores that no command makes.

use std::ptr;
use std::sync::RwLock;

use spandrel::durable::Arena;
use spandrel_os::slices::FIXED_BASE_WINDOW;
use spandrel_pages::TIB;
use spandrel_pmem::{Medium as _, Notes as _};

/// Durable states and other heaps with a fixed base lie there, and nothing else.
const WINDOW: core::ops::Range<usize> = FIXED_BASE_WINDOW.start * TIB..FIXED_BASE_WINDOW.end * TIB;

struct Region {
    base: usize,
    bytes: usize,
    arena: usize,
}

static OPEN: RwLock<Vec<Region>> = RwLock::new(Vec::new());

/// A state is open, or is being opened: it may be added twice.
pub fn add(arena: &Arena) {
    let (base, bytes) = arena.medium().reserved();
    let (base, arena) = (base.as_ptr() as usize, ptr::from_ref(arena) as usize);
    if let Ok(mut open) = OPEN.write()
        && open.iter().all(|region| region.arena != arena)
    {
        open.push(Region { base, bytes, arena });
    }
}

/// It is about to be closed.
pub fn remove(arena: *const Arena) {
    if let Ok(mut open) = OPEN.write() {
        open.retain(|region| region.arena != arena as usize);
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
        let arena = region.arena as *const Arena;
        // SAFETY: an arena in the list is there; `remove` waits for this.
        let memory = unsafe { (*arena).medium() };
        // No batch of this thread runs: the notes know it for a stray store.
        if at - region.base < memory.bytes() {
            memory.notes().note(at as *const u8, 1);
        }
    }
}
