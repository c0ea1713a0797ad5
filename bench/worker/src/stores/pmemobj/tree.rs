//! A sorted map in a pool: a B+ tree, whose values are objects of their own.
//!
//! Nodes of all levels are alike: pairs of a key and a link, sorted. A leaf's links lead to values. An inner node's links lead to nodes. All keys there are
//! less than the next pair's key, and none is less than the pair's own. The first pair's own key has no meaning: what is less than the second one's is there.
//!
//! A node's pairs end where a link is 0, or where the node does. A number of pairs would be one more range to note for each change.

use super::pool::{Pool, Transaction};
use spandrel_stores::Key;
use std::cmp::Ordering;
use std::ops::Range;

/// Pairs of a node.
const ORDER: usize = 16;
/// The longest value that is written over. What was there is noted first, so that a longer value takes less time as a new object.
const IN_PLACE_MOST: usize = 8 << 10;
/// Pairs that a full node keeps when it is split.
const HALF: usize = ORDER / 2;

#[repr(C)]
#[derive(Clone, Copy)]
struct Pair {
    key: Key,
    /// An offset in the pool.
    link: u64,
}

type Node = [Pair; ORDER];

const NO_PAIR: Pair = Pair { key: [0; _], link: 0 };

/// What a value begins with; its bytes follow.
#[repr(C)]
struct Value {
    len: u64,
}

/// What the pool's root is.
#[repr(C)]
struct Root {
    /// The uppermost node; 0: there is none.
    top: u64,
    /// Levels below it.
    height: u64,
}

/// What a walk shows a pair to; false ends it.
type See<'s> = &'s mut dyn FnMut(&[u8], &[u8]) -> bool;

/// The map.
pub struct Map {
    pool: Pool,
    root: *mut Root,
}

// SAFETY: the root is the pool's, and a pool may be used by all threads.
unsafe impl Send for Map {}
// SAFETY: as above; a map that threads have in common is only read.
unsafe impl Sync for Map {}

/// The place of a leaf's key, or where it belongs.
fn find(node: &Node, key: &Key) -> Result<usize, usize> {
    node.binary_search_by(|pair| match pair.link {
        0 => Ordering::Greater,
        _ => pair.key.cmp(key),
    })
}

/// The place of the link that leads to a key.
fn toward(node: &Node, key: &Key) -> usize {
    node[1..].partition_point(|pair| pair.link != 0 && pair.key <= *key)
}

/// The pairs of a node.
fn pairs(node: &Node) -> &[Pair] {
    &node[..node.partition_point(|pair| pair.link != 0)]
}

/// A node of these pairs.
fn node_of(pairs: &[Pair]) -> Node {
    let mut node = [NO_PAIR; ORDER];
    node[..pairs.len()].copy_from_slice(pairs);
    node
}

/// Puts a pair at a place of a node that has room for one more.
fn insert(node: &mut Node, place: usize, pair: Pair) {
    node.copy_within(place..ORDER - 1, place + 1);
    node[place] = pair;
}

impl Map {
    /// The map of a pool, which is empty if the pool is new.
    pub fn of(mut pool: Pool) -> Result<Self, String> {
        let root = pool.root()?;
        Ok(Self { pool, root })
    }

    /// Ends it in good order.
    pub fn close(self) {
        self.pool.close();
    }

    /// The value of a key.
    pub fn get(&self, key: &Key) -> Option<&[u8]> {
        let (mut at, height) = self.top()?;
        for _ in 0..height {
            let node = self.node(at);
            at = node[toward(node, key)].link;
        }
        let leaf = self.node(at);
        find(leaf, key).ok().map(|place| self.value(leaf[place].link))
    }

    /// Shows pairs by rising keys, from a key on if one is named.
    pub fn rising(&self, from: Option<&Key>, see: See<'_>) {
        if let Some((at, height)) = self.top() {
            self.rising_below(at, height, from, see);
        }
    }

    /// Shows pairs by falling keys.
    pub fn falling(&self, see: See<'_>) {
        if let Some((at, height)) = self.top() {
            self.falling_below(at, height, see);
        }
    }

