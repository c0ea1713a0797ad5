//! fjall: a put is followed by a sync of its journal.

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use spandrel_stores::{Key, Session, Store};
use std::path::Path;

/// An open store.
pub struct Fjall {
    db: Database,
    pairs: Keyspace,
}

fn words(why: fjall::Error) -> String {
    why.to_string()
}

impl Fjall {
    pub fn open(directory: &Path) -> Result<Self, String> {
        let db = Database::builder(directory.join("store")).open().map_err(words)?;
        let pairs = db.keyspace("pairs", KeyspaceCreateOptions::default).map_err(words)?;
        Ok(Self { db, pairs })
    }

    fn sync(&self) -> Result<(), String> {
        self.db.persist(PersistMode::SyncData).map_err(words)
    }
}

impl Store for Fjall {
    fn session(&self) -> Result<Box<dyn Session + '_>, String> {
        Ok(Box::new(self))
    }
}

impl Session for &Fjall {
    fn put(&mut self, key: &Key, value: &[u8]) -> Result<(), String> {
        self.pairs.insert(key, value).map_err(words)?;
        self.sync()
    }

    fn load(&mut self, records: &[(Key, Vec<u8>)]) -> Result<(), String> {
        let mut batch = self.db.batch();
        for (key, value) in records {
            batch.insert(&self.pairs, key.as_slice(), value.as_slice());
        }
        batch.commit().map_err(words)?;
        self.sync()
    }

    fn get(&mut self, key: &Key, see: &mut dyn FnMut(&[u8])) -> Result<bool, String> {
        let value = self.pairs.get(key).map_err(words)?;
        value.iter().for_each(|value| see(value));
        Ok(value.is_some())
    }

    fn scan(&mut self, falling: bool, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), String> {
        let mut all = self.pairs.iter();
        while let Some(pair) = if falling { all.next_back() } else { all.next() } {
            let (key, value) = pair.into_inner().map_err(words)?;
            see(&key, &value);
        }
        Ok(())
    }

    fn range(
        &mut self,
        from: &Key,
        most: usize,
        see: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), String> {
        for pair in self.pairs.range(from.as_slice()..).take(most) {
            let (key, value) = pair.into_inner().map_err(words)?;
            see(&key, &value);
        }
        Ok(())
    }

    fn remove(&mut self, keys: &[Key]) -> Result<(), String> {
        let mut batch = self.db.batch();
        keys.iter().for_each(|key| batch.remove(&self.pairs, key.as_slice()));
        batch.commit().map_err(words)?;
        self.sync()
    }
}
