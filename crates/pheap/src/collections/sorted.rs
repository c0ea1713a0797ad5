//! A sorted map: a skip list.
//!
//! Invariant: the map has a key if the lowest level has its node. Links of upper levels only make searches faster: after a failure some
//! may be missing, and each that is there leads to a node of the lowest level.

mod removal;

use core::fmt;
use core::marker::PhantomData;
use core::mem::offset_of;
use core::ops::{Bound, RangeBounds};

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::held::{HeapRef, Held};
use super::op::{Op, Part, bytes_of, store};
use crate::error::Error;
use crate::heap::Heap;
use crate::layout::{BlockId, first_block};
use crate::memory::Table;
use crate::pointer::{PPtr, offset_of as offset_of_word};
use crate::trace::{Trace, Tracer, hash, mix};
use crate::transaction::Transaction;

/// Levels at most. Each has a quarter of the nodes of the level below, expected.
const LEVELS: usize = 16;

/// The head of a sorted map: what its root leads to.
#[repr(C)]
pub struct SortedHead<K, V> {
    links: [PPtr<Node<K, V>>; LEVELS],
    len: u64,
}

#[repr(C)]
struct Node<K, V> {
    /// The number of levels that link the node.
    height: u64,
    key: K,
    value: V,
    links: [PPtr<Node<K, V>>; 0],
}

impl<K, V> SortedHead<K, V> {
    /// The head of a map without keys, for a program's own object that leads to a map; see [`SortedMap::of`].
    pub const fn new() -> Self {
        Self { links: [PPtr::NULL; LEVELS], len: 0 }
    }
}

impl<K, V> Default for SortedHead<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, V> fmt::Debug for SortedHead<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SortedHead").field("len", &self.len).finish_non_exhaustive()
    }
}

// SAFETY: any bytes are pointers and a number, and `trace` names the pointers.
unsafe impl<K: Trace, V: Trace> Trace for SortedHead<K, V> {
    const LAYOUT: u64 = mix(mix(hash("SortedHead", LEVELS as u64), K::LAYOUT), V::LAYOUT);

    fn trace(&self, tracer: &mut Tracer<'_>) {
        self.links.trace(tracer);
    }
}

// SAFETY: any bytes are a number, a key, a value and links, and `trace` names all but the number.
unsafe impl<K: Trace, V: Trace> Trace for Node<K, V> {
    const LAYOUT: u64 = <SortedHead<K, V>>::LAYOUT;

    fn trace(&self, tracer: &mut Tracer<'_>) {
        self.key.trace(tracer);
        self.value.trace(tracer);
        tracer.behind::<PPtr<Self>>(self.links.as_ptr(), (self.height as usize).min(LEVELS));
    }
}

/// A sorted map in a heap. Searches, insertions and removals take expected time logarithmic in the number of keys.
pub struct SortedMap<'h, K, V, H = &'h Heap> {
    held: Held<H>,
    of: PhantomData<(K, V, &'h ())>,
}

impl<K, V, H> fmt::Debug for SortedMap<'_, K, V, H>
where
    K: Trace + Copy + Ord + fmt::Debug,
    V: Trace + Copy + fmt::Debug,
    H: HeapRef,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<'h, K: Trace + Copy + Ord, V: Trace + Copy> SortedMap<'h, K, V> {
    /// Opens the map that a named root leads to, and creates it if there is none.
    ///
    /// # Errors
    /// [`Error::HandleLives`]: the map has a handle; [`Error::InTransaction`]: a transaction of another thread that has not ended has changed
    /// the map, or one of any thread its root; and as for [`Heap::root`] and [`Heap::alloc`].
    pub fn open<H: HeapRef>(heap: H, name: &str) -> Result<SortedMap<'h, K, V, H>, Error> {
        const { SortedMap::<K, V, H>::FITS };
        let held = Held::open(heap, name, SortedHead::<K, V>::new)?;
        Ok(SortedMap { held, of: PhantomData })
    }

