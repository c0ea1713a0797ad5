//! The durable state: the ordered map in its arena.

use std::ops::Bound;
use std::sync::Arc;

use spandrel::durable::Arena;
use spandrel::durable::collections::{Open as _, SortedBytes};
use spandrel::heap;

use super::{Entry, Keyspace, encoding};
use crate::commands::Fail;

/// A number for the layout of the records. A state of another layout is refused.
pub const LAYOUT: u64 = 0x6b76_0001;

/// See the head of this file.
pub struct State {
    arena: Arc<Arena>,
    map: SortedBytes,
    seed: u64,
}

impl State {
    /// The state in an arena, made if it is not there.
    ///
    /// # Errors
    /// Those of opening a collection, and of inserting into it.
    pub fn open(arena: &Arc<Arena>) -> Result<Self, heap::Error> {
        let mut map = SortedBytes::open(arena, "keyspace")?;
        let seed = map
            .get(encoding::SEED)
            .and_then(|seed| Some(u64::from_be_bytes(seed.try_into().ok()?)));
        let seed = match seed {
            Some(seed) => seed,
            None => {
                let seed = fastrand::u64(..);
                map.insert(encoding::SEED, &seed.to_be_bytes())?;
                seed
            }
        };
        Ok(Self { arena: Arc::clone(arena), map, seed })
    }
}

impl Keyspace for State {
    fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.map.get(key)
    }

    fn range<'k>(
        &'k self,
        from: Bound<&'k [u8]>,
        to: Bound<&'k [u8]>,
    ) -> impl DoubleEndedIterator<Item = Entry<'k>> {
        self.map.range((from, to))
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<bool, heap::Error> {
        Ok(!self.map.insert(key, value)?)
    }

    fn insert_if(
        &mut self,
        key: &[u8],
        value: &[u8],
        allows: impl FnOnce(Option<&[u8]>) -> bool,
    ) -> Result<Option<bool>, heap::Error> {
        Ok(self.map.insert_if(key, value, allows)?.map(|had| !had))
    }

    fn remove(&mut self, key: &[u8]) -> Result<bool, heap::Error> {
        self.map.remove(key)
    }

    fn clear(&mut self) -> Result<(), heap::Error> {
        self.map.clear()?;
        self.map.insert(encoding::SEED, &self.seed.to_be_bytes()).map(drop)
    }

    fn transaction<R>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<R, Fail>,
    ) -> Result<R, Fail> {
        let arena = Arc::clone(&self.arena);
        arena.try_transaction(|| work(self))
    }

    fn seed(&self) -> u64 {
        self.seed
    }
}
