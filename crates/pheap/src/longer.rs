//! Arrays that several pointers lead to, which may name different numbers of values: all of the longest is followed.

use core::sync::atomic::{AtomicBool, Ordering::*};

use spandrel_sync::{CachePadded, Lock};

use crate::error::Error;
use crate::memory::{Table, Zeroed};

/// Entries at first.
const FIRST: usize = 1 << 10;

/// Tables, each with a lock of its own.
const SHARDS: usize = 16;

/// An array, and how many of its values were followed since it was found a second time, or found empty.
#[derive(Clone, Copy)]
struct Entry {
    /// Its offset and 1; 0: no entry.
    at: usize,
    count: usize,
}

// SAFETY: numbers.
unsafe impl Zeroed for Entry {}

/// A hash table with linear probing, which is at most half full.
struct Entries {
    table: Option<Table<Entry>>,
    room: usize,
    len: usize,
}

/// The arrays that were found more than once, or found empty.
pub struct Longer {
    shards: [CachePadded<Lock<Entries>>; SHARDS],
    has_empty: AtomicBool,
}

impl Longer {
    pub const fn new() -> Self {
        Self {
            shards: [const { CachePadded::new(Lock::new(Entries::NONE)) }; SHARDS],
            has_empty: AtomicBool::new(false),
        }
    }

    /// A pointer says that the array at an offset has no values. To be called before it is marked: what another pointer says that has found the mark
    /// is followed.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn is_empty(&self, at: usize) -> Result<(), Error> {
        self.shard(at).lock().followed(at)?;
        self.has_empty.store(true, Release);
        Ok(())
    }

    /// Of the `count` values of the array at an offset, which another pointer led to before, how many need not be followed: so each is followed twice
    /// at most, by the first pointer and once more. A single value was followed by the first, unless that said that there is none.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    #[inline]
    pub fn followed(&self, at: usize, count: usize) -> Result<usize, Error> {
        if count > 1 || count == 1 && self.has_empty.load(Acquire) {
            self.followed_slowly(at, count)
        } else {
            Ok(count)
        }
    }

    /// Whether all words of an object that was marked before are to be followed, since none of its values was: once.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    #[inline]
    pub fn takes_words(&self, at: usize) -> Result<bool, Error> {
        if self.has_empty.load(Acquire) { self.takes_words_slowly(at) } else { Ok(false) }
    }

    #[cold]
    fn takes_words_slowly(&self, at: usize) -> Result<bool, Error> {
        let mut shard = self.shard(at).lock();
        if !shard.has(at) {
            return Ok(false);
        }
        let followed = shard.followed(at)?;
        let is_empty = *followed == 0;
        if is_empty {
            *followed = usize::MAX;
        }
        Ok(is_empty)
    }

    #[cold]
    fn followed_slowly(&self, at: usize, count: usize) -> Result<usize, Error> {
        let mut shard = self.shard(at).lock();
        if count == 1 && !shard.has(at) {
            return Ok(1);
        }
        let followed = shard.followed(at)?;
        let before = *followed;
        *followed = before.max(count);
        Ok(before)
    }

    fn shard(&self, at: usize) -> &Lock<Entries> {
        &self.shards[hash(at) % SHARDS]
    }
}

/// A number of which the low bits depend on all of an offset.
fn hash(at: usize) -> usize {
    ((at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) as usize
}

impl Entries {
    const NONE: Self = Self { table: None, room: 0, len: 0 };

    fn has(&self, at: usize) -> bool {
        // SAFETY: a place of the table.
        self.entry(at).is_some_and(|entry| unsafe { (*entry).at > 0 })
    }

    /// The number of an array, which is made if it is not there.
    fn followed(&mut self, at: usize) -> Result<&mut usize, Error> {
        if self.len * 2 >= self.room {
            self.widen()?;
        }
        let entry = self.entry(at).ok_or(Error::NoMemory)?;
        // SAFETY: a place of the table, which this has exclusively.
        let entry = unsafe { &mut *entry };
        if entry.at == 0 {
            (*entry, self.len) = (Entry { at: at + 1, count: 0 }, self.len + 1);
        }
        Ok(&mut entry.count)
    }

    /// The entry of an array, or the free place for it.
    fn entry(&self, at: usize) -> Option<*mut Entry> {
        let table = self.table.as_ref()?;
        let mut place = hash(at) / SHARDS;
        loop {
            place &= self.room - 1;
            let entry = table.pointer(place)?;
            // SAFETY: within the table.
            let found = unsafe { (*entry).at };
            if found == 0 || found == at + 1 {
                return Some(entry);
            }
            place += 1;
        }
    }

    fn widen(&mut self) -> Result<(), Error> {
        let room = (self.room * 2).max(FIRST);
        let table = Table::reserve(room)?;
        table.ensure(room)?;
        let old = core::mem::replace(self, Self { table: Some(table), room, len: 0 });
        for entry in old.table.iter().flat_map(Table::all).filter(|entry| entry.at > 0) {
            *self.followed(entry.at - 1)? = entry.count;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_of_an_array_is_followed_once_more() {
        let longer = Longer::new();
        let arrays = || (0..5_000).map(|number| number * 48);
        for (count, followed) in [(1, 1), (2, 0), (2, 2), (1, 1), (7, 2), (7, 7), (3, 7)] {
            let all = arrays().all(|at| longer.followed(at, count).unwrap() == followed);
            assert!(all, "{count}");
        }
    }

    #[test]
    fn a_single_value_of_what_was_found_empty_is_followed() {
        let longer = Longer::new();
        longer.is_empty(96).unwrap();
        assert_eq!([96, 48, 96].map(|at| longer.followed(at, 1).unwrap()), [0, 1, 1]);
        longer.is_empty(96).unwrap();
        assert!(![48, 96].iter().any(|at| longer.takes_words(*at).unwrap()));
        longer.is_empty(32).unwrap();
        assert_eq!([32, 32].map(|at| longer.takes_words(at).unwrap()), [true, false]);
        assert_eq!(longer.followed(32, 9), Ok(usize::MAX));
        assert_eq!([(96, 1), (96, 3)].map(|(at, n)| longer.followed(at, n).unwrap()), [1, 1]);
    }
}
