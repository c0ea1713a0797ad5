//! A hash table with open addressing and linear probing, in one object.

use core::fmt;
use core::marker::PhantomData;
use core::mem::offset_of;

use super::Key;
use super::held::{HeapRef, Held};
use super::op::{Fresh, Op, Part, bytes_of, store};
use crate::error::Error;
use crate::heap::Heap;
use crate::pointer::PPtr;
use crate::trace::{Trace, Tracer, hash, mix};

/// The head of a hash table: what its root leads to.
#[repr(C)]
pub struct MapHead<K, V> {
    table: PPtr<Table<K, V>>,
}

#[repr(C)]
struct Table<K, V> {
    len: u64,
    /// Slots that are not empty: those with keys, and tombstones ([`REMOVED`]).
    used: u64,
    slots: u64,
    /// The first lies at a multiple of 16.
    unused: u64,
    first: [Slot<K, V>; 0],
}

#[repr(C)]
struct Slot<K, V> {
    /// [`EMPTY`], [`REMOVED`], or the code of the slot's key.
    tag: u64,
    key: K,
    value: V,
}

const EMPTY: u64 = 0;
/// A tombstone: a search passes it, and an insertion may take it.
const REMOVED: u64 = 1;
/// The bit that each tag of a key has, and neither of the two above.
const IS_KEY: u64 = 2;
const LEAST_SLOTS: usize = 8;

impl<K, V> MapHead<K, V> {
    /// The head of a table without keys, for a program's own object that leads to a table; see [`HashMap::of`].
    pub const fn new() -> Self {
        Self { table: PPtr::NULL }
    }
}

impl<K, V> Default for MapHead<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, V> fmt::Debug for MapHead<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapHead").field("table", &self.table).finish()
    }
}

// SAFETY: the head is one pointer, which `trace` names.
unsafe impl<K: Trace, V: Trace> Trace for MapHead<K, V> {
    const LAYOUT: u64 =
        mix(mix(hash("MapHead", size_of::<Slot<K, V>>() as u64), K::LAYOUT), V::LAYOUT);

    fn trace(&self, tracer: &mut Tracer<'_>) {
        self.table.trace(tracer);
    }
}

// SAFETY: any bytes are numbers and slots, and `trace` names the slots.
unsafe impl<K: Trace, V: Trace> Trace for Table<K, V> {
    const LAYOUT: u64 = <MapHead<K, V>>::LAYOUT;
    const HAS_POINTERS: bool = K::HAS_POINTERS || V::HAS_POINTERS;

    fn trace(&self, tracer: &mut Tracer<'_>) {
        tracer.behind::<Slot<K, V>>(self.first.as_ptr(), self.slots as usize);
    }
}

// SAFETY: any bytes are a number, a key and a value, and `trace` names both of a slot that has them.
unsafe impl<K: Trace, V: Trace> Trace for Slot<K, V> {
    const LAYOUT: u64 = <MapHead<K, V>>::LAYOUT;
    const HAS_POINTERS: bool = K::HAS_POINTERS || V::HAS_POINTERS;

    fn trace(&self, tracer: &mut Tracer<'_>) {
        if self.tag & !REMOVED != EMPTY {
            self.key.trace(tracer);
            self.value.trace(tracer);
        }
    }
}

/// Whether an insertion rebuilds a table of `slots` slots with `len` keys, of which `used` slots would be in use.
///
/// From seven eighths on it does. A rebuild that finds no room in the heap takes time linear in the table, so that the next attempt
/// waits for another 128th of the slots.
fn wants_room(used: usize, len: usize, slots: usize) -> bool {
    let most = slots / 8 * 7;
    used > most
        && ((used - most - 1).is_multiple_of((slots / 128).max(1)) || is_crowded(len, slots))
}

/// Whether a table has too many keys for another insertion without a rebuild, also where the heap has no room for a larger one: above
/// fifteen sixteenths of the slots. Tombstones do not count, as insertions take them.
fn is_crowded(len: usize, slots: usize) -> bool {
    len * 16 > slots * 15
}

