//! The tree as it is read: nodes, separators, and the way to a key. Whatever a damaged heap holds, a look at it ends: the level of a child is
//! one below that of its parent.

use core::cmp::Ordering;

use spandrel_pmem::Medium;

use super::entry::Entry;
use super::node::{
    CHILDREN_AT, INNER_BYTES, KIND_AT, LEAF_BYTES, MAX_LEVELS, Order, PREFIX_BYTES, SLOT_BYTES,
    SLOTS, SLOTS_AT, level, prefix, skip,
};
use super::{HEIGHT_AT, LEN_AT};
use crate::layout::{BlockId, first_block};
use crate::pointer::offset_of as offset_of_word;
use crate::shared::Core;

/// A tree to be read.
pub(super) struct Tree<'c, M: Medium> {
    pub core: &'c Core<M>,
    /// Where its head is.
    pub head: usize,
}

impl<M: Medium> Clone for Tree<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Medium> Copy for Tree<'_, M> {}

/// A node that lies within the heap.
#[derive(Clone, Copy)]
pub(super) struct Node {
    pub at: usize,
    pub order: Order,
    /// 0: a leaf.
    pub level: usize,
    /// Bytes that all keys of its range have in common.
    pub skip: usize,
}

impl Node {
    /// Where a slot is.
    pub fn slot_at(&self, slot: usize) -> usize {
        self.at + SLOTS_AT + slot * SLOT_BYTES
    }

    /// Where the child of a slot is.
    pub fn child_of(&self, slot: usize) -> usize {
        self.at + CHILDREN_AT + slot * 8
    }

    /// Where the child at a place is: 0 is what comes before all separators.
    pub fn child_at(&self, place: usize) -> usize {
        self.child_of(place.checked_sub(1).map_or(SLOTS, |before| self.order.slot(before)))
    }
}

/// A node on the way to a key, and the place of the way in it: of a child, or of a slot in use.
#[derive(Clone, Copy)]
pub(super) struct Step {
    pub node: Node,
    pub place: usize,
}

/// Nodes from the root on.
pub(super) struct Path {
    steps: [Step; MAX_LEVELS + 1],
    len: usize,
}

impl Path {
    pub const fn new() -> Self {
        let node = Node { at: 0, order: Order::EMPTY, level: 0, skip: 0 };
        Self { steps: [Step { node, place: 0 }; MAX_LEVELS + 1], len: 0 }
    }

    pub fn steps(&self) -> &[Step] {
        &self.steps[..self.len]
    }

    pub fn last_mut(&mut self) -> Option<&mut Step> {
        self.steps[..self.len].last_mut()
    }

    /// Goes on to a node. Levels fall on the way, so that there is room.
    pub fn push(&mut self, node: Node, place: usize) {
        if let Some(step) = self.steps.get_mut(self.len) {
            *step = Step { node, place };
            self.len += 1;
        }
    }

    pub fn pop(&mut self) -> Option<Step> {
        self.len = self.len.checked_sub(1)?;
        Some(self.steps[self.len])
    }
}

/// A separator: the least key of what is behind it. In up to three parts, as a node has only the end of a short one.
#[derive(Clone, Copy)]
pub(super) struct Separator<'k> {
    pub begin: &'k [u8],
    end: [u8; PREFIX_BYTES],
    end_len: usize,
}

impl<'k> Separator<'k> {
    /// Of all its bytes.
    pub fn of(bytes: &'k [u8]) -> Self {
        Self { begin: bytes, end: [0; PREFIX_BYTES], end_len: 0 }
    }

    /// Of the bytes that a node leaves out, and those of a slot and its word.
    pub fn short(begin: &'k [u8], prefix: u64, word: u64) -> Self {
        Self { begin, end: prefix.to_be_bytes(), end_len: short_len(word) }
    }

    /// What follows the beginning.
    pub fn end(&self) -> &[u8] {
        &self.end[..self.end_len]
    }

    pub fn len(&self) -> usize {
        self.begin.len() + self.end_len
    }

