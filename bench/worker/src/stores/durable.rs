//! A durable state with one sorted map.

use spandrel::durable::collections::{Open as _, SortedBytes};
use spandrel::durable::{CaptureSizes, Client, Durable, Options};
use spandrel_stores::{Key, Report, Session, Store};
use std::ops::Bound;
use std::path::Path;

/// Address space beyond what keys and values take: for the allocator's rounding and the map's nodes.
const ROOM: u64 = 1 << 30;

struct Pairs {
    of: SortedBytes,
}

/// The state.
pub struct OnState(Durable<Pairs>);

impl OnState {
    pub fn open(directory: &Path, bytes: u64, capture: CaptureSizes) -> Result<Self, String> {
        let limit = usize::try_from(bytes * 3 + ROOM).map_err(|why| why.to_string())?;
        let options = Options::new().limit(limit).capture(capture);
        let open = Durable::open(directory.join("state"), options, |arena| {
            Ok(Pairs { of: SortedBytes::open(arena, "pairs")? })
        });
        open.map(Self).map_err(|why| why.to_string())
    }
}

impl Store for OnState {
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

struct Place<'s>(Client<'s, Pairs>);

/// The result of a write: the state's error, or the collection's.
fn settled<T>(
    result: Result<Result<T, spandrel::heap::Error>, spandrel::durable::Error>,
) -> Result<T, String> {
    result.map_err(|why| why.to_string())?.map_err(|why| why.to_string())
}

impl Session for Place<'_> {
    fn put(&mut self, key: &Key, value: &[u8]) -> Result<(), String> {
        settled(self.0.write(|pairs| pairs.of.insert(key, value)))?;
        Ok(())
    }

    fn load(&mut self, records: &[(Key, Vec<u8>)]) -> Result<(), String> {
        settled(self.0.write(|pairs| {
            records.iter().try_for_each(|(key, value)| pairs.of.insert(key, value).map(drop))
        }))
    }

    fn get(&mut self, key: &Key, see: &mut dyn FnMut(&[u8])) -> Result<bool, String> {
        Ok(self.0.read(|pairs| pairs.of.get(key).map(see).is_some()))
    }

    fn scan(&mut self, falling: bool, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), String> {
        self.0.read(|pairs| {
            let all = pairs.of.range((Bound::Unbounded, Bound::Unbounded));
            if falling {
                all.rev().for_each(|(key, value)| see(key, value));
            } else {
                all.for_each(|(key, value)| see(key, value));
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
        self.0.read(|pairs| {
            let some = pairs.of.range((Bound::Included(&from[..]), Bound::Unbounded));
            some.take(most).for_each(|(key, value)| see(key, value));
        });
        Ok(())
    }

    fn remove(&mut self, keys: &[Key]) -> Result<(), String> {
        settled(
            self.0.write(|pairs| keys.iter().try_for_each(|key| pairs.of.remove(key).map(drop))),
        )
    }
}