/// A hash table in a heap. Insertions take constant expected time, amortised: one in a while rebuilds the table.
pub struct HashMap<'h, K, V, H = &'h Heap> {
    held: Held<H>,
    of: PhantomData<(K, V, &'h ())>,
}

/// Where a table's first slot is.
const FIRST: usize = 32;
const USED_AT: usize = 8;
const SLOTS_AT: usize = 16;

impl<K, V, H> fmt::Debug for HashMap<'_, K, V, H>
where
    K: Key + fmt::Debug,
    V: Trace + Copy + fmt::Debug,
    H: HeapRef,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<'h, K: Key, V: Trace + Copy> HashMap<'h, K, V> {
    /// Opens the table that a named root leads to, and creates it if there is none.
    ///
    /// # Errors
    /// [`Error::HandleLives`]: the table has a handle; [`Error::InTransaction`]: a transaction of another thread that has not ended has changed
    /// the table, or one of any thread its root; and as for [`Heap::root`] and [`Heap::alloc`].
    pub fn open<H: HeapRef>(heap: H, name: &str) -> Result<HashMap<'h, K, V, H>, Error> {
        const { HashMap::<K, V, H>::FITS };
        let held = Held::open(heap, name, MapHead::<K, V>::new)?;
        Ok(HashMap { held, of: PhantomData })
    }

    /// The handle of the table that a pointer leads to.
    ///
    /// # Errors
    /// [`Error::Foreign`].
    ///
    /// # Safety
    /// No other handle of the table lives as long as this one, and its head is not freed or replaced. If a transaction has changed the table by
    /// another handle, that has ended, or it is the calling thread's.
    pub unsafe fn of<H: HeapRef>(
        heap: H,
        head: PPtr<MapHead<K, V>>,
    ) -> Result<HashMap<'h, K, V, H>, Error> {
        const { HashMap::<K, V, H>::FITS };
        // SAFETY: promised by the caller.
        Ok(HashMap { held: unsafe { Held::of(heap, head)? }, of: PhantomData })
    }
}

