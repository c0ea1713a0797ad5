//! The division of a node that has no free slot, and of its ancestors if they have none either: one change.

use spandrel_pmem::Medium;

use super::HEIGHT_AT;
use super::entry::{self, Entry};
use super::insert::{Made, len_part, new_node};
use super::node::{INNER_BYTES, Image, Item, MAX_LEVELS, PREFIX_BYTES, SLOTS, prefix};
use super::tree::{Node, Separator, Step, Tree, common, short_len};
use crate::collections::op::{Op, Part, bytes_of_all};
use crate::error::Error;
use crate::pointer::offset_of as offset_of_word;

/// Where a node without a free slot is divided if its new slot is neither the first nor the last.
const MIDDLE: usize = SLOTS / 2 + 1;
/// A node whose slots would leave out this many bytes more is written anew: half of what a slot has of a key tells no keys apart.
const REWRITE_FROM: usize = PREFIX_BYTES / 2;
/// Nodes that change in place at most.
const MOST_NODES: usize = MAX_LEVELS + 2;

/// The changes of nodes in use.
struct Changes {
    /// Nodes that are written anew, with their places.
    images: [(usize, Image); MOST_NODES],
    images_len: usize,
    words: [(usize, u64); MOST_NODES + 2],
    words_len: usize,
}

impl Changes {
    fn new() -> Self {
        Self {
            images: [(0, Image { words: [0; INNER_BYTES / 8] }); MOST_NODES],
            images_len: 0,
            words: [(0, 0); MOST_NODES + 2],
            words_len: 0,
        }
    }

    fn word(&mut self, at: usize, word: u64) {
        if let Some(place) = self.words.get_mut(self.words_len) {
            *place = (at, word);
            self.words_len += 1;
        }
    }

    fn image(&mut self, at: usize, image: Image) {
        if let Some(place) = self.images.get_mut(self.images_len) {
            *place = (at, image);
            self.images_len += 1;
        }
    }

    /// Makes all of them, with the change of the number of keys.
    fn make<M: Medium>(&self, op: &mut Op<'_, M>, len: Part<'_>) -> Result<(), Error> {
        let mut parts: [Part<'_>; 2 * MOST_NODES + 3] = core::array::from_fn(|_| Part::Word(0, 0));
        let images = self.images[..self.images_len].iter();
        let images = images.map(|(at, image)| Part::Bytes(*at, bytes_of_all(image.used())));
        let words = self.words[..self.words_len].iter().map(|(at, word)| Part::Word(*at, *word));
        let mut count = 0;
        for (place, part) in parts.iter_mut().zip(images.chain(words).chain([len])) {
            *place = part;
            count += 1;
        }
        op.fence();
        op.change(&parts[..count])
    }
}

/// A separator that goes up, and the node behind it.
struct Risen<'k> {
    separator: Separator<'k>,
    /// The entry that has it already.
    entry: Option<u64>,
    right: u64,
}

/// All slots of a full node and a new one, in order.
type Items = [Item; SLOTS + 1];

impl<'c, M: Medium> Tree<'c, M> {
    /// Adds an entry to a leaf that has no free slot, at the end of the way to its key.
    pub fn divide(
        &self,
        op: &mut Op<'_, M>,
        made: &mut Made,
        mut way: &[Step],
        leaf: &Step,
        key: &[u8],
        word: u64,
    ) -> Result<(), Error> {
        let mut changes = Changes::new();
        let mut risen = self.divide_leaf(op, made, &mut changes, way, leaf, (key, word))?;
        loop {
            let Some((step, above)) = way.split_last() else {
                self.new_root(op, made, &mut changes, &risen)?;
                break;
            };
            let item = self.item(op, made, &risen, step.node.skip)?;
            if step.node.order.len() < SLOTS {
                add_separator(op, &mut changes, step, item)?;
                break;
            }
            risen = self.divide_inner(op, made, &mut changes, above, step, (key, item))?;
            way = above;
        }
        changes.make(op, len_part(*self, 1))
    }

    /// The slots of a full node with a new one at a place.
    fn items(&self, node: &Node, place: usize, new: Item) -> Items {
        core::array::from_fn(|number| {
            if number == place {
                return new;
            }
            let at = number - usize::from(number > place);
            let (prefix, word) = self.slot(node, at);
            let child = if node.level > 0 { self.child(node, at + 1) } else { 0 };
            Item { prefix, word, child }
        })
    }

