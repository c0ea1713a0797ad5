//! A sorted map: a skip list. A key is there if the lowest list has it; the lists above are short cuts, which may be
//! missing after a failure and are not missed.

use core::marker::PhantomData;

use spandrel_pmem::{Media, Medium};

use super::Change;
use crate::error::Error;
use crate::heap::Heap;
use crate::layout::BLOCK_BYTES;
use crate::pointer::{PPtr, offset_of};
use crate::trace::{Trace, Tracer, hash, mix};

/// Lists at most; each has a quarter of the keys of the one below.
const LISTS: usize = 16;

/// What a root leads to that is a sorted map.
#[repr(C)]
pub struct SortedHead<K, V> {
    links: [PPtr<Node<K, V>>; LISTS],
    len: u64,
}

#[repr(C)]
struct Node<K, V> {
    /// Lists that it is in.
    height: u64,
    key: K,
    value: V,
    links: [PPtr<Node<K, V>>; 0],
}

// SAFETY: pointers and a number.
unsafe impl<K: Trace, V: Trace> Trace for SortedHead<K, V> {
    const LAYOUT: u64 = mix(mix(hash("SortedHead", LISTS as u64), K::LAYOUT), V::LAYOUT);

    fn trace(&self, tracer: &mut Tracer<'_>) {
        self.links.trace(tracer);
    }
}

// SAFETY: a number, a key, a value, and pointers behind them.
unsafe impl<K: Trace, V: Trace> Trace for Node<K, V> {
    const LAYOUT: u64 = <SortedHead<K, V>>::LAYOUT;

    fn trace(&self, tracer: &mut Tracer<'_>) {
        self.key.trace(tracer);
        self.value.trace(tracer);
        tracer.behind::<PPtr<Self>>(self.links.as_ptr(), (self.height as usize).min(LISTS));
    }
}

/// A sorted map in a heap.
pub struct SortedMap<'h, K, V, M: Medium = Media> {
    heap: &'h Heap<M>,
    /// Where the head is.
    at: usize,
    of: PhantomData<(K, V)>,
}

impl<'h, K: Trace + Copy + Ord, V: Trace + Copy, M: Medium> SortedMap<'h, K, V, M> {
    const FITS: () =
        assert!(align_of::<Node<K, V>>() <= 16 && size_of::<V>() <= super::VALUE_BYTES);
    const LINKS_AT: usize = core::mem::offset_of!(Node<K, V>, links);
    const LEN_AT: usize = core::mem::offset_of!(SortedHead<K, V>, len);

