//! A plain state whose commands are translated: the map of the standard library that `memory` has behind a lock.

use spandrel::durable::{Options, Plain, PlainClient, Stores};
use spandrel_stores::{Key, Report, Session, Store};
use std::collections::BTreeMap;
use std::path::Path;

/// Address space beyond what keys and values take: for the allocator's rounding and the map's nodes.
const ROOM: u64 = 1 << 30;

type Map = BTreeMap<Key, Vec<u8>>;

/// The state.
pub struct OnPlain(Plain<Map>);

impl OnPlain {
    pub fn open(directory: &Path, bytes: u64) -> Result<Self, String> {
        let limit = usize::try_from(bytes * 3 + ROOM).map_err(|why| why.to_string())?;
        let options = Options::new().limit(limit).stores(Stores::Translated);
        let open = Plain::open(directory.join("state"), options, Map::new);
        open.map(Self).map_err(|why| why.to_string())
    }
}

impl Store for OnPlain {
    fn session(&self) -> Result<Box<dyn Session + '_>, String> {
        Ok(Box::new(Place(self.0.client())))
    }

    fn record(&self, report: &mut Report) {
        let (figures, opened) = (self.0.figures(), self.0.report());
        report.insert("medium".into(), self.0.medium().into());
        report.insert("batches".into(), figures.batches.into());
        report.insert("durable_waits".into(), figures.durable_waits.into());
        report.insert("state_syncs".into(), self.0.state_syncs().into());
        report.insert("logged_bytes".into(), figures.bytes.into());
        report.insert("logged_runs".into(), figures.runs.into());
        report.insert("replayed".into(), opened.replayed.into());
    }

    fn close(self: Box<Self>) -> Result<(), String> {
        self.0.close().map_err(|why| why.to_string())
    }
}

/// As the map in memory does it.
fn put(map: &mut Map, key: &Key, value: &[u8]) {
    match map.get_mut(key) {
        Some(old) => {
            old.clear();
            old.extend_from_slice(value);
        }
        None => _ = map.insert(*key, value.to_vec()),
    }
}

struct Place<'s>(PlainClient<'s, Map>);

impl Session for Place<'_> {
    fn put(&mut self, key: &Key, value: &[u8]) -> Result<(), String> {
        self.0.write(|map| put(map, key, value)).map_err(|why| why.to_string())
    }

    fn load(&mut self, records: &[(Key, Vec<u8>)]) -> Result<(), String> {
        let all = |map: &mut Map| records.iter().for_each(|(key, value)| put(map, key, value));
        self.0.write(all).map_err(|why| why.to_string())
    }

    fn get(&mut self, key: &Key, see: &mut dyn FnMut(&[u8])) -> Result<bool, String> {
        Ok(self.0.read(|map| map.get(key).map(|value| see(value)).is_some()))
    }

    fn scan(&mut self, falling: bool, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), String> {
        self.0.read(|map| {
            let mut pair = |(key, value): (&Key, &Vec<u8>)| see(key, value);
            if falling {
                map.iter().rev().for_each(&mut pair);
            } else {
                map.iter().for_each(&mut pair);
            }
        });
        Ok(())
    }

    fn range(
        &mut self,
        from: &Key,
        most: usize,
        see: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), String> {
        self.0.read(|map| {
            map.range(*from..).take(most).for_each(|(key, value)| see(key, value));
        });
        Ok(())
    }

    fn remove(&mut self, keys: &[Key]) -> Result<(), String> {
        let all = |map: &mut Map| keys.iter().for_each(|key| _ = map.remove(key));
        self.0.write(all).map_err(|why| why.to_string())
    }
}
