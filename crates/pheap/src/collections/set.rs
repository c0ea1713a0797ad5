//! Sets: maps of keys without values.

use core::fmt;
use core::ops::RangeBounds;

use super::held::HeapRef;
use super::{HashMap, Key, MapHead, SortedHead, SortedMap};
use crate::error::Error;
use crate::heap::Heap;
use crate::pointer::PPtr;
use crate::trace::Trace;

/// The head of a hash set: what its root leads to.
pub type SetHead<K> = MapHead<K, ()>;
/// The head of a sorted set: what its root leads to.
pub type SortedSetHead<K> = SortedHead<K, ()>;

/// A hash set in a heap: a [`HashMap`] of keys without values.
pub struct HashSet<'h, K, H = &'h Heap>(HashMap<'h, K, (), H>);

/// A sorted set in a heap: a [`SortedMap`] of keys without values.
pub struct SortedSet<'h, K, H = &'h Heap>(SortedMap<'h, K, (), H>);

impl<K: Key + fmt::Debug, H: HeapRef> fmt::Debug for HashSet<'_, K, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl<K: Trace + Copy + Ord + fmt::Debug, H: HeapRef> fmt::Debug for SortedSet<'_, K, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// The methods that both sets have.
macro_rules! set {
    ($set:ident, $map:ident, $head:ident, $($bound:ident)+) => {
        impl<'h, K: $($bound +)+> $set<'h, K> {
            /// Opens the set that a named root leads to, and creates it if there is none.
            ///
            /// # Errors
            #[doc = concat!("As for [`", stringify!($map), "::open`].")]
            pub fn open<H: HeapRef>(heap: H, name: &str) -> Result<$set<'h, K, H>, Error> {
                $map::<K, ()>::open(heap, name).map($set)
            }

            /// The handle of the set that a pointer leads to.
            ///
            /// # Errors
            /// [`Error::Foreign`].
            ///
            /// # Safety
            #[doc = concat!("As for [`", stringify!($map), "::of`].")]
            pub unsafe fn of<H: HeapRef>(
                heap: H,
                head: PPtr<$head<K, ()>>,
            ) -> Result<$set<'h, K, H>, Error> {
                // SAFETY: promised by the caller.
                unsafe { $map::<K, ()>::of(heap, head) }.map($set)
            }
        }

        impl<K: $($bound +)+, H: HeapRef> $set<'_, K, H> {
            /// The number of keys.
            pub fn len(&self) -> usize {
                self.0.len()
            }

            /// Whether the set has no key.
            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
            }

            /// Whether the set has a key.
            pub fn contains(&self, key: &K) -> bool {
                self.0.contains_key(key)
            }

            /// Inserts a key, and returns whether the set did not have it.
            ///
            /// # Errors
            #[doc = concat!("As for [`", stringify!($map), "::insert`].")]
            pub fn insert(&mut self, key: K) -> Result<bool, Error> {
                self.0.insert(key, ()).map(|before| before.is_none())
            }

            /// Removes a key, and returns whether the set had it.
            ///
            /// # Errors
            #[doc = concat!("As for [`", stringify!($map), "::remove`].")]
            pub fn remove(&mut self, key: &K) -> Result<bool, Error> {
                self.0.remove(key).map(|before| before.is_some())
            }

            /// Removes all keys, at once.
            ///
            /// # Errors
            #[doc = concat!("As for [`", stringify!($map), "::clear`].")]
            pub fn clear(&mut self) -> Result<(), Error> {
                self.0.clear()
            }

            /// Removes all keys for which `stays` returns false, at once.
            ///
            /// # Errors
            #[doc = concat!("As for [`", stringify!($map), "::retain`].")]
            pub fn retain(&mut self, mut stays: impl FnMut(&K) -> bool) -> Result<(), Error> {
                self.0.retain(|key, _| stays(key))
            }
        }
    };
}

set!(HashSet, HashMap, MapHead, Key);
set!(SortedSet, SortedMap, SortedHead, Trace Copy Ord);

impl<K: Key, H: HeapRef> HashSet<'_, K, H> {
    /// All keys, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = K> {
        self.0.keys()
    }
}

impl<K: Trace + Copy + Ord, H: HeapRef> SortedSet<'_, K, H> {
    /// All keys, in order.
    pub fn iter(&self) -> impl Iterator<Item = K> {
        self.0.keys()
    }

    /// All keys of a range, in order.
    pub fn range(&self, range: impl RangeBounds<K>) -> impl Iterator<Item = K> {
        self.0.range(range).map(|(key, ())| key)
    }

    /// The first key.
    pub fn first(&self) -> Option<K> {
        self.0.first().map(|(key, ())| key)
    }

    /// The last key.
    pub fn last(&self) -> Option<K> {
        self.0.last().map(|(key, ())| key)
    }

    /// Removes the first key, and returns it.
    ///
    /// # Errors
    /// As for [`SortedMap::pop_first`].
    pub fn pop_first(&mut self) -> Result<Option<K>, Error> {
        Ok(self.0.pop_first()?.map(|(key, ())| key))
    }

    /// Removes the last key, and returns it.
    ///
    /// # Errors
    /// As for [`SortedMap::pop_last`].
    pub fn pop_last(&mut self) -> Result<Option<K>, Error> {
        Ok(self.0.pop_last()?.map(|(key, ())| key))
    }
}
