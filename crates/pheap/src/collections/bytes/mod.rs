//! A sorted map of byte strings: a B+tree in the manner of Masstree's border nodes (Mao, Kohler, Morris: *Cache craftiness for fast multicore
//! key-value storage*, EuroSys '12).
//!
//! A key and its value are one object, the *entry*. A node has up to 15 slots in no order, each with eight bytes of a key and a word that leads to
//! the key's entry, and one word that orders the slots. So an insertion stores an entry, a slot and that word; it moves nothing.
//!
//! Invariants:
//! - The *range* of a node is that of the keys which a search leads to it. It becomes wider only where two leaves become one: a node that has
//!   lost its last key leaves an empty place between its separators, and empty places beside each other become one.
//! - All keys of a node's range have its first [`Node::skip`](tree::Node) bytes in common. Slots have the eight bytes behind them: keys with a long common
//!   beginning are told apart without a look at their entries.
//! - The level of a child is one below that of its parent, and the root's is the height that the head says.
//! - An entry does not change as long as a reference to its bytes may live: see [`View::lend`].
//!
//! Two leaves become one when a removal leaves few keys in one of them. Inner nodes are not merged: one stays until the last of its keys is
//! removed.

mod copies;
#[cfg(test)]
mod crash_tests;
mod entry;
mod insert;
mod iter;
mod node;
mod removal;
#[cfg(test)]
mod sharing_tests;
mod split;
#[cfg(test)]
mod tests;
mod trace;
mod tree;

use core::fmt;
use core::marker::PhantomData;
use core::mem::offset_of;
use core::ops::RangeBounds;

use super::held::{HeapRef, Held};
use super::op::Op;
use crate::error::Error;
use crate::heap::Heap;
use crate::pointer::PPtr;

use copies::Copies;
pub use iter::BytesRange;
use node::Leaf;
use tree::Tree;

/// The head of a sorted map of byte strings: what its root leads to.
#[repr(C)]
pub struct SortedBytesHead {
    /// The root: a leaf if the height is 0, otherwise an inner node.
    root: PPtr<Leaf>,
    /// Levels above the leaves.
    height: u64,
    len: u64,
}

const HEIGHT_AT: usize = offset_of!(SortedBytesHead, height);
const LEN_AT: usize = offset_of!(SortedBytesHead, len);

impl SortedBytesHead {
    /// The head of a map without keys, for a program's own object that leads to a map; see [`SortedBytes::of`].
    pub const fn new() -> Self {
        Self { root: PPtr::NULL, height: 0, len: 0 }
    }
}

impl Default for SortedBytesHead {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for SortedBytesHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SortedBytesHead").field("len", &self.len).finish_non_exhaustive()
    }
}

/// A sorted map in a heap, of keys of up to 64 KiB and values of any length. Keys are ordered byte by byte, and a key comes before all others
/// that begin with it. Searches, insertions and removals take time logarithmic in the number of keys.
///
/// ```
/// use spandrel_pheap::collections::SortedBytes;
/// use std::ops::Bound;
/// # let directory = tempfile::tempdir().unwrap();
/// # let heap = spandrel_pheap::Options::new().create(directory.path().join("h").to_str().unwrap())?;
/// let mut pages = SortedBytes::open(&heap, "pages")?;
/// pages.insert(b"/index", b"<h1>Index</h1>")?;
/// assert!(!pages.insert(b"/news/2", b"second")?);
/// assert!(pages.insert(b"/news/2", b"second, corrected")?, "it had a value");
/// pages.insert(b"/news/1", b"first")?;
/// assert_eq!(pages.get(b"/news/1"), Some(&b"first"[..]));
/// let news = (Bound::Included(&b"/news/"[..]), Bound::Excluded(&b"/news0"[..]));
/// let last: Vec<_> = pages.range(news).rev().map(|(_, text)| text).collect();
/// assert_eq!(last, [&b"second, corrected"[..], b"first"]);
/// # Ok::<(), spandrel_pheap::Error>(())
/// ```
pub struct SortedBytes<'h, H = &'h Heap> {
    held: Held<H>,
    copies: Copies,
    of: PhantomData<&'h ()>,
}