    fn bytes(&self) -> impl Iterator<Item = u8> {
        self.begin.iter().chain(self.end()).copied()
    }

    /// The number of bytes that both begin with.
    pub fn common(&self, other: &Self) -> usize {
        self.bytes().zip(other.bytes()).take_while(|(one, two)| one == two).count()
    }

    /// The eight bytes of a slot where `skip` bytes are in common.
    pub fn prefix(&self, skip: usize) -> u64 {
        let first = self.bytes().skip(skip).take(PREFIX_BYTES).enumerate();
        first.fold(0, |prefix, (at, byte)| prefix | u64::from(byte) << (56 - 8 * at))
    }
}

/// The number of bytes in common of all keys between two separators; `None`: there is none on that side.
pub(super) fn common(low: Option<Separator<'_>>, high: Option<Separator<'_>>) -> usize {
    low.zip(high).map_or(0, |(low, high)| low.common(&high))
}

/// What a slot's word says of a separator that is in the slot: how many bytes it has there.
pub(super) fn short_len(word: u64) -> usize {
    (word as usize).min(PREFIX_BYTES)
}

/// What follows the bytes in common.
fn behind(key: &[u8], skip: usize) -> &[u8] {
    key.get(skip..).unwrap_or(&[])
}

impl<'c, M: Medium> Tree<'c, M> {
    /// The offset of the object that a word points to. `None`: an object of that size cannot lie there (beyond the heap, in the metadata of a region, unaligned).
    #[inline]
    pub fn object(&self, word: u64, least: usize) -> Option<usize> {
        let at = offset_of_word(word)?;
        let bytes = self.core.bytes();
        let block = BlockId::of(at);
        let is_one = at < bytes
            && bytes - at >= least
            && at.is_multiple_of(16)
            && block >= first_block(block.region());
        is_one.then_some(at)
    }

    /// The node of a level that a word leads to; `None`: there is none, or it is damaged.
    #[inline]
    pub fn node(&self, word: u64, of_level: usize) -> Option<Node> {
        let least = if of_level == 0 { LEAF_BYTES } else { INNER_BYTES };
        let at = self.object(word, least)?;
        self.fetch(at, least);
        let kind = self.core.load(at + KIND_AT);
        let order = Order(self.core.load(at));
        let node = Node { at, order, level: level(kind), skip: skip(kind) };
        (node.level == of_level).then_some(node)
    }

    /// Has the lines of a node fetched at once: a search looks at several of them.
    #[inline]
    fn fetch(&self, at: usize, bytes: usize) {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        for line in (0..bytes).step_by(64) {
            // SAFETY: to fetch changes nothing.
            unsafe { _mm_prefetch(self.core.at(at + line).as_ptr().cast(), _MM_HINT_T0) };
        }
    }

    /// The number of levels above the leaves.
    pub fn height(&self) -> usize {
        self.core.load(self.head + HEIGHT_AT) as usize
    }

    /// The number of keys that the head says, capped, as a damaged head may hold any.
    pub fn len(&self) -> usize {
        (self.core.load(self.head + LEN_AT) as usize).min(self.core.bytes())
    }

    /// Places of children and ends of nodes that a walk through the tree meets at most: four for each node that the heap has room for, as no
    /// two empty places are beside each other.
    pub fn most_places(&self) -> usize {
        self.core.bytes() / LEAF_BYTES * 4
    }

    /// The root; `None`: the map has no key.
    #[inline]
    pub fn root(&self) -> Option<Node> {
        let height = self.height();
        (height <= MAX_LEVELS).then(|| self.node(self.core.load(self.head), height))?
    }

    /// The word of a child.
    #[inline]
    pub fn child(&self, node: &Node, place: usize) -> u64 {
        self.core.load(node.child_at(place))
    }

    /// The node of a child; `None`: no key is there.
    #[inline]
    pub fn child_node(&self, node: &Node, place: usize) -> Option<Node> {
        self.node(self.child(node, place), node.level.checked_sub(1)?)
    }