    /// Divides a leaf: the new slot and those behind the middle go to a new leaf, or the new one alone if it is the last, as keys that rise
    /// have it.
    fn divide_leaf<'k>(
        &self,
        op: &mut Op<'_, M>,
        made: &mut Made,
        changes: &mut Changes,
        way: &[Step],
        leaf: &Step,
        (key, word): (&'k [u8], u64),
    ) -> Result<Risen<'k>, Error>
    where
        'c: 'k,
    {
        let new = Item { prefix: prefix(key, leaf.node.skip), word, child: 0 };
        let mut items = self.items(&leaf.node, leaf.place, new);
        let middle = match leaf.place {
            SLOTS => SLOTS,
            0 => 1,
            _ => MIDDLE,
        };
        let key_of =
            |item: &Item| self.entry(item.word).map_or(&[][..], |entry: Entry<'c>| entry.key);
        let (last, first) = (key_of(&items[middle - 1]), key_of(&items[middle]));
        // The shortest key that tells both sides apart.
        let equal = last.iter().zip(first).take_while(|(one, two)| one == two).count();
        let separator = Separator::of(&first[..first.len().min(equal + 1)]);
        let (low, high) = self.bounds(way, key);
        let (skip, right_skip) = (common(low, Some(separator)), common(Some(separator), high));
        let (left, right) = items.split_at_mut(middle);
        right.iter_mut().for_each(|item| item.prefix = prefix(key_of(item), right_skip));
        let right = new_node(op, made, &Image::new(0, right_skip, 0, right))?;
        if leaf.place >= middle && skip < leaf.node.skip + REWRITE_FROM {
            changes.word(leaf.node.at, leaf.node.order.cut(middle).0);
        } else {
            left.iter_mut().for_each(|item| item.prefix = prefix(key_of(item), skip));
            changes.image(leaf.node.at, Image::new(0, skip, 0, left));
        }
        Ok(Risen { separator, entry: None, right })
    }

    /// Divides an inner node. The separator in the middle goes up.
    fn divide_inner<'k>(
        &self,
        op: &mut Op<'_, M>,
        made: &mut Made,
        changes: &mut Changes,
        above: &[Step],
        step: &Step,
        (key, item): (&'k [u8], Item),
    ) -> Result<Risen<'k>, Error>
    where
        'c: 'k,
    {
        let node = &step.node;
        let mut items = self.items(node, step.place, item);
        let middle = if step.place == SLOTS { SLOTS } else { MIDDLE };
        let rising = items[middle];
        let separator = self.separator(node.skip, (rising.prefix, rising.word), key);
        let (low, high) = self.bounds(above, key);
        let (skip, right_skip) = (common(low, Some(separator)), common(Some(separator), high));
        let (left, right) = items.split_at_mut(middle);
        let right = &mut right[1..];
        right.iter_mut().for_each(|item| self.leave_out(item, node.skip, right_skip));
        let right = new_node(op, made, &Image::new(node.level, right_skip, rising.child, right))?;
        if step.place >= middle && skip < node.skip + REWRITE_FROM {
            changes.word(node.at, node.order.cut(middle).0);
        } else {
            left.iter_mut().for_each(|item| self.leave_out(item, node.skip, skip));
            changes.image(node.at, Image::new(node.level, skip, self.child(node, 0), left));
        }
        let entry = offset_of_word(rising.word).map(|_| rising.word);
        Ok(Risen { separator, entry, right })
    }

    /// Has a separator's slot leave out `to` bytes instead of `from`, which are no more.
    fn leave_out(&self, item: &mut Item, from: usize, to: usize) {
        if let Some(entry) = self.entry(item.word) {
            item.prefix = prefix(entry.key, to);
        } else if let Some(more) = to.checked_sub(from) {
            item.prefix = item.prefix.checked_shl(8 * more as u32).unwrap_or(0);
            item.word = short_len(item.word).saturating_sub(more) as u64;
        }
    }

    /// The slot of a separator in a node that leaves `skip` bytes out.
    fn item(
        &self,
        op: &mut Op<'_, M>,
        made: &mut Made,
        risen: &Risen<'_>,
        skip: usize,
    ) -> Result<Item, Error> {
        let Risen { separator, entry, right } = risen;
        let short = separator.len().saturating_sub(skip);
        let word = match entry {
            Some(entry) => *entry,
            None if short <= PREFIX_BYTES => short as u64,
            None => made.note(entry::new(op, [separator.begin, separator.end()], &[])?),
        };
        Ok(Item { prefix: separator.prefix(skip), word, child: *right })
    }

    /// A new root over the old one and the node that it was divided from.
    fn new_root(
        &self,
        op: &mut Op<'_, M>,
        made: &mut Made,
        changes: &mut Changes,
        risen: &Risen<'_>,
    ) -> Result<(), Error> {
        let height = self.height() + 1;
        if height > MAX_LEVELS {
            return Err(Error::Full);
        }
        let item = self.item(op, made, risen, 0)?;
        let old = self.core.load(self.head);
        let root = new_node(op, made, &Image::new(height, 0, old, &[item]))?;
        changes.word(self.head, root);
        changes.word(self.head + HEIGHT_AT, height as u64);
        Ok(())
    }
}

/// Adds a separator and the child behind it to a node that has a free slot.
fn add_separator<M: Medium>(
    op: &mut Op<'_, M>,
    changes: &mut Changes,
    step: &Step,
    item: Item,
) -> Result<(), Error> {
    let node = &step.node;
    let slot = node.order.slot(node.order.len());
    // SAFETY: the slot and its child are not in use, so that no thread reads them.
    unsafe {
        op.put_aside(node.slot_at(slot), bytes_of_all(&[item.prefix, item.word]))?;
        op.put_aside(node.child_of(slot), bytes_of_all(&[item.child]))?;
    }
    changes.word(node.at, node.order.with(step.place).0);
    Ok(())
}
