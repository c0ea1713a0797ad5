//! Removal. A leaf that has few keys left goes into the one beside it, if both have the same parent and fit. A node that loses its last key is
//! freed, and leaves an empty place in its parent.

use spandrel_pmem::Medium;

use super::insert::len_part;
use super::node::{Image, Item, MAX_LEVELS, SLOTS, prefix};
use super::tree::{Node, Path, Step, Tree, common};
use super::{HEIGHT_AT, LEN_AT, SortedBytes};
use crate::collections::held::HeapRef;
use crate::collections::op::{Op, Part, bytes_of_all};
use crate::error::Error;
use crate::pointer::offset_of as offset_of_word;
use crate::transaction::Transaction;

/// Objects that a removal frees at most: an entry, a leaf, and at each level a node and two separators. A transaction's log has room for 48
/// without another change (`Op::free`).
const MOST_OBJECTS: usize = 2 + 3 * MAX_LEVELS;
const _: () = assert!(MOST_OBJECTS < 48);

/// A leaf with no more keys than these goes into the one beside it.
const FEW: usize = SLOTS / 4;
/// Keys of the leaf that two become, at most: it does not divide, and none becomes few, by the next changes.
const MOST_MERGED: usize = SLOTS * 2 / 3;

/// Objects that nothing leads to after the change.
struct Gone {
    at: [usize; MOST_OBJECTS],
    len: usize,
}

impl Gone {
    fn note(&mut self, at: usize) {
        if let Some(place) = self.at.get_mut(self.len) {
            *place = at;
            self.len += 1;
        }
    }

    /// Notes the entry of a separator that goes, if it has one.
    fn note_separator(&mut self, word: u64) {
        if let Some(at) = offset_of_word(word) {
            self.note(at);
        }
    }
}

impl<H: HeapRef> SortedBytes<'_, H> {
    /// Removes a key. Whether it was there.
    ///
    /// # Errors
    /// [`Error::Forked`], [`Error::ReadOnly`], [`Error::InTransaction`]; [`Error::Full`]: there is no room to log the change.
    pub fn remove(&mut self, key: &[u8]) -> Result<bool, Error> {
        let head = self.held.at();
        let mut op = self.op()?;
        let tree = Tree { core: op.core(), head };
        let (path, is_there) = tree.path(key);
        let Some((leaf, way)) = path.steps().split_last().filter(|_| is_there) else {
            return Ok(false);
        };
        let mut gone = Gone { at: [0; MOST_OBJECTS], len: 0 };
        gone.note_separator(tree.slot(&leaf.node, leaf.place).1);
        if merge(tree, &mut op, way, leaf, key, &mut gone)? {
            // One change has taken the key and the leaf away.
        } else if leaf.node.order.len() > 1 {
            let order = leaf.node.order.without(leaf.place);
            op.change(&[Part::Word(leaf.node.at, order.0), len_part(tree, -1)])?;
        } else {
            gone.note(leaf.node.at);
            prune(tree, &mut op, way, &mut gone)?;
        }
        for at in &gone.at[..gone.len] {
            // SAFETY: only the tree led to it, and does no more.
            unsafe { op.free_replaced(*at) };
        }
        Ok(true)
    }

    /// Removes all keys, at once. Takes time linear in their number, as it frees each entry; in a transaction also room in the heap, 32 bytes
    /// for each object.
    ///
    /// # Errors
    /// As for [`SortedBytes::remove`].
    pub fn clear(&mut self) -> Result<(), Error> {
        let head = self.held.at();
        let mut op = self.op()?;
        let tree = Tree { core: op.core(), head };
        let root = tree.root();
        let nothing = [head, head + HEIGHT_AT, head + LEN_AT].map(|at| Part::Word(at, 0));
        let free_all = |op: &mut Op<'_, H::Medium>| {
            tree.each_object(root, |at| {
                // SAFETY: with the change nothing leads to it any more. If it is no object the heap was damaged before.
                let freed = unsafe { op.free(at) };
                // Only a log without room is an error: without a record the object would be lost.
                freed.or_else(|why| op.transaction().map_or(Ok(()), |_| Err(why)))
            })
        };
        if op.transaction().is_none() {
            op.change(&nothing)?;
            return free_all(&mut op);
        }
        // A part that does not fit into the log undoes all of it.
        let nested = Transaction::begin(op.core())?;
        free_all(&mut op)?;
        op.change(&nothing)?;
        nested.commit()
    }
}

