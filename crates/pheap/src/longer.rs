//! Arrays that several pointers lead to, which may name different numbers of values: all of the longest is followed.

use spandrel_sync::Lock;

use crate::error::Error;
use crate::memory::{Table, Zeroed};

/// Entries at first.
const FIRST: usize = 1 << 10;

/// An array, and how many of its values were followed since it was found a second time.
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

/// The arrays that were found more than once.
pub struct Longer(Lock<Entries>);

impl Longer {
    pub const fn new() -> Self {
        Self(Lock::new(Entries { table: None, room: 0, len: 0 }))
    }

    /// Whether `count` values of the array at an offset are to be followed, which another pointer led to before. So it ends: the number
    /// becomes larger each time.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn is_longer(&self, at: usize, count: usize) -> Result<bool, Error> {
        self.0.lock().note(at, count)
    }
}

impl Entries {
    fn note(&mut self, at: usize, count: usize) -> Result<bool, Error> {
        if self.len * 2 >= self.room {
            self.widen()?;
        }
        let Some(entry) = self.entry(at) else { return Err(Error::NoMemory) };
        // SAFETY: a place of the table, which this has exclusively.
        let entry = unsafe { &mut *entry };
        if entry.at == 0 {
            (*entry, self.len) = (Entry { at: at + 1, count: 0 }, self.len + 1);
        }
        let is_longer = count > entry.count;
        entry.count = entry.count.max(count);
        Ok(is_longer)
    }

    /// The entry of an array, or the free place for it.
    fn entry(&self, at: usize) -> Option<*mut Entry> {
        let table = self.table.as_ref()?;
        let mut place = (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 16;
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
            self.note(entry.at - 1, entry.count)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_array_is_followed_as_long_as_it_becomes_longer() {
        let longer = Longer::new();
        let arrays = || (0..5_000).map(|number| number * 48);
        for (count, is_longer) in [(2, true), (2, false), (1, false), (7, true), (7, false)] {
            let all = arrays().all(|at| longer.is_longer(at, count).unwrap() == is_longer);
            assert!(all, "{count}");
        }
    }
}