    /// The handle of the map that a pointer leads to.
    ///
    /// # Errors
    /// [`Error::Foreign`].
    ///
    /// # Safety
    /// No other handle of the map lives as long as this one, and its head is not freed or replaced. If a transaction has changed the map by
    /// another handle, that has ended, or it is the calling thread's.
    pub unsafe fn of<H: HeapRef>(
        heap: H,
        head: PPtr<SortedHead<K, V>>,
    ) -> Result<SortedMap<'h, K, V, H>, Error> {
        const { SortedMap::<K, V, H>::FITS };
        // SAFETY: promised by the caller.
        Ok(SortedMap { held: unsafe { Held::of(heap, head)? }, of: PhantomData })
    }
}

/// A node's place, height and key.
struct Found<K> {
    at: usize,
    height: usize,
    key: K,
}

impl<K: Trace + Copy + Ord, V: Trace + Copy, H: HeapRef> SortedMap<'_, K, V, H> {
    const FITS: () = assert!(
        align_of::<Node<K, V>>() <= 16,
        "keys and values of a heap's map are aligned to 16 bytes at most"
    );
    const LINKS_AT: usize = offset_of!(Node<K, V>, links);
    const LEN_AT: usize = offset_of!(SortedHead<K, V>, len);

    /// The number of keys.
    pub fn len(&self) -> usize {
        let _look = self.held.look();
        // Capped, as a damaged head may hold any number.
        let core = self.held.core();
        (core.load(self.held.at() + Self::LEN_AT) as usize).min(core.bytes())
    }

    /// Whether the map has no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The node that a link leads to; `None`: the link is null, or damaged.
    fn node(&self, word: u64) -> Option<Found<K>> {
        let at = offset_of_word(word)?;
        let core = self.held.core();
        let bytes = core.bytes();
        // Objects begin at a multiple of 16, behind the metadata of a region: a link there would have it changed.
        let fits = || {
            let block = BlockId::of(at);
            at.is_multiple_of(16) && block >= first_block(block.region())
        };
        if at >= bytes || !fits() || bytes - at < size_of::<Node<K, V>>() {
            return None;
        }
        let height = core.load(at) as usize;
        let is_one = (1..=LEVELS).contains(&height) && bytes - at >= Self::LINKS_AT + height * 8;
        // SAFETY: within the heap; any bytes are a key.
        let key = || unsafe {
            core.at(at + offset_of!(Node<K, V>, key)).as_ptr().cast::<K>().read_unaligned()
        };
        is_one.then(|| Found { at, height, key: key() })
    }

    fn value(&self, node: usize) -> V {
        let at = self.held.core().at(node + offset_of!(Node<K, V>, value));
        // SAFETY: of a node, which lies within the heap; any bytes are a value.
        unsafe { at.as_ptr().cast::<V>().read_unaligned() }
    }

    /// Where the link before a key is, at each level from the lowest on.
    fn before(&self, key: &K) -> [usize; LEVELS] {
        self.before_by(|other| *other < *key)
    }

    /// Where the link behind all keys for which `is_before` holds is, at each level from the lowest on.
    fn before_by(&self, is_before: impl Fn(&K) -> bool) -> [usize; LEVELS] {
        let mut places: [usize; LEVELS] = core::array::from_fn(|level| self.held.at() + level * 8);
        let mut links = self.held.at();
        let mut last: Option<K> = None;
        for level in (0..LEVELS).rev() {
            while let Some(node) = self.node(self.held.core().load(links + level * 8)) {
                // Keys that do not rise are damage: the links may form a cycle.
                let is_damaged = last.is_some_and(|last| node.key <= last) || node.height <= level;
                if !is_before(&node.key) || is_damaged {
                    break;
                }
                (links, last) = (node.at + Self::LINKS_AT, Some(node.key));
            }
            places[level] = links + level * 8;
        }
        places
    }

    /// The node of a key, which the link at `place` leads to if the map has it.
    fn at(&self, place: usize, key: &K) -> Option<Found<K>> {
        self.node(self.held.core().load(place)).filter(|node| node.key == *key)
    }

    /// The value of a key. Expected time logarithmic in the number of keys, as of every search.
    pub fn get(&self, key: &K) -> Option<V> {
        let _look = self.held.look();
        self.at(self.before(key)[0], key).map(|node| self.value(node.at))
    }

    /// Whether the map has a key.
    pub fn contains_key(&self, key: &K) -> bool {
        let _look = self.held.look();
        self.at(self.before(key)[0], key).is_some()
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
    /// As for [`SortedMap::insert`].
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
    /// # Errors
    /// As for [`SortedMap::insert`].
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
        let places = self.before(&key);
        let found = self.at(places[0], &key);
        let before = found.as_ref().map(|node| self.value(node.at));
        let mut value = value(before);
        if let Some(node) = found {
            if size_of::<V>() == 0 {
                return Ok(before);
            }
            op.change(&[Part::of(node.at + offset_of!(Node<K, V>, value), &mut value)])?;
            return Ok(before);
        }
        let core = op.core();
        let height = self.height();
        let bytes = Self::LINKS_AT + height * 8;
        let at = op.alloc(bytes, 16)?;
        core.store(at, height as u64);
        // SAFETY: an object that nothing leads to yet.
        unsafe {
            store(&core.medium, at + offset_of!(Node<K, V>, key), bytes_of(&mut key));
            store(&core.medium, at + offset_of!(Node<K, V>, value), bytes_of(&mut value));
        }
        for (level, place) in places.iter().enumerate().take(height) {
            core.store(at + Self::LINKS_AT + level * 8, core.load(*place));
        }
        core.write_back(at, bytes);
        core.fence();
        let word = PPtr::<u8>::to(at).raw();
        let len = Part::Word(self.held.at() + Self::LEN_AT, self.len() as u64 + 1);
        if let Err(why) = op.change(&[Part::Word(places[0], word), len]) {
            // SAFETY: nothing leads to it.
            unsafe { op.give_back(at) };
            return Err(why);
        }
        for place in &places[1..height] {
            // Without this link searches take longer, and find the same.
            let _ = Self::set_upper_link(&mut op, *place, word);
        }
        Ok(None)
    }

    /// Stores a link of an upper level. Outside of a transaction it becomes durable with the next fence.
    fn set_upper_link(op: &mut Op<'_, H::Medium>, place: usize, word: u64) -> Result<(), Error> {
        if op.transaction().is_some() {
            return op.change(&[Part::Word(place, word)]);
        }
        op.core().store(place, word);
        op.core().write_back(place, 8);
        Ok(())
    }

    /// The number of levels of a new node: one in four nodes of a level is in the next.
    fn height(&self) -> usize {
        let drawn = mix(spandrel_os::clock::nanos(), self.len() as u64);
        (drawn.trailing_zeros() as usize / 2 + 1).min(LEVELS)
    }

    /// Removes a key, and returns its value.
    ///
    /// # Errors
    /// As for [`SortedMap::insert`].
    pub fn remove(&mut self, key: &K) -> Result<Option<V>, Error> {
        let mut op = self.held.op()?;
        self.remove_in(&mut op, key)
    }

    /// Removes all keys for which `stays` returns false, at once.
    ///
    /// Takes memory of the process meanwhile, a bit for each key; and room in the heap, about 130 bytes for each key that is removed.
    ///
    /// # Errors
    /// As for [`SortedMap::insert`].
    pub fn retain(&mut self, mut stays: impl FnMut(&K, &V) -> bool) -> Result<(), Error> {
        let mut op = self.held.op()?;
        // The closure runs before anything changes, and under no lock.
        let bits = self.keys().count();
        let goes = Table::<AtomicU64>::reserve(bits.div_ceil(64))?;
        goes.ensure(bits.div_ceil(64))?;
        let mut are_any = false;
        for (number, (key, value)) in self.iter().enumerate() {
            if let Some(word) = goes.all().get(number / 64).filter(|_| !stays(&key, &value)) {
                word.fetch_or(1 << (number % 64), Relaxed);
                are_any = true;
            }
        }
        if !are_any {
            return Ok(());
        }
        if op.transaction().is_none() {
            return op.at_once(|op| self.remove_all(op, &goes));
        }
        let nested = Transaction::begin(op.core())?;
        self.remove_all(&mut op, &goes)?;
        nested.commit()
    }

    /// Removes the keys of which the bit is set, by their numbers in order.
    fn remove_all(&self, op: &mut Op<'_, H::Medium>, goes: &Table<AtomicU64>) -> Result<(), Error> {
        let is_gone = |number: usize| {
            let word = goes.all().get(number / 64).map_or(0, |word| word.load(Relaxed));
            word >> (number % 64) & 1 != 0
        };
        let (mut from, mut number) = (Bound::Unbounded, 0);
        loop {
            let key = self.range((from, Bound::Unbounded)).map(|(key, _)| key).find(|_| {
                number += 1;
                is_gone(number - 1)
            });
            let Some(key) = key else { return Ok(()) };
            self.remove_in(op, &key)?;
            from = Bound::Excluded(key);
        }
    }

    /// The first key and its value, in constant time.
    pub fn first(&self) -> Option<(K, V)> {
        self.iter().next()
    }

    /// The last key and its value.
    pub fn last(&self) -> Option<(K, V)> {
        let _look = self.held.look();
        let place = self.before_by(|_| true)[0];
        let at = place.checked_sub(Self::LINKS_AT)?;
        (place != self.held.at()).then(|| {
            let node = self.node(PPtr::<u8>::to(at).raw())?;
            Some((node.key, self.value(node.at)))
        })?
    }

    /// Removes the first key, and returns it with its value.
    ///
    /// # Errors
    /// As for [`SortedMap::insert`].
    pub fn pop_first(&mut self) -> Result<Option<(K, V)>, Error> {
        let mut op = self.held.op()?;
        let Some((key, _)) = self.first() else { return Ok(None) };
        Ok(self.remove_in(&mut op, &key)?.map(|value| (key, value)))
    }

    /// Removes the last key, and returns it with its value.
    ///
    /// # Errors
    /// As for [`SortedMap::insert`].
    pub fn pop_last(&mut self) -> Result<Option<(K, V)>, Error> {
        let mut op = self.held.op()?;
        let Some((key, _)) = self.last() else { return Ok(None) };
        Ok(self.remove_in(&mut op, &key)?.map(|value| (key, value)))
    }

    /// All keys from `key` on and their values, in order; `None`: from the first on.
    pub fn from(&self, key: Option<&K>) -> impl Iterator<Item = (K, V)> {
        self.range((key.map_or(Bound::Unbounded, |key| Bound::Included(*key)), Bound::Unbounded))
    }

    /// Where the link to the first key of a range is.
    fn begin_of(&self, bound: Bound<&K>) -> usize {
        match bound {
            Bound::Unbounded => self.held.at(),
            Bound::Included(from) => self.before(from)[0],
            Bound::Excluded(from) => self.before_by(|key| *key <= *from)[0],
        }
    }

    /// All keys of a range and their values, in order. A range that ends before it begins is empty.
    pub fn range(&self, range: impl RangeBounds<K>) -> impl Iterator<Item = (K, V)> {
        let _look = self.held.look();
        let mut watch = self.held.watch();
        let mut place = self.begin_of(range.start_bound());
        let mut last: Option<K> = None;
        core::iter::from_fn(move || {
            let (_look, is_void) = self.held.step(&mut watch);
            if is_void {
                place = self.begin_of(last.as_ref().map_or(range.start_bound(), Bound::Excluded));
            }
            let node = self.node(self.held.core().load(place))?;
            let is_behind = match range.end_bound() {
                Bound::Unbounded => false,
                Bound::Included(to) => node.key > *to,
                Bound::Excluded(to) => node.key >= *to,
            };
            if is_behind || last.replace(node.key).is_some_and(|last| node.key <= last) {
                return None;
            }
            place = node.at + Self::LINKS_AT;
            Some((node.key, self.value(node.at)))
        })
    }

    /// All keys and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (K, V)> {
        self.range(..)
    }

    /// All keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = K> {
        self.iter().map(|(key, _)| key)
    }

    /// All values, in the order of their keys.
    pub fn values(&self) -> impl Iterator<Item = V> {
        self.iter().map(|(_, value)| value)
    }
}
