//! A way through the store as it was when the way began, with LevelDB's calls.

use std::ops::Bound::{self, Excluded, Included, Unbounded};

use crate::store::{Outcome, Store};

/// Keys that are read at a time, and bytes: what a snapshot has does not change, so that one visit of the store serves many steps.
const PART_KEYS: usize = 64;
const PART_BYTES: usize = 64 << 10;

/// At a key of a snapshot, or at none. Writes and other iterators go on meanwhile.
pub struct Iter<'s> {
    store: &'s Store,
    snapshot: u64,
    /// The snapshot was taken for this iterator, and is released with it.
    is_own: bool,
    /// Keys one behind the other, with their values.
    part: Vec<(Vec<u8>, Vec<u8>)>,
    /// The current one of these; there is none if there are none.
    at: usize,
}

impl<'s> Iter<'s> {
    /// Of the store as it is now, at no key.
    pub fn new(store: &'s Store) -> Outcome<Self> {
        Ok(Self { store, snapshot: store.snapshot()?, is_own: true, part: Vec::new(), at: 0 })
    }

    /// Of a snapshot, at no key.
    pub fn of(store: &'s Store, snapshot: u64) -> Self {
        Self { store, snapshot, is_own: false, part: Vec::new(), at: 0 }
    }

    /// Whether it is at a key.
    pub fn valid(&self) -> bool {
        self.at < self.part.len()
    }

    /// The key that it is at; `None`: at none.
    pub fn key(&self) -> Option<&[u8]> {
        self.part.get(self.at).map(|(key, _)| &key[..])
    }

    /// The value of that key.
    pub fn value(&self) -> Option<&[u8]> {
        self.part.get(self.at).map(|(_, value)| &value[..])
    }

    /// Goes to the first key that is not less than `key`.
    pub fn seek(&mut self, key: &[u8]) -> Outcome<()> {
        self.read((Included(key), Unbounded), true)
    }

    /// Goes to the first key.
    pub fn seek_to_first(&mut self) -> Outcome<()> {
        self.read((Unbounded, Unbounded), true)
    }

    /// Goes to the last key.
    pub fn seek_to_last(&mut self) -> Outcome<()> {
        self.read((Unbounded, Unbounded), false)
    }

    /// Goes to the next key, if it is at one. Behind the last one it is at none.
    pub fn next(&mut self) -> Outcome<()> {
        if self.at + 1 < self.part.len() {
            self.at += 1;
            return Ok(());
        }
        match self.part.pop() {
            Some((key, _)) => self.read((Excluded(&key), Unbounded), true),
            None => Ok(()),
        }
    }

    /// Goes to the key before, if it is at one. Before the first one it is at none.
    pub fn prev(&mut self) -> Outcome<()> {
        if self.at > 0 {
            self.at -= 1;
            return Ok(());
        }
        let part = std::mem::take(&mut self.part);
        match part.first() {
            Some((key, _)) => self.read((Unbounded, Excluded(key)), false),
            None => Ok(()),
        }
    }

    /// Reads the next part in a range, from one of its ends, and goes to that end. After an error it is at no key.
    fn read(&mut self, range: (Bound<&[u8]>, Bound<&[u8]>), is_forward: bool) -> Outcome<()> {
        let (mut part, mut bytes) = (Vec::new(), 0);
        (self.part, self.at) = (Vec::new(), 0);
        self.store.range(Some(self.snapshot), range, is_forward, |key, value| {
            part.push((key.to_vec(), value.to_vec()));
            bytes += key.len() + value.len();
            part.len() < PART_KEYS && bytes < PART_BYTES
        })?;
        if !is_forward {
            part.reverse();
            self.at = part.len().saturating_sub(1);
        }
        self.part = part;
        Ok(())
    }
}

impl Drop for Iter<'_> {
    fn drop(&mut self) {
        if self.is_own {
            // A store that accepts nothing any more keeps the snapshot until it is closed.
            let _ = self.store.release(self.snapshot);
        }
    }
}
