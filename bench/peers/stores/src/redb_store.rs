//! redb: a put is a transaction, which is durable when it has been committed.

use redb::{Database, Error, ReadableDatabase, ReadableTable, TableDefinition};
use spandrel_stores::{Key, Session, Store};
use std::path::Path;

const TABLE: TableDefinition<&[u8], &[u8]> = TableDefinition::new("pairs");

/// An open store.
pub struct Redb(Database);

fn words(why: impl Into<Error>) -> String {
    why.into().to_string()
}

impl Redb {
    pub fn open(directory: &Path) -> Result<Self, String> {
        let store = Self(Database::create(directory.join("store")).map_err(words)?);
        // Reading wants a table.
        store.put_all(std::iter::empty())?;
        Ok(store)
    }

    fn put_all<'r>(
        &self,
        records: impl Iterator<Item = (&'r Key, &'r [u8])>,
    ) -> Result<(), String> {
        let transaction = self.0.begin_write().map_err(words)?;
        {
            let mut table = transaction.open_table(TABLE).map_err(words)?;
            for (key, value) in records {
                table.insert(key.as_slice(), value).map_err(words)?;
            }
        }
        transaction.commit().map_err(words)
    }
}

impl Store for Redb {
    fn session(&self) -> Result<Box<dyn Session + '_>, String> {
        Ok(Box::new(self))
    }
}

impl Session for &Redb {
    fn put(&mut self, key: &Key, value: &[u8]) -> Result<(), String> {
        self.put_all(std::iter::once((key, value)))
    }

    fn load(&mut self, records: &[(Key, Vec<u8>)]) -> Result<(), String> {
        self.put_all(records.iter().map(|(key, value)| (key, value.as_slice())))
    }

    fn get(&mut self, key: &Key, see: &mut dyn FnMut(&[u8])) -> Result<bool, String> {
        let transaction = self.0.begin_read().map_err(words)?;
        let table = transaction.open_table(TABLE).map_err(words)?;
        let value = table.get(key.as_slice()).map_err(words)?;
        value.iter().for_each(|value| see(value.value()));
        Ok(value.is_some())
    }

    fn scan(&mut self, falling: bool, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), String> {
        let transaction = self.0.begin_read().map_err(words)?;
        let table = transaction.open_table(TABLE).map_err(words)?;
        let mut all = table.iter().map_err(words)?;
        while let Some(pair) = if falling { all.next_back() } else { all.next() } {
            let (key, value) = pair.map_err(words)?;
            see(key.value(), value.value());
        }
        Ok(())
    }

    fn range(
        &mut self,
        from: &Key,
        most: usize,
        see: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), String> {
        let transaction = self.0.begin_read().map_err(words)?;
        let table = transaction.open_table(TABLE).map_err(words)?;
        for pair in table.range(from.as_slice()..).map_err(words)?.take(most) {
            let (key, value) = pair.map_err(words)?;
            see(key.value(), value.value());
        }
        Ok(())
    }

    fn remove(&mut self, keys: &[Key]) -> Result<(), String> {
        let transaction = self.0.begin_write().map_err(words)?;
        {
            let mut table = transaction.open_table(TABLE).map_err(words)?;
            for key in keys {
                table.remove(key.as_slice()).map_err(words)?;
            }
        }
        transaction.commit().map_err(words)
    }
}
