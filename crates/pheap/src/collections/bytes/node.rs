//! Nodes of the tree: their layout, and the word that orders the slots of one.

use core::mem::offset_of;

use crate::pointer::PPtr;

use super::entry::EntryHead;

/// Slots of a node: as many as a word orders by four bits each, beside their count (Masstree, section 4.6.2).
pub(super) const SLOTS: usize = 15;
/// Levels above the leaves at most. A node divides when 15 of its slots are in use, and a separator that goes has an empty place beside it:
/// so a tree of this height has more keys than fit any address space.
pub(super) const MAX_LEVELS: usize = 14;
/// Bytes of a key that a slot has.
pub(super) const PREFIX_BYTES: usize = 8;

/// One key of a node.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Slot {
    /// The eight bytes of the key behind those that all keys of the node's range have in common, in the order of bytes, then zeroes.
    pub prefix: u64,
    /// In a leaf the key's entry. In an inner node the entry that holds a separator; one of at most eight such bytes is in the prefix, and this
    /// is their number.
    pub word: PPtr<EntryHead>,
}

/// A leaf: up to 15 keys with values, in slots of no order.
#[repr(C)]
pub(super) struct Leaf {
    /// See [`Order`].
    pub order: u64,
    /// See [`kind`].
    pub kind: u64,
    pub slots: [Slot; SLOTS],
}

/// An inner node: up to 15 separators between up to 16 children.
#[repr(C)]
pub(super) struct Inner {
    pub node: Leaf,
    /// What is at or behind a slot's separator, by the slot's number; the last one: what is before all of them. Null: no key is there.
    pub children: [PPtr<Leaf>; SLOTS + 1],
}

pub(super) const KIND_AT: usize = offset_of!(Leaf, kind);
pub(super) const SLOTS_AT: usize = offset_of!(Leaf, slots);
pub(super) const SLOT_BYTES: usize = size_of::<Slot>();
pub(super) const CHILDREN_AT: usize = offset_of!(Inner, children);
pub(super) const LEAF_BYTES: usize = size_of::<Leaf>();
pub(super) const INNER_BYTES: usize = size_of::<Inner>();
// Both are sizes of objects, so that no byte is lost.
const _: () = assert!(LEAF_BYTES == 256 && INNER_BYTES == 384 && SLOT_BYTES == 16);

const LEVEL_MASK: u64 = 0xff;
const SKIP_SHIFT: u32 = 8;
const SKIP_MASK: u64 = 0x1_ffff;

/// The word of a node's level (0: a leaf) and of the number of bytes that all keys of its range have in common.
pub(super) const fn kind(level: usize, skip: usize) -> u64 {
    level as u64 & LEVEL_MASK | (skip as u64 & SKIP_MASK) << SKIP_SHIFT
}

/// The level that a kind says.
pub(super) const fn level(kind: u64) -> usize {
    (kind & LEVEL_MASK) as usize
}

/// The bytes in common that a kind says.
pub(super) const fn skip(kind: u64) -> usize {
    (kind >> SKIP_SHIFT & SKIP_MASK) as usize
}

/// Which slots of a node are in use, and in what order: the number of them in the lowest four bits, then the numbers of all slots, four bits
/// each, of which those in use come first, in the order of their keys. One word, so that an insertion or a removal becomes visible at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Order(pub u64);

impl Order {
    /// No slot is in use.
    pub const EMPTY: Self = Self(0xedcb_a987_6543_2100);

    /// The first slots are in use, in the order of their numbers.
    pub const fn first(len: usize) -> Self {
        Self(Self::EMPTY.0 | len as u64)
    }

    /// The number of slots in use.
    #[inline]
    pub const fn len(self) -> usize {
        (self.0 & 15) as usize
    }

    /// The slot at a place. The places from the number of slots in use on have the free ones. A damaged word names one of the node's as well.
    #[inline]
    pub const fn slot(self, place: usize) -> usize {
        let slot = (self.0 >> (4 + 4 * place)) as usize & 15;
        if slot < SLOTS { slot } else { SLOTS - 1 }
    }

    /// The bits below a place.
    const fn below(place: usize) -> u64 {
        if place >= SLOTS { u64::MAX } else { (1 << (4 + 4 * place)) - 1 }
    }

    /// With the first free slot in use, at a place of those in use or behind them. There is a free slot.
    pub const fn with(self, place: usize) -> Self {
        let (low, high) = (Self::below(place), Self::below(self.len() + 1));
        let free = (self.slot(self.len()) as u64) << (4 + 4 * place);
        let moved = (self.0 & high & !low) << 4 & high;
        Self((self.0 & !high | moved | free | self.0 & low) + 1)
    }