/// Removes the slot at a place of a leaf that has few others, and has one leaf hold these and those of the leaf beside it. False: there is none
/// beside it that has room, and nothing has changed.
fn merge<M: Medium>(
    tree: Tree<'_, M>,
    op: &mut Op<'_, M>,
    way: &[Step],
    leaf: &Step,
    key: &[u8],
    gone: &mut Gone,
) -> Result<bool, Error> {
    let Some((parent, above)) = way.split_last() else { return Ok(false) };
    let left_over = leaf.node.order.len() - 1;
    if !(1..=FEW).contains(&left_over) {
        return Ok(false);
    }
    // Beside it: the leaf behind it, or the one before.
    for first_place in [Some(parent.place), parent.place.checked_sub(1)].into_iter().flatten() {
        if first_place >= parent.node.order.len() {
            continue;
        }
        let is_first = first_place == parent.place;
        let other = tree.child_node(&parent.node, first_place + usize::from(is_first));
        let fits = |other: &Node| other.order.len() + left_over <= MOST_MERGED;
        let Some(other) = other.filter(fits) else { continue };
        let (first, second) = if is_first { (leaf.node, other) } else { (other, leaf.node) };
        let mut path = Path::new();
        above.iter().for_each(|step| path.push(step.node, step.place));
        path.push(parent.node, first_place);
        let (low, _) = tree.bounds(path.steps(), key);
        path.pop();
        path.push(parent.node, first_place + 1);
        let (_, high) = tree.bounds(path.steps(), key);
        let skip = common(low, high);
        let (mut items, mut count) = ([Item::default(); SLOTS], 0);
        for (node, place) in [first, second]
            .iter()
            .flat_map(|node| (0..node.order.len()).map(move |place| (node, place)))
            .filter(|(node, place)| (node.at, *place) != (leaf.node.at, leaf.place))
        {
            let word = tree.slot(node, place).1;
            // A leaf with a damaged entry stays what it is.
            let Some(entry) = tree.entry(word) else { return Ok(false) };
            if let Some(item) = items.get_mut(count) {
                *item = Item { prefix: prefix(entry.key, skip), word, child: 0 };
                count += 1;
            }
        }
        let image = Image::new(0, skip, 0, &items[..count]);
        gone.note(second.at);
        gone.note_separator(tree.slot(&parent.node, first_place).1);
        op.change(&[
            Part::Bytes(first.at, bytes_of_all(image.used())),
            Part::Word(parent.node.at, parent.node.order.without(first_place).0),
            len_part(tree, -1),
        ])?;
        return Ok(true);
    }
    Ok(false)
}

/// Takes away the child that is no more at the end of a way, and ancestors that have no other one.
fn prune<M: Medium>(
    tree: Tree<'_, M>,
    op: &mut Op<'_, M>,
    way: &[Step],
    gone: &mut Gone,
) -> Result<(), Error> {
    for Step { node, place } in way.iter().rev() {
        let (place, last) = (*place, node.order.len());
        let is_empty = |place: usize| tree.child(node, place) == 0;
        let (before, behind) =
            (place > 0 && is_empty(place - 1), place < last && is_empty(place + 1));
        // Empty places beside each other become one: the separators between them go.
        let mut order = node.order;
        for separator in [behind.then_some(place), before.then(|| place - 1)].into_iter().flatten()
        {
            gone.note_separator(tree.slot(node, separator).1);
            order = order.without(separator);
        }
        if order.len() == 0 {
            gone.note(node.at);
            continue;
        }
        let word = Part::Word(node.at, order.0);
        // An empty place before has the child's range now.
        let child = Part::Word(node.child_at(place), 0);
        return if before {
            op.change(&[word, len_part(tree, -1)])
        } else {
            op.change(&[word, child, len_part(tree, -1)])
        };
    }
    op.change(&[Part::Word(tree.head, 0), Part::Word(tree.head + HEIGHT_AT, 0), len_part(tree, -1)])
}

impl<M: Medium> Tree<'_, M> {
    /// Calls `call` for each object below a node and for the node itself: each after those that it leads to, and after it was looked at. Ends
    /// also where a damaged tree has nodes under many parents.
    fn each_object(
        &self,
        root: Option<Node>,
        mut call: impl FnMut(usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut path = Path::new();
        if let Some(root) = root {
            path.push(root, 0);
        }
        let mut left = self.most_places();
        while let Some(Step { node, place }) = path.last_mut() {
            let (node, at): (_, usize) = (*node, *place);
            *place += 1;
            let is_over = left == 0;
            left = left.saturating_sub(1);
            if node.level > 0 && at <= node.order.len() && !is_over {
                if let Some(child) = self.child_node(&node, at) {
                    path.push(child, 0);
                }
                continue;
            }
            for word in (0..node.order.len()).map(|place| self.slot(&node, place).1) {
                offset_of_word(word).map_or(Ok(()), &mut call)?;
            }
            call(node.at)?;
            path.pop();
        }
        Ok(())
    }
}