    /// Sets values, all or none.
    pub fn put<'r>(
        &mut self,
        mut records: impl Iterator<Item = (&'r Key, &'r [u8])>,
    ) -> Result<(), String> {
        self.change(records.size_hint().0 > 1, |change| {
            records.try_for_each(|(key, value)| change.put(key, value))
        })
    }

    /// Removes keys, all or none; one that is not there is left out.
    pub fn remove(&mut self, keys: &[Key]) -> Result<(), String> {
        self.change(keys.len() > 1, |change| keys.iter().try_for_each(|key| change.remove(key)))
    }

    fn change(
        &mut self,
        is_long: bool,
        work: impl FnOnce(&mut Change<'_, '_>) -> Result<(), String>,
    ) -> Result<(), String> {
        let map = &*self;
        // SAFETY: the map is this thread's alone, and so is its pool.
        unsafe {
            map.pool.within(is_long, |transaction| work(&mut Change { map, transaction, is_long }))
        }
    }

    fn top(&self) -> Option<(u64, u64)> {
        // SAFETY: the pool's root is there as long as the pool.
        let Root { top, height } = unsafe { self.root.read() };
        (top != 0).then_some((top, height))
    }

    fn node(&self, link: u64) -> &Node {
        // SAFETY: a node of the map's, and all bytes of one are set.
        unsafe { &*self.pool.at(link) }
    }

    fn value(&self, link: u64) -> &[u8] {
        let value: *const Value = self.pool.at(link);
        // SAFETY: a value of the map's, whose bytes follow its length.
        unsafe { std::slice::from_raw_parts(value.add(1).cast(), (*value).len as usize) }
    }

    fn rising_below(&self, at: u64, height: u64, from: Option<&Key>, see: See<'_>) -> bool {
        let node = self.node(at);
        let first = match (from, height) {
            (None, _) => 0,
            (Some(key), 0) => find(node, key).unwrap_or_else(|place| place),
            (Some(key), _) => toward(node, key),
        };
        pairs(node)[first..].iter().all(|pair| match height {
            0 => see(&pair.key, self.value(pair.link)),
            _ => self.rising_below(pair.link, height - 1, from, see),
        })
    }

    fn falling_below(&self, at: u64, height: u64, see: See<'_>) -> bool {
        pairs(self.node(at)).iter().rev().all(|pair| match height {
            0 => see(&pair.key, self.value(pair.link)),
            _ => self.falling_below(pair.link, height - 1, see),
        })
    }
}

/// A map that changes in a transaction. What [`Map::node`] shows is not kept beyond a change.
struct Change<'m, 't> {
    map: &'m Map,
    transaction: &'t mut Transaction<'m>,
    is_long: bool,
}

impl Change<'_, '_> {
    fn put(&mut self, key: &Key, value: &[u8]) -> Result<(), String> {
        let Some((top, height)) = self.map.top() else {
            let link = self.new_value(value)?;
            let top = self.new_node(&node_of(&[Pair { key: *key, link }]))?;
            return self.set_root(Root { top, height: 0 });
        };
        match self.put_below(top, height, key, value)? {
            None => Ok(()),
            Some(beside) => {
                let first = Pair { link: top, ..NO_PAIR };
                let top = self.new_node(&node_of(&[first, beside]))?;
                self.set_root(Root { top, height: height + 1 })
            }
        }
    }

    /// Puts a value somewhere below a node; returns a node that is to be its neighbour.
    fn put_below(
        &mut self,
        at: u64,
        height: u64,
        key: &Key,
        value: &[u8],
    ) -> Result<Option<Pair>, String> {
        let node = self.map.node(at);
        if height > 0 {
            let place = toward(node, key);
            let below = self.put_below(node[place].link, height - 1, key, value)?;
            return below.map_or(Ok(None), |pair| self.insert(at, place + 1, pair));
        }
        match find(node, key) {
            Ok(place) => self.overwrite(at, place, value).map(|()| None),
            Err(place) => {
                let link = self.new_value(value)?;
                self.insert(at, place, Pair { key: *key, link })
            }
        }
    }

    /// Gives a node one more pair; returns a node that is to be its neighbour.
    fn insert(&mut self, at: u64, place: usize, pair: Pair) -> Result<Option<Pair>, String> {
        let mut node = *self.map.node(at);
        let len = pairs(&node).len();
        if len < ORDER {
            insert(&mut node, place, pair);
            return self.store(at, &node, place..len + 1).map(|()| None);
        }
        // Keys that rise leave full nodes behind.
        if place == ORDER {
            let link = self.new_node(&node_of(&[pair]))?;
            return Ok(Some(Pair { link, ..pair }));
        }
        let mut beside = node_of(&node[HALF..]);
        node[HALF..].fill(NO_PAIR);
        if place <= HALF {
            insert(&mut node, place, pair);
        } else {
            insert(&mut beside, place - HALF, pair);
        }
        self.store(at, &node, place.min(HALF)..ORDER)?;
        let link = self.new_node(&beside)?;
        Ok(Some(Pair { link, ..beside[0] }))
    }

