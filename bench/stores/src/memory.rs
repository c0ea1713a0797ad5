//! No durability: a program's own map behind a lock of readers and writers.

use crate::{Key, Session, Store};
use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

/// A map in memory.
#[derive(Default)]
pub struct InMemory(RwLock<BTreeMap<Key, Vec<u8>>>);

impl Store for InMemory {
    fn session(&self) -> Result<Box<dyn Session + '_>, String> {
        Ok(Box::new(self))
    }
}

impl Session for &InMemory {
    fn put(&mut self, key: &Key, value: &[u8]) -> Result<(), String> {
        let mut map = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match map.get_mut(key) {
            Some(old) => {
                old.clear();
                old.extend_from_slice(value);
            }
            None => _ = map.insert(*key, value.to_vec()),
        }
        Ok(())
    }

    fn load(&mut self, records: &[(Key, Vec<u8>)]) -> Result<(), String> {
        records.iter().try_for_each(|(key, value)| self.put(key, value))
    }

    fn get(&mut self, key: &Key, see: &mut dyn FnMut(&[u8])) -> Result<bool, String> {
        let map = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let value = map.get(key);
        value.iter().for_each(|value| see(value));
        Ok(value.is_some())
    }

    fn scan(&mut self, falling: bool, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), String> {
        let map = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut pair = |(key, value): (&Key, &Vec<u8>)| see(key, value);
        if falling {
            map.iter().rev().for_each(&mut pair)
        } else {
            map.iter().for_each(&mut pair)
        }
        Ok(())
    }

    fn range(
        &mut self,
        from: &Key,
        most: usize,
        see: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), String> {
        let map = self.0.read().unwrap_or_else(PoisonError::into_inner);
        map.range(*from..).take(most).for_each(|(key, value)| see(key, value));
        Ok(())
    }

    fn remove(&mut self, keys: &[Key]) -> Result<(), String> {
        let mut map = self.0.write().unwrap_or_else(PoisonError::into_inner);
        keys.iter().for_each(|key| _ = map.remove(key));
        Ok(())
    }
}
