//! A hash table: one object, of which the slots are probed one after the other.

use core::marker::PhantomData;

use spandrel_pmem::{Media, Medium};

use super::Change;
use crate::error::Error;
use crate::heap::Heap;
use crate::pointer::PPtr;
use crate::trace::{Trace, Tracer, hash, mix};

/// What a table looks for.
///
/// The number that a key has is stored: it must be the same in the next program, which `core::hash::Hash` does not
/// promise.
pub trait Key: Trace + Copy + Eq {
    /// A number that equal keys have in common, and others rarely.
    fn code(&self) -> u64;
}

macro_rules! integers {
    ($($number:ty),*) => { $(
        impl Key for $number {
            fn code(&self) -> u64 {
                mix(*self as u64, 1)
            }
        }
    )* };
}

integers!(u8, u16, u32, u64, usize, i8, i16, i32, i64, isize);

impl<const N: usize> Key for [u8; N] {
    fn code(&self) -> u64 {
        // FNV-1a, and mixed, as its low bits are what slots are chosen by.
        let fnv = |code: u64, byte: &u8| (code ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        mix(self.iter().fold(0xcbf2_9ce4_8422_2325, fnv), N as u64)
    }
}

/// What a root leads to that is a hash table.
#[repr(C)]
pub struct MapHead<K, V> {
    table: PPtr<Table<K, V>>,
}

#[repr(C)]
struct Table<K, V> {
    len: u64,
    /// Slots that are not empty, also those of which the key was removed.
    used: u64,
    slots: u64,
    /// The first lies at a multiple of 16.
    unused: u64,
    first: [Slot<K, V>; 0],
}

#[repr(C)]
struct Slot<K, V> {
    /// What is there: [`EMPTY`], [`REMOVED`], or the key's code.
    tag: u64,
    key: K,
    value: V,
}

const EMPTY: u64 = 0;
const REMOVED: u64 = 1;
/// A code is none of those.
const IS_KEY: u64 = 2;
const LEAST_SLOTS: usize = 8;

// SAFETY: a pointer.
unsafe impl<K: Trace, V: Trace> Trace for MapHead<K, V> {
    const LAYOUT: u64 =
        mix(mix(hash("MapHead", size_of::<Slot<K, V>>() as u64), K::LAYOUT), V::LAYOUT);

    fn trace(&self, tracer: &mut Tracer<'_>) {
        self.table.trace(tracer);
    }
}

// SAFETY: numbers, and slots.
unsafe impl<K: Trace, V: Trace> Trace for Table<K, V> {
    const LAYOUT: u64 = <MapHead<K, V>>::LAYOUT;
    const HAS_POINTERS: bool = K::HAS_POINTERS || V::HAS_POINTERS;

    fn trace(&self, tracer: &mut Tracer<'_>) {
        tracer.behind::<Slot<K, V>>(self.first.as_ptr(), self.slots as usize);
    }
}

// SAFETY: a number, a key and a value.
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

/// A hash table in a heap.
pub struct HashMap<'h, K, V, M: Medium = Media> {
    heap: &'h Heap<M>,
    /// Where the head is.
    at: usize,
    of: PhantomData<(K, V)>,
}

/// Where a table's first slot is.
const FIRST: usize = 32;

impl<'h, K: Key, V: Trace + Copy, M: Medium> HashMap<'h, K, V, M> {
    const FITS: () =
        assert!(align_of::<Slot<K, V>>() <= 16 && size_of::<V>() <= super::VALUE_BYTES);
    const SLOT: usize = size_of::<Slot<K, V>>();

    /// The table of a name, made if there is none.
    ///
    /// # Errors
    /// As for [`Heap::root`] and [`Heap::alloc`].
    pub fn open(heap: &'h Heap<M>, name: &str) -> Result<Self, Error> {
        let new = |heap: &'h Heap<M>| heap.new_object(MapHead::<K, V> { table: PPtr::NULL });
        Self::of(heap, heap.root::<MapHead<K, V>>(name)?.get_or(new)?)
    }

    /// The table that a pointer leads to.
    ///
    /// # Errors
    /// [`Error::Foreign`].
    pub fn of(heap: &'h Heap<M>, head: PPtr<MapHead<K, V>>) -> Result<Self, Error> {
        const { Self::FITS };
        Ok(Self { heap, at: heap.place_of(head)?, of: PhantomData })
    }

    /// Where the table is, and how many slots it has: a power of two, or none.
    fn table(&self) -> (usize, usize) {
        let core = self.heap.core();
        let to = PPtr::<u8>::from_raw(core.load(self.at)).offset();
        let found = to.and_then(|at| core.object_of(at).filter(|found| found.start == at));
        let Some(found) = found.filter(|found| found.bytes >= FIRST) else { return (0, 0) };
        let slots = core.load(found.start + 16) as usize;
        let fits = slots.is_power_of_two() && slots <= (found.bytes - FIRST) / Self::SLOT;
        if fits { (found.start, slots) } else { (0, 0) }
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        let (at, slots) = self.table();
        if slots == 0 { 0 } else { self.count(at, slots) }
    }