    fn remove(&mut self, key: &Key) -> Result<(), String> {
        let Some((mut top, mut height)) = self.map.top() else { return Ok(()) };
        let was = top;
        self.remove_below(top, height, key)?;
        while let [only] = pairs(self.map.node(top))
            && height > 0
        {
            let link = only.link;
            self.free(top)?;
            (top, height) = (link, height - 1);
        }
        if pairs(self.map.node(top)).is_empty() {
            self.free(top)?;
            (top, height) = (0, 0);
        }
        if top == was { Ok(()) } else { self.set_root(Root { top, height }) }
    }

    /// Removes a key somewhere below a node, and nodes below it that become empty.
    fn remove_below(&mut self, at: u64, height: u64, key: &Key) -> Result<(), String> {
        let mut node = *self.map.node(at);
        let place = if height == 0 { find(&node, key).ok() } else { Some(toward(&node, key)) };
        let Some(place) = place else { return Ok(()) };
        let link = node[place].link;
        if height > 0 {
            self.remove_below(link, height - 1, key)?;
            if !pairs(self.map.node(link)).is_empty() {
                return Ok(());
            }
        }
        let len = pairs(&node).len();
        node.copy_within(place + 1.., place);
        node[ORDER - 1] = NO_PAIR;
        self.store(at, &node, place..len)?;
        self.free(link)
    }

    /// Sets a value that is there.
    fn overwrite(&mut self, leaf: u64, place: usize, value: &[u8]) -> Result<(), String> {
        let mut node = *self.map.node(leaf);
        let link = node[place].link;
        let old = self.map.value(link);
        if old.len() == value.len() && value.len() <= IN_PLACE_MOST {
            let bytes = old.as_ptr().cast_mut();
            self.transaction.note(bytes, value.len())?;
            // SAFETY: the bytes were noted, and what is copied lies elsewhere.
            unsafe { bytes.copy_from_nonoverlapping(value.as_ptr(), value.len()) };
            return Ok(());
        }
        node[place].link = self.new_value(value)?;
        self.store(leaf, &node, place..place + 1)?;
        self.free(link)
    }

    fn new_value(&mut self, bytes: &[u8]) -> Result<u64, String> {
        let link = self.transaction.alloc(size_of::<Value>() + bytes.len())?;
        let value: *mut Value = self.map.pool.at(link);
        // SAFETY: an object of that size.
        unsafe {
            value.write(Value { len: bytes.len() as u64 });
            value.add(1).cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        Ok(link)
    }

    fn new_node(&mut self, node: &Node) -> Result<u64, String> {
        let link = self.transaction.alloc(size_of::<Node>())?;
        // SAFETY: an object of that size.
        unsafe { self.map.pool.at::<Node>(link).write(*node) };
        Ok(link)
    }

    /// Frees a node or a value that nothing leads to any more.
    fn free(&mut self, link: u64) -> Result<(), String> {
        // SAFETY: an object of the map's; the link to it is gone with the transaction.
        unsafe { self.transaction.free(link) }
    }

    fn set_root(&mut self, root: Root) -> Result<(), String> {
        self.transaction.note(self.map.root, size_of::<Root>())?;
        // SAFETY: the pool's root, which was noted.
        unsafe { self.map.root.write(root) };
        Ok(())
    }

    /// Makes pairs of a node what they are in a copy that was changed.
    fn store(&mut self, at: u64, changed: &Node, places: Range<usize>) -> Result<(), String> {
        let node = self.map.pool.at::<Pair>(at);
        // A long transaction changes a node more than once, and notes it once.
        let noted = if self.is_long { 0..ORDER } else { places.clone() };
        self.transaction.note(node.wrapping_add(noted.start), size_of_val(&changed[noted]))?;
        let (first, pairs) = (node.wrapping_add(places.start), &changed[places]);
        // SAFETY: the node's pairs of these places, which were noted; the copy lies elsewhere.
        unsafe { first.copy_from_nonoverlapping(pairs.as_ptr(), pairs.len()) };
        Ok(())
    }
}
