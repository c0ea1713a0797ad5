//! A sorted map on libpmemobj of PMDK. A put is a transaction, which is durable when it commits. The library has no map of its own: tree and lock are ours.

mod pool;
mod tree;

use pool::Pool;
pub use pool::choose_medium;
use spandrel_stores::{Key, Session, Store};
use std::path::Path;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tree::Map;

/// Records that a transaction loads or removes.
const AT_ONCE: usize = 1000;

/// An open store: a map behind a lock of readers and writers.
pub struct Pmemobj(RwLock<Map>);

impl Pmemobj {
    /// Opens the store of a directory, or makes one.
    ///
    /// # Errors
    /// The library's words.
    pub fn open(directory: &Path, bytes: u64) -> Result<Self, String> {
        Ok(Self(RwLock::new(Map::of(Pool::open(directory, bytes)?)?)))
    }

    fn read(&self) -> RwLockReadGuard<'_, Map> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Map> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for Pmemobj {
    fn session(&self) -> Result<Box<dyn Session + '_>, String> {
        Ok(Box::new(self))
    }

    fn close(self: Box<Self>) -> Result<(), String> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner).close();
        Ok(())
    }
}

impl Session for &Pmemobj {
    fn put(&mut self, key: &Key, value: &[u8]) -> Result<(), String> {
        self.write().put(std::iter::once((key, value)))
    }

    fn load(&mut self, records: &[(Key, Vec<u8>)]) -> Result<(), String> {
        records.chunks(AT_ONCE).try_for_each(|some| {
            self.write().put(some.iter().map(|(key, value)| (key, value.as_slice())))
        })
    }

    fn get(&mut self, key: &Key, see: &mut dyn FnMut(&[u8])) -> Result<bool, String> {
        Ok(self.read().get(key).map(see).is_some())
    }

    fn scan(&mut self, falling: bool, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), String> {
        let mut see = |key: &[u8], value: &[u8]| {
            see(key, value);
            true
        };
        if falling {
            self.read().falling(&mut see);
        } else {
            self.read().rising(None, &mut see);
        }
        Ok(())
    }

    fn range(
        &mut self,
        from: &Key,
        most: usize,
        see: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), String> {
        let mut left = most;
        if left > 0 {
            self.read().rising(Some(from), &mut |key, value| {
                see(key, value);
                left -= 1;
                left > 0
            });
        }
        Ok(())
    }

    fn remove(&mut self, keys: &[Key]) -> Result<(), String> {
        keys.chunks(AT_ONCE).try_for_each(|some| self.write().remove(some))
    }
}