    /// A count of a table: no more than there are slots, whatever a damaged one says.
    fn count(&self, at: usize, slots: usize) -> usize {
        (self.heap.core().load(at) as usize).min(slots)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn tag_of(key: &K) -> u64 {
        key.code() | IS_KEY
    }

    /// Where the slot is that is looked at after so many others.
    fn probed(table: usize, slots: usize, tag: u64, step: usize) -> usize {
        let number = ((tag >> 2) as usize + step) & (slots - 1);
        table + FIRST + number * Self::SLOT
    }

    /// What a slot holds.
    fn slot(&self, at: usize) -> Slot<K, V> {
        // SAFETY: a slot of the table; any bytes are a value.
        unsafe { self.heap.core().at(at).as_ptr().cast::<Slot<K, V>>().read_unaligned() }
    }

    /// The slot that has a key, or else the first that it may be put into.
    fn find(&self, key: &K) -> (Option<usize>, Option<usize>) {
        let (table, slots) = self.table();
        let tag = Self::tag_of(key);
        let mut place = None;
        for step in 0..slots {
            let at = Self::probed(table, slots, tag, step);
            match self.heap.core().load(at) {
                EMPTY => return (None, place.or(Some(at))),
                REMOVED => place = place.or(Some(at)),
                found if found == tag && self.slot(at).key == *key => return (Some(at), place),
                _ => {}
            }
        }
        (None, place)
    }

    /// The value of a key.
    pub fn get(&self, key: &K) -> Option<V> {
        self.find(key).0.map(|at| self.slot(at).value)
    }

    /// Gives a key a value. That which it had before.
    ///
    /// # Errors
    /// As for [`Heap::alloc`].
    pub fn insert(&mut self, key: K, value: V) -> Result<Option<V>, Error> {
        let mut change = Change::default();
        let (found, mut place) = self.find(&key);
        if let Some(at) = found {
            let before = self.slot(at).value;
            change.value(self.heap, at + core::mem::offset_of!(Slot<K, V>, value), &value)?;
            change.commit(self.heap);
            return Ok(Some(before));
        }
        let core = self.heap.core();
        let (mut table, mut slots) = self.table();
        let used = if slots == 0 { 0 } else { self.count(table + 8, slots) };
        if place.is_none() || (used + 1) * 8 > slots * 7 {
            self.rebuild()?;
            (table, slots) = self.table();
            place = self.find(&key).1;
        }
        debug_assert!(slots > 0);
        let at = place.ok_or(Error::Full)?;
        let before = core.load(at);
        let slot = Slot { tag: before, key, value };
        // SAFETY: a slot that nobody looks at.
        unsafe { self.heap.put(at, &slot) };
        core.fence();
        change.word(at, Self::tag_of(&key))?;
        change.word(table, self.count(table, slots) as u64 + 1)?;
        let used = self.count(table + 8, slots) as u64;
        change.word(table + 8, used + u64::from(before == EMPTY))?;
        change.commit(self.heap);
        Ok(None)
    }

    /// Makes a table with room for more, and without removed keys, and has it take the place of the old one.
    fn rebuild(&mut self) -> Result<(), Error> {
        let (old, _) = self.table();
        let len = self.len();
        // Half full at most.
        let slots = (len * 2 + 1).next_power_of_two().max(LEAST_SLOTS);
        let bytes = slots.checked_mul(Self::SLOT).and_then(|bytes| bytes.checked_add(FIRST));
        let bytes = bytes.ok_or(Error::Size(slots))?;
        let core = self.heap.core();
        let new = core.offset(self.heap.alloc_zeroed(bytes)?.as_ptr());
        for (key, value) in self.iter() {
            let tag = Self::tag_of(&key);
            let free = (0..slots)
                .map(|step| Self::probed(new, slots, tag, step))
                .find(|at| core.load(*at) == EMPTY);
            // SAFETY: a slot of an object that is nobody's yet.
            unsafe { self.heap.put(free.ok_or(Error::Full)?, &Slot { tag, key, value }) };
        }
        core.store(new, len as u64);
        core.store(new + 8, len as u64);
        core.store(new + 16, slots as u64);
        core.write_back(new, bytes);
        core.fence();
        self.heap.publish(self.at, PPtr::<u8>::to(new).raw());
        if old != 0 {
            // SAFETY: nothing leads to it any more.
            unsafe { self.heap.free(core.at(old))? };
        }
        Ok(())
    }

    /// Takes a key away. Its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let at = self.find(key).0?;
        let value = self.slot(at).value;
        let (table, _) = self.table();
        let mut change = Change::default();
        change.word(at, REMOVED).ok()?;
        change.word(table, self.heap.core().load(table).saturating_sub(1)).ok()?;
        change.commit(self.heap);
        Some(value)
    }

    /// All keys and values, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (K, V)> {
        let (table, slots) = self.table();
        (0..slots).filter_map(move |number| {
            let slot = self.slot(table + FIRST + number * Self::SLOT);
            (slot.tag & !REMOVED != EMPTY).then_some((slot.key, slot.value))
        })
    }
}
