//! One handle for each named collection: two of them in two threads would change one table without a lock between them.
//!
//! Claims are kept in a table of the process, by the heap's number and the root's, and not in the heap: a handle that is dropped
//! after its heap was closed releases nothing.

use core::sync::atomic::{AtomicU64, Ordering::*};

use crate::registry::MOST;
use crate::superblock::ROOT_COUNT;

/// For each root of each open heap the token of its handle; 0: the root has no handle.
static CLAIMS: [[AtomicU64; ROOT_COUNT]; MOST] =
    [const { [const { AtomicU64::new(0) }; ROOT_COUNT] }; MOST];
/// The last token; each is used once.
static TOKENS: AtomicU64 = AtomicU64::new(0);

/// The right to be the handle of a root's collection, until it is dropped.
#[derive(Debug)]
pub struct Claim {
    number: usize,
    index: usize,
    token: u64,
}

fn place(number: usize, index: usize) -> Option<&'static AtomicU64> {
    CLAIMS.get(number)?.get(index)
}

impl Claim {
    /// Claims a root of the heap of that number; `None`: another handle has the claim.
    pub fn take(number: usize, index: usize) -> Option<Self> {
        let token = TOKENS.fetch_add(1, Relaxed) + 1;
        let is_taken = place(number, index)?.compare_exchange(0, token, Acquire, Relaxed).is_ok();
        is_taken.then_some(Self { number, index, token })
    }

    /// A claim of no root, for a collection that a pointer leads to.
    pub const fn none() -> Self {
        Self { number: usize::MAX, index: 0, token: 0 }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // The heap may be closed, and another one may have its number: that one's claims have other tokens.
        if let Some(place) = place(self.number, self.index) {
            let _ = place.compare_exchange(self.token, 0, Release, Relaxed);
        }
    }
}

/// Whether a handle has the root.
pub fn is_taken(number: usize, index: usize) -> bool {
    place(number, index).is_some_and(|place| place.load(Acquire) != 0)
}

/// The heap of that number is closed: its claims end.
pub fn forget(number: usize) {
    for place in CLAIMS.get(number).into_iter().flatten() {
        // A store would allocate a page of the table that no claim has touched.
        if place.load(Relaxed) != 0 {
            place.store(0, Release);
        }
    }
}