impl<K: Key, V: Trace + Copy, H: HeapRef> HashMap<'_, K, V, H> {
    const FITS: () = assert!(
        align_of::<Slot<K, V>>() <= 16,
        "keys and values of a heap's table are aligned to 16 bytes at most"
    );
    const SLOT: usize = size_of::<Slot<K, V>>();

    /// Where the table is, and its number of slots: a power of two, or 0.
    fn table(&self) -> (usize, usize) {
        let core = self.held.core();
        let to = PPtr::<u8>::from_raw(core.load(self.held.at())).offset();
        let found = to.and_then(|at| core.object_of(at).filter(|found| found.start == at));
        let Some(found) = found.filter(|found| found.bytes >= FIRST) else { return (0, 0) };
        let slots = core.load(found.start + SLOTS_AT) as usize;
        let fits = slots.is_power_of_two() && slots <= (found.bytes - FIRST) / Self::SLOT;
        if fits { (found.start, slots) } else { (0, 0) }
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        let _look = self.held.look();
        let (at, slots) = self.table();
        if slots == 0 { 0 } else { self.count(at, slots) }
    }

    /// A count of a table, capped at its slots: a damaged table may hold any number.
    fn count(&self, at: usize, slots: usize) -> usize {
        (self.held.core().load(at) as usize).min(slots)
    }

    /// Whether the table has no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn tag_of(key: &K) -> u64 {
        key.code() | IS_KEY
    }

    /// Where the slot of a probe step is.
    fn probed(table: usize, slots: usize, tag: u64, step: usize) -> usize {
        let number = ((tag >> 2) as usize + step) & (slots - 1);
        table + FIRST + number * Self::SLOT
    }

    /// A part of a slot.
    ///
    /// # Safety
    /// It lies within the heap.
    unsafe fn read<T: Trace + Copy>(&self, at: usize) -> T {
        // SAFETY: promised by the caller; any bytes are a value.
        unsafe { self.held.core().at(at).as_ptr().cast::<T>().read_unaligned() }
    }

    fn key(&self, slot: usize) -> K {
        // SAFETY: of a slot of the table.
        unsafe { self.read(slot + offset_of!(Slot<K, V>, key)) }
    }

    fn value(&self, slot: usize) -> V {
        // SAFETY: of a slot of the table.
        unsafe { self.read(slot + offset_of!(Slot<K, V>, value)) }
    }

    /// The slot of a key, and without one the slot that an insertion takes: the first tombstone on the way, or the empty slot at its end.
    fn find(&self, key: &K) -> (Option<usize>, Option<usize>) {
        let (table, slots) = self.table();
        let tag = Self::tag_of(key);
        let mut place = None;
        for step in 0..slots {
            let at = Self::probed(table, slots, tag, step);
            match self.held.core().load(at) {
                EMPTY => return (None, place.or(Some(at))),
                REMOVED => place = place.or(Some(at)),
                found if found == tag && self.key(at) == *key => return (Some(at), place),
                _ => {}
            }
        }
        (None, place)
    }

    /// The value of a key. Expected time constant.
    pub fn get(&self, key: &K) -> Option<V> {
        let _look = self.held.look();
        self.find(key).0.map(|at| self.value(at))
    }

    /// Whether the table has a key.
    pub fn contains_key(&self, key: &K) -> bool {
        let _look = self.held.look();
        self.find(key).0.is_some()
    }

    /// Sets the value of a key, and returns the value that it had before.
    ///
    /// # Errors
    /// As for [`Heap::alloc`]; [`Error::Forked`], [`Error::ReadOnly`], [`Error::InTransaction`].
    pub fn insert(&mut self, key: K, value: V) -> Result<Option<V>, Error> {
        self.change_or_insert(key, |_| value)
    }

    /// The value of a key; a key without one gets that of `value` first.
    ///
    /// # Errors
    /// As for [`HashMap::insert`].
    pub fn get_or_insert_with(&mut self, key: K, value: impl FnOnce() -> V) -> Result<V, Error> {
        if let Some(value) = self.get(&key) {
            return Ok(value);
        }
        let value = value();
        self.insert(key, value)?;
        Ok(value)
    }

    /// Sets the value of a key to what `value` makes of the one that it has, and returns the new value.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let heap = spandrel_pheap::Options::new().create(directory.path().join("h").to_str().unwrap())?;
    /// let mut counts = spandrel_pheap::collections::HashMap::<u64, u64>::open(&heap, "counts")?;
    /// assert_eq!(counts.update(5, |count| count.unwrap_or(0) + 1)?, 1);
    /// assert_eq!(counts.update(5, |count| count.unwrap_or(0) + 1)?, 2);
    /// # Ok::<(), spandrel_pheap::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`HashMap::insert`].
    pub fn update(&mut self, key: K, value: impl FnOnce(Option<V>) -> V) -> Result<V, Error> {
        let mut made = None;
        self.change_or_insert(key, |before| *made.insert(value(before)))?;
        made.ok_or(Error::Full)
    }

    fn change_or_insert(
        &mut self,
        mut key: K,
        value: impl FnOnce(Option<V>) -> V,
    ) -> Result<Option<V>, Error> {
        let mut op = self.held.op()?;
        let (found, mut place) = self.find(&key);
        let before = found.map(|at| self.value(at));
        let mut value = value(before);
        if let Some(at) = found {
            if size_of::<V>() == 0 {
                return Ok(before);
            }
            op.change(&[Part::of(at + offset_of!(Slot<K, V>, value), &mut value)])?;
            return Ok(before);
        }
        let (mut table, mut slots) = self.table();
        let used = if slots == 0 { 0 } else { self.count(table + USED_AT, slots) };
        let len = self.len() + 1;
        // A tombstone counts as used already: taking it does not fill the table.
        let is_removed = place.is_some_and(|at| op.core().load(at) == REMOVED);
        if !is_removed && (place.is_none() || wants_room(used + 1, len, slots)) {
            match self.rebuild(&mut op, |_| true) {
                Ok(()) => {
                    (table, slots) = self.table();
                    place = self.find(&key).1;
                }
                // The heap has no room for a larger table. This one still has a free slot; probe sequences become longer.
                Err(why) if place.is_some() && why.is_full() && !is_crowded(len, slots) => {}
                Err(why) => return Err(why),
            }
        }
        debug_assert!(slots > 0);
        let at = place.ok_or(Error::Full)?;
        let tag = op.core().load(at);
        // SAFETY: the tag says until the next step that the slot has no key, so no thread reads these bytes.
        unsafe {
            op.put_aside(at + offset_of!(Slot<K, V>, key), bytes_of(&mut key))?;
            op.put_aside(at + offset_of!(Slot<K, V>, value), bytes_of(&mut value))?;
        }
        op.fence();
        let used = self.count(table + USED_AT, slots) as u64;
        op.change(&[
            Part::Word(at, Self::tag_of(&key)),
            Part::Word(table, self.count(table, slots) as u64 + 1),
            Part::Word(table + USED_AT, used + u64::from(tag == EMPTY)),
        ])?;
        Ok(None)
    }

    /// Replaces the table by a new one, half full at most, without tombstones and without the keys of slots for which `stays` returns
    /// false.
    fn rebuild(
        &self,
        op: &mut Op<'_, H::Medium>,
        mut stays: impl FnMut(usize) -> bool,
    ) -> Result<(), Error> {
        let (old, old_slots) = self.table();
        let slots = (self.len() * 2 + 1).next_power_of_two().max(LEAST_SLOTS);
        let bytes = slots.checked_mul(Self::SLOT).and_then(|bytes| bytes.checked_add(FIRST));
        let bytes = bytes.ok_or(Error::Size(slots))?;
        let core = op.core();
        let at = op.alloc_zeroed(bytes)?;
        // An error or a panic of the closure frees it.
        let new = Fresh::new(op, at);
        let mut len = 0;
        for from in self.used(old, old_slots).filter(|from| stays(*from)) {
            let (mut key, mut value) = (self.key(from), self.value(from));
            let tag = Self::tag_of(&key);
            let free = (0..slots)
                .map(|step| Self::probed(at, slots, tag, step))
                .find(|at| core.load(*at) == EMPTY);
            // If there is none, the old table has more keys than its count says, so it is damaged.
            let to = free.ok_or(Error::Full)?;
            core.store(to, tag);
            // SAFETY: a slot of an object that nothing leads to yet.
            unsafe {
                store(&core.medium, to + offset_of!(Slot<K, V>, key), bytes_of(&mut key));
                store(&core.medium, to + offset_of!(Slot<K, V>, value), bytes_of(&mut value));
            }
            len += 1;
        }
        core.store(at, len);
        core.store(at + USED_AT, len);
        core.store(at + SLOTS_AT, slots as u64);
        core.write_back(at, bytes);
        // SAFETY: only the head leads to the old table.
        unsafe { new.put_in_place(self.held.at(), old) }
    }

    /// Removes a key, and returns its value.
    ///
    /// # Errors
    /// [`Error::Forked`], [`Error::ReadOnly`], [`Error::InTransaction`]; in a transaction [`Error::Full`]: there is no room for its log.
    pub fn remove(&mut self, key: &K) -> Result<Option<V>, Error> {
        let mut op = self.held.op()?;
        let Some(at) = self.find(key).0 else { return Ok(None) };
        let value = self.value(at);
        let (table, slots) = self.table();
        let len = self.count(table, slots).saturating_sub(1);
        op.change(&[Part::Word(at, REMOVED), Part::Word(table, len as u64)])?;
        Ok(Some(value))
    }

    /// Removes all keys, at once. Frees the table.
    ///
    /// # Errors
    /// As for [`HashMap::remove`].
    pub fn clear(&mut self) -> Result<(), Error> {
        let mut op = self.held.op()?;
        let (table, _) = self.table();
        op.publish(self.held.at(), 0)?;
        // SAFETY: nothing leads to it any more.
        unsafe { op.free_replaced(table) };
        Ok(())
    }

    /// Removes all keys for which `stays` returns false, at once. The keys that stay move to a new table, for which the heap needs room,
    /// unless all stay.
    ///
    /// # Errors
    /// As for [`HashMap::insert`].
    pub fn retain(&mut self, mut stays: impl FnMut(&K, &V) -> bool) -> Result<(), Error> {
        let mut op = self.held.op()?;
        let (table, slots) = self.table();
        let mut stays = |at| stays(&self.key(at), &self.value(at));
        let Some(first) = self.used(table, slots).find(|at| !stays(*at)) else { return Ok(()) };
        self.rebuild(&mut op, |at| at < first || at > first && stays(at))
    }

    /// The places of the slots with keys of a table.
    fn used(&self, table: usize, slots: usize) -> impl Iterator<Item = usize> {
        let all = (0..slots).map(move |number| table + FIRST + number * Self::SLOT);
        all.filter(|at| self.held.core().load(*at) & !REMOVED != EMPTY)
    }

    /// What `read` makes of each slot with a key.
    fn each<R>(&self, read: impl Fn(usize) -> R) -> impl Iterator<Item = R> {
        let _look = self.held.look();
        let mut watch = self.held.watch();
        let (mut table, mut slots) = self.table();
        (0..slots).filter_map(move |number| {
            let (_look, is_void) = self.held.step(&mut watch);
            if is_void {
                (table, slots) = self.table();
            }
            let at = table + FIRST + number * Self::SLOT;
            let is_key = number < slots && self.held.core().load(at) & !REMOVED != EMPTY;
            is_key.then(|| read(at))
        })
    }

    /// All keys and their values, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (K, V)> {
        self.each(|at| (self.key(at), self.value(at)))
    }

    /// All keys, in no particular order.
    pub fn keys(&self) -> impl Iterator<Item = K> {
        self.each(|at| self.key(at))
    }

    /// All values, in no particular order.
    pub fn values(&self) -> impl Iterator<Item = V> {
        self.each(|at| self.value(at))
    }
}
