//! The store: keys in order, batches, snapshots, ways through it.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use spandrel::durable::collections::{Open as _, SortedBytes};
use spandrel::durable::{Arena, Durable, Options};
use spandrel::heap;

pub type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Changes that become durable together.
#[derive(Default)]
pub struct Batch(Vec<(Vec<u8>, Option<Vec<u8>>)>);

impl Batch {
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        self.0.push((key.to_vec(), Some(value.to_vec())));
    }

    pub fn delete(&mut self, key: &[u8]) {
        self.0.push((key.to_vec(), None));
    }
}

/// What is durable, and the snapshots of this process.
pub struct State {
    pub map: SortedBytes,
    arena: Arc<Arena>,
    /// In the order in which they were taken.
    snapshots: Vec<Snapshot>,
}

/// The store as it was. A change saves the old value of its key for the last snapshot. So a key was at a snapshot what this one or the first
/// one behind it has saved, and else what it is now.
///
/// Of a key only the first value counts that was saved: it is right also where the command that saved it is undone, and runs again.
struct Snapshot {
    number: u64,
    /// `None`: the key was not there.
    saved: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl State {
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<bool, heap::Error> {
        self.save(key);
        self.map.insert(key, value)
    }

    pub fn delete(&mut self, key: &[u8]) -> Result<bool, heap::Error> {
        self.save(key);
        self.map.remove(key)
    }

    pub fn clear(&mut self) -> Result<(), heap::Error> {
        if let Some(Snapshot { saved, .. }) = self.snapshots.last_mut() {
            for (key, value) in &self.map {
                saved.entry(key.to_vec()).or_insert_with(|| Some(value.to_vec()));
            }
        }
        self.map.clear()
    }

    fn save(&mut self, key: &[u8]) {
        if let Some(Snapshot { saved, .. }) = self.snapshots.last_mut()
            && !saved.contains_key(key)
        {
            saved.insert(key.to_vec(), self.map.get(key).map(<[u8]>::to_vec));
        }
    }

    /// Takes a snapshot away, if it is there. The one before it keeps what it needs.
    fn release(&mut self, number: u64) {
        let Some(at) = self.snapshots.iter().position(|snapshot| snapshot.number == number) else {
            return;
        };
        let Snapshot { saved, .. } = self.snapshots.remove(at);
        if let Some(before) = at.checked_sub(1).and_then(|before| self.snapshots.get_mut(before)) {
            for (key, value) in saved {
                before.saved.entry(key).or_insert(value);
            }
        }
    }

    /// The snapshots from one on. `None`: it was released, or is of another process.
    fn since(&self, snapshot: Option<u64>) -> Option<&[Snapshot]> {
        let Some(number) = snapshot else { return Some(&[]) };
        let at = self.snapshots.iter().position(|snapshot| snapshot.number == number)?;
        self.snapshots.get(at..)
    }

    fn get<'s>(&'s self, snapshots: &'s [Snapshot], key: &[u8]) -> Option<&'s [u8]> {
        let saved = snapshots.iter().find_map(|snapshot| snapshot.saved.get(key));
        saved.map_or_else(|| self.map.get(key), |value| value.as_deref())
    }

    /// Calls `each` for the keys of a range at the first of these snapshots, until it returns false.
    fn scan(
        &self,
        snapshots: &[Snapshot],
        range: (Bound<&[u8]>, Bound<&[u8]>),
        is_forward: bool,
        mut each: impl FnMut(&[u8], &[u8]) -> bool,
    ) {
        // Ways through the map and what each snapshot has saved, with the next key of each.
        let now: Keys<'_> = Box::new(self.map.range(range).map(|(key, _)| key));
        let saved = snapshots.iter().map(|snapshot| -> Keys<'_> {
            Box::new(snapshot.saved.range::<[u8], _>(range).map(|(key, _)| &key[..]))
        });
        fn step<'s>(keys: &mut Keys<'s>, is_forward: bool) -> Option<&'s [u8]> {
            if is_forward { keys.next() } else { keys.next_back() }
        }
        let mut ways: Vec<_> = std::iter::once(now).chain(saved).map(|keys| (None, keys)).collect();
        ways.iter_mut().for_each(|(next, keys)| *next = step(keys, is_forward));
        loop {
            let keys = ways.iter().filter_map(|(next, _)| *next);
            let Some(key) = (if is_forward { keys.min() } else { keys.max() }) else { return };
            if self.get(snapshots, key).is_some_and(|value| !each(key, value)) {
                return;
            }
            for (next, keys) in ways.iter_mut().filter(|(next, _)| *next == Some(key)) {
                *next = step(keys, is_forward);
            }
        }
    }
}

