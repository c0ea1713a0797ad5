//! A limit of the address space (`RLIMIT_AS`) that comes while the program runs.
//!
//! Slices are reserved in advance, and the kernel counts them against such a limit whole. A limit that is
//! there at the start makes them small. When one comes later, by the program or by another process, what is
//! reserved and not used is given back: allocators go on with the memory that they have, and glibc serves the rest.
//!
//! A limit of the data segment (`RLIMIT_DATA`) counts what is open, also where nothing is in it. When one comes, that is closed.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use spandrel_os::{clock, usage, vm};
use spandrel_sync::{Lock, NO_CACHE, thread_slot};

use crate::remap;

/// The least limit that was found.
static HEEDED: AtomicUsize = AtomicUsize::new(usize::MAX);
static HEEDING: Lock<()> = Lock::new(());
/// A limit is of no concern while all that is mapped is less than this part of it.
const CONCERN_PART: usize = 2;
/// Time within which a limit that another process sets is found.
const LOOK_MS: u64 = 500;
/// The native allocator may still grow by this part of the limit, as where the limit is there at the start.
const KEPT_PART: usize = 16;

/// Looks for new limits of the address space and of the data segment. Releases unused reservations for the one, and closes unused open memory for the
/// other. True: memory was released or closed. Two system calls. The caller holds no lock.
pub fn heed_limit() -> bool {
    if is_in_vfork_child() {
        return false;
    }
    let closed = vm::data_limit().is_some() && open_sparingly();
    heed_reserved() || closed
}

/// Closes what is open and holds nothing, as it begins to count, of both of our own allocators; false: it does so already. To be called without a lock.
pub fn open_sparingly() -> bool {
    // Each is asked, whatever the other says.
    spandrel_slabs::open_sparingly() | remap::open_sparingly()
}

/// Whether the calling thread is the child of a `vfork`, whose limits are its own, and whose memory is the parent's; or has ended but for its last
/// functions.
fn is_in_vfork_child() -> bool {
    let slot = thread_slot();
    slot.cache.get().addr() == NO_CACHE && !slot.is_beside.get()
}

fn heed_reserved() -> bool {
    let is_new = |limit: &usize| *limit < HEEDED.load(Relaxed);
    match vm::address_space_limit().filter(is_new) {
        None => false,
        Some(limit) => heed(limit),
    }
}

/// As [`heed_limit`], once in [`LOOK_MS`]: between requests.
pub fn heed_limit_now_and_then() {
    static NEXT_MS: AtomicU64 = AtomicU64::new(0);
    let now = clock::coarse_ms();
    if now >= NEXT_MS.load(Relaxed) {
        NEXT_MS.store(now + LOOK_MS, Relaxed);
        heed_limit();
    }
}

#[cold]
fn heed(limit: usize) -> bool {
    // Another thread is at it.
    let Some(_heeding) = HEEDING.try_lock() else { return false };
    HEEDED.store(limit, Relaxed);
    if usage::mapped_bytes() < limit / CONCERN_PART {
        return false;
    }
    spandrel_slabs::give_back_reserve(limit / KEPT_PART);
    remap::give_back_reserve();
    #[cfg(any(feature = "jemalloc", feature = "mimalloc", feature = "tcmalloc"))]
    crate::hosted::give_back_reserve();
    true
}

/// For the start, before anything is reserved: a limit that there is counts as heeded, and later ones are
/// looked for from now on.
pub fn look_for_limits() {
    heed_limit();
    spandrel_slabs::set_look(|| {
        heed_limit();
    });
}