    /// The prefix and the word of the slot at a place.
    #[inline]
    pub fn slot(&self, node: &Node, place: usize) -> (u64, u64) {
        let at = node.slot_at(node.order.slot(place));
        (self.core.load(at), self.core.load(at + 8))
    }

    /// The entry at a place of a leaf.
    #[inline]
    pub fn entry_at(&self, leaf: &Node, place: usize) -> Option<Entry<'c>> {
        self.entry(self.slot(leaf, place).1)
    }

    /// Compares a key with that of a slot whose eight bytes are equal.
    fn compare(&self, node: &Node, word: u64, key: &[u8]) -> Ordering {
        if node.level > 0 && offset_of_word(word).is_none() {
            // Both have the same bytes up to zeroes: the longer one comes later.
            return key.len().saturating_sub(node.skip).cmp(&short_len(word));
        }
        let entry = self.entry(word);
        entry.map_or(Ordering::Less, |entry| {
            behind(key, node.skip).cmp(behind(entry.key, node.skip))
        })
    }

    /// The place of a key in a node (`Ok`: a slot has the key), in about four comparisons.
    #[inline]
    pub fn search(&self, node: &Node, key: &[u8]) -> Result<usize, usize> {
        let wanted = prefix(key, node.skip);
        let (mut from, mut to) = (0, node.order.len());
        while from < to {
            let middle = (from + to) / 2;
            let at = node.slot_at(node.order.slot(middle));
            let ordering = match wanted.cmp(&self.core.load(at)) {
                Ordering::Equal => self.compare(node, self.core.load(at + 8), key),
                ordering => ordering,
            };
            match ordering {
                Ordering::Less => to = middle,
                Ordering::Greater => from = middle + 1,
                Ordering::Equal => return Ok(middle),
            }
        }
        Err(from)
    }

    /// The place of the child whose range has a key.
    #[inline]
    pub fn child_place(&self, node: &Node, key: &[u8]) -> usize {
        self.search(node, key).map_or_else(|place| place, |equal| equal + 1)
    }

    /// The entry of a key.
    pub fn find(&self, key: &[u8]) -> Option<Entry<'c>> {
        let mut node = self.root()?;
        while node.level > 0 {
            node = self.child_node(&node, self.child_place(&node, key))?;
        }
        let place = self.search(&node, key).ok()?;
        self.entry_at(&node, place)
    }

    /// The way to a key: it ends in a leaf (true: at the slot that has the key), at a child that is not there, or before the root.
    pub fn path(&self, key: &[u8]) -> (Path, bool) {
        let mut path = Path::new();
        let mut next = self.root();
        while let Some(node) = next {
            if node.level == 0 {
                let place = self.search(&node, key);
                path.push(node, place.unwrap_or_else(|place| place));
                return (path, place.is_ok());
            }
            let place = self.child_place(&node, key);
            path.push(node, place);
            next = self.child_node(&node, place);
        }
        (path, false)
    }

    /// The separator of a slot of a node on the way to a key, which has the bytes that the node leaves out.
    pub fn separator<'k>(
        &self,
        skip: usize,
        (prefix, word): (u64, u64),
        key: &'k [u8],
    ) -> Separator<'k>
    where
        'c: 'k,
    {
        match self.entry(word) {
            Some(entry) => Separator::of(entry.key),
            None => Separator::short(key.get(..skip).unwrap_or(key), prefix, word),
        }
    }

    /// The separators between which the keys behind a way are. A missing one: there is no bound on that side.
    pub fn bounds<'k>(
        &self,
        way: &[Step],
        key: &'k [u8],
    ) -> (Option<Separator<'k>>, Option<Separator<'k>>)
    where
        'c: 'k,
    {
        let before = way.iter().rev().find(|step| step.place > 0);
        let behind = way.iter().rev().find(|step| step.place < step.node.order.len());
        let separator =
            |step: &Step, place| self.separator(step.node.skip, self.slot(&step.node, place), key);
        (
            before.map(|step| separator(step, step.place - 1)),
            behind.map(|step| separator(step, step.place)),
        )
    }
}
