//! A map of the standard library in the place of the durable one, for tests of the commands.

use std::collections::BTreeMap;
use std::ops::Bound;

use spandrel::heap;

use super::{Entry, Keyspace};
use crate::commands::Fail;

/// See the head of this file.
#[derive(Clone, Default)]
pub struct Memory {
    records: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Changes that are accepted before there is no room; `None`: there always is.
    pub room: Option<u64>,
}

impl Memory {
    pub fn records(&self) -> &BTreeMap<Vec<u8>, Vec<u8>> {
        &self.records
    }

    fn take_room(&mut self) -> Result<(), heap::Error> {
        match &mut self.room {
            None => Ok(()),
            Some(0) => Err(heap::Error::Full),
            Some(room) => {
                *room -= 1;
                Ok(())
            }
        }
    }
}

impl Keyspace for Memory {
    fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.records.get(key).map(Vec::as_slice)
    }

    fn range<'k>(
        &'k self,
        from: Bound<&'k [u8]>,
        to: Bound<&'k [u8]>,
    ) -> impl DoubleEndedIterator<Item = Entry<'k>> {
        let records = self.records.range::<[u8], _>((from, to));
        records.map(|(key, value)| (key.as_slice(), value.as_slice()))
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<bool, heap::Error> {
        self.take_room()?;
        Ok(self.records.insert(key.to_vec(), value.to_vec()).is_none())
    }

    fn insert_if(
        &mut self,
        key: &[u8],
        value: &[u8],
        allows: impl FnOnce(Option<&[u8]>) -> bool,
    ) -> Result<Option<bool>, heap::Error> {
        if allows(self.get(key)) { self.insert(key, value).map(Some) } else { Ok(None) }
    }

    fn remove(&mut self, key: &[u8]) -> Result<bool, heap::Error> {
        Ok(self.records.remove(key).is_some())
    }

    fn clear(&mut self) -> Result<(), heap::Error> {
        self.records.clear();
        Ok(())
    }

    fn transaction<R>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<R, Fail>,
    ) -> Result<R, Fail> {
        let before = self.records.clone();
        let done = work(self);
        if done.is_err() {
            self.records = before;
        }
        done
    }

    fn seed(&self) -> u64 {
        7
    }
}