    /// The map of a name, made if there is none.
    ///
    /// # Errors
    /// As for [`Heap::root`] and [`Heap::alloc`].
    pub fn open(heap: &'h Heap<M>, name: &str) -> Result<Self, Error> {
        let new = |heap: &'h Heap<M>| {
            heap.new_object(SortedHead::<K, V> { links: [PPtr::NULL; LISTS], len: 0 })
        };
        Self::of(heap, heap.root::<SortedHead<K, V>>(name)?.get_or(new)?)
    }

    /// The map that a pointer leads to.
    ///
    /// # Errors
    /// [`Error::Foreign`].
    pub fn of(heap: &'h Heap<M>, head: PPtr<SortedHead<K, V>>) -> Result<Self, Error> {
        const { Self::FITS };
        Ok(Self { heap, at: heap.place_of(head)?, of: PhantomData })
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        // No more than there is room for, whatever a damaged heap says.
        let core = self.heap.core();
        (core.load(self.at + Self::LEN_AT) as usize).min(core.bytes())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What a node holds; `None`: the pointer leads to none.
    fn node(&self, word: u64) -> Option<(usize, Node<K, V>)> {
        let at = offset_of(word)?;
        let bytes = self.heap.bytes();
        // Objects begin at a multiple of 16, behind the first block.
        let fits = at.is_multiple_of(16) && (BLOCK_BYTES..bytes).contains(&at);
        if !fits || bytes - at < size_of::<Node<K, V>>() {
            return None;
        }
        let node = self.heap.core().at(at).as_ptr().cast::<Node<K, V>>();
        // SAFETY: within the heap; any bytes are a value.
        let node = unsafe { node.read_unaligned() };
        let height = node.height as usize;
        let is_one = (1..=LISTS).contains(&height) && bytes - at >= Self::LINKS_AT + height * 8;
        is_one.then_some((at, node))
    }

    /// Where the links before a key are, in each list, from the lowest on.
    fn before(&self, key: &K) -> [usize; LISTS] {
        let mut places: [usize; LISTS] = core::array::from_fn(|list| self.at + list * 8);
        let mut links = self.at;
        let mut last: Option<K> = None;
        for list in (0..LISTS).rev() {
            while let Some((at, node)) = self.node(self.heap.core().load(links + list * 8)) {
                // Keys that do not rise are damage, and might go round in circles.
                let is_damaged =
                    last.is_some_and(|last| node.key <= last) || node.height as usize <= list;
                if node.key >= *key || is_damaged {
                    break;
                }
                (links, last) = (at + Self::LINKS_AT, Some(node.key));
            }
            places[list] = links + list * 8;
        }
        places
    }

    /// The node of a key, behind its place in the lowest list.
    fn at(&self, place: usize, key: &K) -> Option<(usize, Node<K, V>)> {
        self.node(self.heap.core().load(place)).filter(|(_, node)| node.key == *key)
    }

    /// The value of a key.
    pub fn get(&self, key: &K) -> Option<V> {
        self.at(self.before(key)[0], key).map(|(_, node)| node.value)
    }

    /// Gives a key a value. That which it had before.
    ///
    /// # Errors
    /// As for [`Heap::alloc`].
    pub fn insert(&mut self, key: K, value: V) -> Result<Option<V>, Error> {
        let places = self.before(&key);
        let mut change = Change::default();
        if let Some((at, node)) = self.at(places[0], &key) {
            change.value(self.heap, at + core::mem::offset_of!(Node<K, V>, value), &value)?;
            change.commit(self.heap);
            return Ok(Some(node.value));
        }
        let core = self.heap.core();
        let bytes = |height: usize| Self::LINKS_AT + height * 8;
        let height = self.height();
        let at = self.heap.new_bytes(bytes(height), 16)?;
        let node = Node::<K, V> { height: height as u64, key, value, links: [] };
        // SAFETY: an object that is nobody's yet.
        unsafe { self.heap.put(at, &node) };
        for (list, place) in places.iter().enumerate().take(height) {
            core.store(at + Self::LINKS_AT + list * 8, core.load(*place));
        }
        core.write_back(at, bytes(height));
        core.fence();
        let word = PPtr::<u8>::to(at).raw();
        change.word(places[0], word)?;
        change.word(self.at + Self::LEN_AT, self.len() as u64 + 1)?;
        change.commit(self.heap);
        for place in &places[1..height] {
            core.store(*place, word);
            core.write_back(*place, 8);
        }
        Ok(None)
    }

    /// In how many lists a new node is: one in four of each list in the next.
    fn height(&self) -> usize {
        let drawn = mix(spandrel_os::clock::nanos(), self.len() as u64);
        (drawn.trailing_zeros() as usize / 2 + 1).min(LISTS)
    }

    /// Takes a key away. Its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let places = self.before(key);
        let (at, node) = self.at(places[0], key)?;
        let core = self.heap.core();
        let word = PPtr::<u8>::to(at).raw();
        for (list, place) in places.iter().enumerate().skip(1).rev() {
            if core.load(*place) == word && list < node.height as usize {
                core.store(*place, core.load(at + Self::LINKS_AT + list * 8));
                core.write_back(*place, 8);
            }
        }
        // No short cut leads to it before the key is gone.
        core.fence();
        let mut change = Change::default();
        change.word(places[0], core.load(at + Self::LINKS_AT)).ok()?;
        change.word(self.at + Self::LEN_AT, (self.len() as u64).saturating_sub(1)).ok()?;
        change.commit(self.heap);
        // SAFETY: nothing leads to it any more. If it is no object the heap was damaged before.
        let _ = unsafe { self.heap.free(core.at(at)) };
        Some(node.value)
    }

    /// All keys and values from a key on, in order; `None`: from the first on.
    pub fn from(&self, key: Option<&K>) -> impl Iterator<Item = (K, V)> {
        let mut place = key.map_or(self.at, |key| self.before(key)[0]);
        let mut last: Option<K> = None;
        core::iter::from_fn(move || {
            let (at, node) = self.node(self.heap.core().load(place))?;
            if last.replace(node.key).is_some_and(|last| node.key <= last) {
                return None;
            }
            place = at + Self::LINKS_AT;
            Some((node.key, node.value))
        })
    }

    /// All keys and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (K, V)> {
        self.from(None)
    }
}