type Keys<'s> = Box<dyn DoubleEndedIterator<Item = &'s [u8]> + 's>;

/// The store. A thread with many calls takes a [`Durable::client`] once.
pub struct Store {
    pub db: Durable<State>,
    /// The number of the last snapshot.
    last: AtomicU64,
}

impl Store {
    pub fn open(directory: &Path, options: Options) -> Outcome<Self> {
        let db = Durable::open(directory, options, |arena| {
            let map = SortedBytes::open(arena, "store")?;
            Ok(State { map, arena: Arc::clone(arena), snapshots: Vec::new() })
        })?;
        Ok(Self { db, last: AtomicU64::new(0) })
    }

    pub fn put(&self, key: &[u8], value: &[u8]) -> Outcome<()> {
        self.db.write(|state| state.put(key, value))??;
        Ok(())
    }

    pub fn delete(&self, key: &[u8]) -> Outcome<bool> {
        Ok(self.db.write(|state| state.delete(key))??)
    }

    /// The value of a key: now, or at a snapshot.
    pub fn get(&self, snapshot: Option<u64>, key: &[u8]) -> Outcome<Option<Vec<u8>>> {
        self.db.read(|state| {
            let snapshots = state.since(snapshot).ok_or_else(|| missing(snapshot))?;
            Ok(state.get(snapshots, key).map(<[u8]>::to_vec))
        })
    }

    /// Takes a snapshot, which sees nothing of later writes, and has a number. It holds in memory what they replace until it is released.
    pub fn snapshot(&self) -> Outcome<u64> {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.db.write(|state| {
            // If the batch runs again: what it saved then may be of writes that come later now.
            state.release(number);
            state.snapshots.push(Snapshot { number, saved: BTreeMap::new() });
        })?;
        Ok(number)
    }

    /// Releases a snapshot.
    pub fn release(&self, number: u64) -> Outcome<()> {
        self.db.write(|state| state.release(number))?;
        Ok(())
    }

    /// All of a batch, or nothing of it, also where the heap has no room for a part.
    pub fn write(&self, batch: &Batch) -> Outcome<()> {
        self.db.write(|state| {
            let arena = Arc::clone(&state.arena);
            arena.transaction(|| {
                batch.0.iter().try_for_each(|(key, value)| match value {
                    Some(value) => state.put(key, value).map(drop),
                    None => state.delete(key).map(drop),
                })
            })
        })??;
        Ok(())
    }

    /// Calls `each` for the keys of a range, in order or back, until it returns false: as they are, or as they were at a snapshot. Writes wait
    /// meanwhile: long ways go by an [`Iter`](crate::iterator::Iter).
    pub fn range(
        &self,
        snapshot: Option<u64>,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        is_forward: bool,
        each: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Outcome<()> {
        self.db.read(|state| {
            let snapshots = state.since(snapshot).ok_or_else(|| missing(snapshot))?;
            state.scan(snapshots, range, is_forward, each);
            Ok(())
        })
    }
}

fn missing(snapshot: Option<u64>) -> String {
    format!(
        "there is no snapshot {}; it was released, or is of another process",
        snapshot.unwrap_or_default()
    )
}