impl<H: HeapRef> fmt::Debug for SortedBytes<'_, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<'h> SortedBytes<'h> {
    /// Opens the map that a named root leads to, and creates it if there is none.
    ///
    /// # Errors
    /// [`Error::HandleLives`]: the map has a handle; [`Error::InTransaction`]: a transaction of another thread that has not ended has changed
    /// the map, or one of any thread its root; and as for [`Heap::root`] and [`Heap::alloc`].
    pub fn open<H: HeapRef>(heap: H, name: &str) -> Result<SortedBytes<'h, H>, Error> {
        let held = Held::open(heap, name, SortedBytesHead::new)?;
        Ok(SortedBytes { held, copies: Copies::new(), of: PhantomData })
    }

    /// The handle of the map that a pointer leads to.
    ///
    /// # Errors
    /// [`Error::Foreign`].
    ///
    /// # Safety
    /// No other handle of the map lives as long as this one, and its head is not freed or replaced. If a transaction has changed the map by
    /// another handle, that has ended, or it is the calling thread's.
    pub unsafe fn of<H: HeapRef>(
        heap: H,
        head: PPtr<SortedBytesHead>,
    ) -> Result<SortedBytes<'h, H>, Error> {
        // SAFETY: promised by the caller.
        let held = unsafe { Held::of(heap, head)? };
        Ok(SortedBytes { held, copies: Copies::new(), of: PhantomData })
    }
}

/// A map that is borrowed to be read.
struct View<'m, H> {
    held: &'m Held<H>,
    copies: &'m Copies,
}

impl<'m, H: HeapRef> View<'m, H> {
    fn tree(&self) -> Tree<'m, H::Medium> {
        Tree { core: self.held.core(), head: self.held.at() }
    }

    /// Bytes of an entry as they are lent to the program. Those that a rollback may take back although the handle is borrowed are copied: the
    /// reference may outlive the transaction.
    ///
    /// The caller has begun a read ([`Held::look`]) before it has found the bytes.
    fn lend(&self, bytes: &'m [u8]) -> &'m [u8] {
        if !self.held.may_change() {
            return bytes;
        }
        self.copies.keep(bytes).unwrap_or_else(|| {
            // There is no memory for a copy: a rollback leaves the objects of the transaction where they are.
            self.held.core().transactions.keep_objects();
            bytes
        })
    }
}

impl<H: HeapRef> SortedBytes<'_, H> {
    fn view(&self) -> View<'_, H> {
        View { held: &self.held, copies: &self.copies }
    }

    fn tree(&self) -> Tree<'_, H::Medium> {
        self.view().tree()
    }

    /// Begins an operation that changes the map: it is borrowed exclusively, so that no reference to its bytes lives.
    fn op(&mut self) -> Result<Op<'_, H::Medium>, Error> {
        self.copies.clear();
        self.held.op()
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        let _look = self.held.look();
        self.tree().len()
    }

    /// Whether the map has no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a key.
    ///
    /// The value lies in the heap. In a transaction that has changed the map it is a copy in memory of the process, which is kept until the map
    /// is changed or the handle is dropped; [`SortedBytes::get_with`] copies nothing.
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        let _look = self.held.look();
        self.tree().find(key).map(|entry| self.view().lend(entry.value))
    }

    /// What `work` makes of the value of a key. A rollback by another thread waits meanwhile: `work` must not wait for a thread that uses the
    /// heap.
    pub fn get_with<R>(&self, key: &[u8], work: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let _look = self.held.look();
        self.tree().find(key).map(|entry| work(entry.value))
    }

    /// Whether the map has a key.
    pub fn contains_key(&self, key: &[u8]) -> bool {
        let _look = self.held.look();
        self.tree().find(key).is_some()
    }

    /// The first key and its value.
    pub fn first(&self) -> Option<(&[u8], &[u8])> {
        self.iter().next()
    }

    /// The last key and its value.
    pub fn last(&self) -> Option<(&[u8], &[u8])> {
        self.iter().next_back()
    }

    /// All keys of a range and their values, in order, from both ends. A range that ends before it begins is empty.
    ///
    /// Keys and values are lent as by [`SortedBytes::get`].
    pub fn range<R: RangeBounds<[u8]>>(&self, range: R) -> BytesRange<'_, H, R> {
        BytesRange::new(self.view(), range)
    }

    /// All keys and their values, in order, from both ends.
    pub fn iter(&self) -> BytesRange<'_, H, core::ops::RangeFull> {
        self.range(..)
    }
}

impl<'m, H: HeapRef> IntoIterator for &'m SortedBytes<'_, H> {
    type Item = (&'m [u8], &'m [u8]);
    type IntoIter = BytesRange<'m, H, core::ops::RangeFull>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
