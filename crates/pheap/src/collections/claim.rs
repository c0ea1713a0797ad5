//! One handle for each named collection: two of them in two threads would change one table without a lock between them. And the
//! transaction that has changed a collection or its root last: what it may still roll back is refused to other threads.
//!
//! Both are kept in a table of the process, by the heap's number and the root's, and not in the heap or in a handle: a handle that is
//! dropped after its heap was closed releases nothing, and a transaction goes on after a handle is dropped.

use core::sync::atomic::{AtomicU64, Ordering::*};

use crate::registry::MOST;
use crate::superblock::ROOT_COUNT;

/// What is known of a root of an open heap.
struct Place {
    /// The token of its handle; 0: the root has no handle.
    token: AtomicU64,
    /// See [`Touched`].
    touched: AtomicU64,
}

/// Numbers of transactions are used once in a process, so that nothing of a closed heap is taken for the next heap's.
static PLACES: [[Place; ROOT_COUNT]; MOST] = [const {
    [const { Place { token: AtomicU64::new(0), touched: AtomicU64::new(0) } }; ROOT_COUNT]
}; MOST];
/// The last token; each is used once.
static TOKENS: AtomicU64 = AtomicU64::new(0);

/// The last transaction that has changed a collection, and whether it has changed the collection's root as well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Touched(u64);

impl Touched {
    /// By no transaction.
    pub const NEVER: Self = Self(0);

    /// The transaction of that number has changed the collection.
    pub const fn collection(id: u64) -> Self {
        Self(id << 1)
    }

    /// The transaction of that number has changed the root: its word or its name.
    pub const fn root(id: u64) -> Self {
        Self(id << 1 | 1)
    }

    /// As the word that is kept.
    pub const fn word(self) -> u64 {
        self.0
    }

    /// Of the word that is kept.
    pub const fn of(word: u64) -> Self {
        Self(word)
    }

    /// Whether it was the transaction of that number; 0 is that of none.
    #[inline]
    pub const fn is_by(self, id: u64) -> bool {
        id != 0 && self.0 >> 1 == id
    }

    /// Whether the root was changed.
    pub const fn is_of_root(self) -> bool {
        self.0 & 1 != 0
    }
}

/// The right to be the handle of a root's collection, until it is dropped.
pub struct Claim {
    place: Option<&'static Place>,
    token: u64,
}

fn place(number: usize, index: usize) -> Option<&'static Place> {
    PLACES.get(number)?.get(index)
}

impl Claim {
    /// Claims a root of the heap of that number; `None`: another handle has the claim.
    pub fn take(number: usize, index: usize) -> Option<Self> {
        let token = TOKENS.fetch_add(1, Relaxed) + 1;
        let place = place(number, index)?;
        let is_taken = place.token.compare_exchange(0, token, Acquire, Relaxed).is_ok();
        is_taken.then_some(Self { place: Some(place), token })
    }

    /// A claim of no root, for a collection that a pointer leads to.
    pub const fn none() -> Self {
        Self { place: None, token: 0 }
    }

    /// The word of the root's [`Touched`]; `None`: the claim is of no root.
    #[inline]
    pub fn touched(&self) -> Option<&'static AtomicU64> {
        self.place.map(|place| &place.touched)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // The heap may be closed, and another one may have its number: that one's claims have other tokens.
        if let Some(place) = self.place {
            let _ = place.token.compare_exchange(self.token, 0, Release, Relaxed);
        }
    }
}

/// Whether a handle has the root.
pub fn is_taken(number: usize, index: usize) -> bool {
    place(number, index).is_some_and(|place| place.token.load(Acquire) != 0)
}

/// The last transaction that has changed a root or its collection. The lock of the roots orders it with [`touch_root`].
pub fn touched(number: usize, index: usize) -> Touched {
    place(number, index).map_or(Touched::NEVER, |place| Touched::of(place.touched.load(Relaxed)))
}

/// The transaction of that number, of the calling thread, has changed a root.
pub fn touch_root(number: usize, index: usize, id: u64) {
    if let Some(place) = place(number, index) {
        place.touched.store(Touched::root(id).word(), Relaxed);
    }
}

/// The heap of that number is closed: its claims end.
pub fn forget(number: usize) {
    for place in PLACES.get(number).into_iter().flatten() {
        // A store would allocate a page of the table that no claim has touched.
        if place.token.load(Relaxed) != 0 {
            place.token.store(0, Release);
        }
    }
}