    /// Without the slot at a place of those in use, which is the first free one now.
    pub const fn without(self, place: usize) -> Self {
        let len = self.len();
        let (low, high) = (Self::below(place), Self::below(len));
        let free = (self.slot(place) as u64) << (4 * len);
        let moved = (self.0 & high & !low) >> 4 & !low;
        Self((self.0 & !high | moved | free | self.0 & low) - 1)
    }

    /// With the first slots of those in use alone.
    pub const fn cut(self, len: usize) -> Self {
        Self(self.0 & !15 | len as u64)
    }
}

/// The eight bytes of a key that a slot has where `skip` bytes are in common.
#[inline]
pub(super) fn prefix(key: &[u8], skip: usize) -> u64 {
    let rest = key.get(skip..).unwrap_or(&[]);
    match rest.first_chunk::<PREFIX_BYTES>() {
        Some(first) => u64::from_be_bytes(*first),
        None => rest.iter().rev().fold(0, |prefix, byte| prefix >> 8 | u64::from(*byte) << 56),
    }
}

/// A node as it is to be: the words of a leaf or of an inner node.
#[derive(Clone, Copy)]
pub(super) struct Image {
    pub words: [u64; INNER_BYTES / 8],
}

/// A slot of an image: its prefix, its word, and the word of its child.
#[derive(Clone, Copy, Default)]
pub(super) struct Item {
    pub prefix: u64,
    pub word: u64,
    pub child: u64,
}

impl Image {
    /// Of a leaf or of an inner node with items, in order; `first`: the word of what comes before all separators.
    pub fn new(level: usize, skip: usize, first: u64, items: &[Item]) -> Self {
        let mut words = [0; INNER_BYTES / 8];
        words[0] = Order::first(items.len()).0;
        words[1] = kind(level, skip);
        for (slot, item) in items.iter().enumerate().take(SLOTS) {
            words[(SLOTS_AT + slot * SLOT_BYTES) / 8] = item.prefix;
            words[(SLOTS_AT + slot * SLOT_BYTES) / 8 + 1] = item.word;
            words[CHILDREN_AT / 8 + slot] = item.child;
        }
        words[CHILDREN_AT / 8 + SLOTS] = first;
        Self { words }
    }

    /// The words that the node has: of a leaf those up to the last slot in use.
    pub fn used(&self) -> &[u64] {
        let end = match level(self.words[1]) {
            0 => (SLOTS_AT + Order(self.words[0]).len() * SLOT_BYTES) / 8,
            _ => self.words.len(),
        };
        &self.words[..end]
    }

    /// Bytes of the node's object.
    pub fn bytes(&self) -> usize {
        if level(self.words[1]) == 0 { LEAF_BYTES } else { INNER_BYTES }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::prelude::v1::*;

    #[test]
    fn an_order_is_a_permutation_at_all_times() {
        let mut order = Order::EMPTY;
        let mut model: Vec<usize> = Vec::new();
        let mut seed = 1u64;
        for step in 0..20_000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let drawn = (seed >> 33) as usize;
            if model.len() < SLOTS && (model.is_empty() || (drawn >> 8) % 5 < 3) {
                let place = drawn % (model.len() + 1);
                model.insert(place, order.slot(order.len()));
                order = order.with(place);
            } else if step % 97 == 0 {
                let len = drawn % (model.len() + 1);
                model.truncate(len);
                order = order.cut(len);
            } else {
                let place = drawn % model.len();
                let slot = model.remove(place);
                order = order.without(place);
                assert_eq!(order.slot(order.len()), slot);
            }
            assert_eq!(order.len(), model.len());
            assert!((0..model.len()).all(|place| order.slot(place) == model[place]), "{order:x?}");
            let mut all: Vec<_> = (0..SLOTS).map(|place| order.slot(place)).collect();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..SLOTS));
        }
    }

    #[test]
    fn prefixes_have_the_order_of_keys() {
        assert_eq!(prefix(b"", 0), 0);
        assert_eq!(prefix(b"abc", 1), u64::from_be_bytes(*b"bc\0\0\0\0\0\0"));
        assert_eq!(prefix(b"abcdefghij", 1), u64::from_be_bytes(*b"bcdefghi"));
        assert_eq!(prefix(b"ab", 5), 0);
        assert!(prefix(b"ab", 0) < prefix(b"ab\x01", 0) && prefix(b"a\xff", 0) < prefix(b"b", 0));
    }
}
