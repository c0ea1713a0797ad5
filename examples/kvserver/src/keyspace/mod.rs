//! The data: clients' keys of five types in one ordered map of byte strings.

pub mod encoding;
#[cfg(any(test, feature = "fuzzing"))]
pub mod memory;
pub mod records;
pub mod state;

use std::ops::Bound;

use spandrel::heap;

use crate::commands::Fail;
use encoding::Prefix;

/// A record of the ordered map: its key and its value.
pub type Entry<'k> = (&'k [u8], &'k [u8]);

/// An ordered map of byte strings.
pub trait Keyspace: Send + Sync + 'static {
    fn get(&self, key: &[u8]) -> Option<&[u8]>;

    /// The records between two bounds, of which the first is not behind the second.
    fn range<'k>(
        &'k self,
        from: Bound<&'k [u8]>,
        to: Bound<&'k [u8]>,
    ) -> impl DoubleEndedIterator<Item = Entry<'k>>;

    /// Sets a value. True: the key is new.
    ///
    /// # Errors
    /// There is no room. Nothing has changed.
    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<bool, heap::Error>;

    /// As [`Keyspace::insert`], if `allows` is true of the value that is there. `None`: it is not, and nothing has changed.
    ///
    /// # Errors
    /// As there.
    fn insert_if(
        &mut self,
        key: &[u8],
        value: &[u8],
        allows: impl FnOnce(Option<&[u8]>) -> bool,
    ) -> Result<Option<bool>, heap::Error>;

    /// Removes a key. False: it is not there.
    ///
    /// # Errors
    /// As for [`Keyspace::insert`].
    fn remove(&mut self, key: &[u8]) -> Result<bool, heap::Error>;

    /// Removes all.
    ///
    /// # Errors
    /// As for [`Keyspace::insert`].
    fn clear(&mut self) -> Result<(), heap::Error>;

    /// Runs `work`, whose error undoes all that it has changed.
    ///
    /// # Errors
    /// That of `work`, and those of [`Keyspace::insert`].
    fn transaction<R>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<R, Fail>,
    ) -> Result<R, Fail>;

    /// The seed of the hashes that records are ordered by.
    fn seed(&self) -> u64;

    /// The records that begin so: the rest of the key of each, and its value.
    fn prefixed<'k>(&'k self, prefix: &'k Prefix) -> impl DoubleEndedIterator<Item = Entry<'k>> {
        self.range(Bound::Included(prefix.bytes()), prefix.end())
            .filter_map(|(key, value)| Some((prefix.rest(key)?, value)))
    }
}
