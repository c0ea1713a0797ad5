//! Insertion, and the replacement of values.

use spandrel_pmem::Medium;

use super::entry::{self, Entry, HEAD_BYTES};
use super::node::{Image, Item, MAX_LEVELS, SLOTS, prefix};
use super::tree::{Node, Path, Step, Tree, common};
use super::{HEIGHT_AT, LEN_AT, SortedBytes};
use crate::class::Class;
use crate::collections::held::HeapRef;
use crate::collections::op::{Op, Part, bytes_of_all};
use crate::error::Error;
use crate::layout::BLOCK_BYTES;
use crate::pointer::PPtr;

/// Objects that an insertion allocates at most: an entry, and at each level a node and a separator.
const MOST_OBJECTS: usize = 2 * (MAX_LEVELS + 2);

/// Objects that an operation has allocated, and that nothing leads to before its change.
pub(super) struct Made {
    at: [usize; MOST_OBJECTS],
    len: usize,
}

impl Made {
    fn new() -> Self {
        Self { at: [0; MOST_OBJECTS], len: 0 }
    }

    /// Notes an object, and returns the word that leads to it.
    pub fn note(&mut self, at: usize) -> u64 {
        if let Some(place) = self.at.get_mut(self.len) {
            *place = at;
            self.len += 1;
        }
        PPtr::<u8>::to(at).raw()
    }

    /// Frees all of them.
    fn give_back<M: Medium>(&self, op: &mut Op<'_, M>) {
        for at in &self.at[..self.len] {
            // SAFETY: the operation has allocated it, and nothing leads to it.
            unsafe { op.give_back(*at) };
        }
    }
}

/// Allocates a node and stores it. It is durable after a fence.
pub(super) fn new_node<M: Medium>(
    op: &mut Op<'_, M>,
    made: &mut Made,
    image: &Image,
) -> Result<u64, Error> {
    let at = op.alloc(image.bytes(), 16)?;
    let word = made.note(at);
    // SAFETY: the object was allocated with room for it, and nothing leads to it.
    unsafe { op.put(at, bytes_of_all(image.used())) };
    Ok(word)
}

/// Whether an object of one length has room for the other, and is no larger than one of that length would be.
fn is_same_size(one: usize, other: usize) -> bool {
    match (Class::of(one), Class::of(other)) {
        (None, None) => one.div_ceil(BLOCK_BYTES) == other.div_ceil(BLOCK_BYTES),
        (one, other) => one == other,
    }
}

impl<H: HeapRef> SortedBytes<'_, H> {
    /// Sets the value of a key. Whether the key had a value, which is replaced.
    ///
    /// # Errors
    /// [`Error::Size`]: the key is longer than 64 KiB, or the value than any object; and as for [`Heap::alloc`](crate::Heap::alloc);
    /// [`Error::Forked`], [`Error::ReadOnly`], [`Error::InTransaction`]. Nothing has changed then.
    pub fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<bool, Error> {
        self.insert_if(key, value, |_| true).map(|had| had == Some(true))
    }

    /// As [`SortedBytes::insert`], if `allows` is true of the value that the key has, which is `None` if it has none; otherwise `None` is returned, and nothing has changed. The map is searched once,
    /// where a look before an insertion would search it again.
    ///
    /// ```
    /// use spandrel_pheap::collections::SortedBytes;
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let heap = spandrel_pheap::Options::new().create(directory.path().join("h").to_str().unwrap())?;
    /// let mut locks = SortedBytes::open(&heap, "locks")?;
    /// assert_eq!(locks.insert_if(b"door", b"anna", |held| held.is_none())?, Some(false));
    /// assert_eq!(locks.insert_if(b"door", b"bert", |held| held.is_none())?, None);
    /// assert_eq!(locks.get(b"door"), Some(&b"anna"[..]));
    /// # Ok::<(), spandrel_pheap::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`SortedBytes::insert`].
    pub fn insert_if(
        &mut self,
        key: &[u8],
        value: &[u8],
        allows: impl FnOnce(Option<&[u8]>) -> bool,
    ) -> Result<Option<bool>, Error> {
        entry::check(key, value)?;
        let head = self.held.at();
        let mut op = self.op()?;
        let tree = Tree { core: op.core(), head };
        let (path, is_there) = tree.path(key);
        let step = path.steps().last().filter(|_| is_there);
        let old = step.and_then(|step| tree.entry_at(&step.node, step.place));
        if !allows(old.map(|old| old.value)) {
            return Ok(None);
        }
        if let Some(step) = step {
            replace(tree, &mut op, step, key, value)?;
            return Ok(Some(true));
        }
        let mut made = Made::new();
        let added = add(tree, &mut op, &mut made, &path, key, value);
        if added.is_err() {
            made.give_back(&mut op);
        }
        added.map(|()| Some(false))
    }
}

/// Replaces the value of the key at a place of a leaf.
fn replace<M: Medium>(
    tree: Tree<'_, M>,
    op: &mut Op<'_, M>,
    step: &Step,
    key: &[u8],
    value: &[u8],
) -> Result<(), Error> {
    let word_at = step.node.slot_at(step.node.order.slot(step.place)) + 8;
    let old = tree.entry_at(&step.node, step.place);
    if let Some(old) = old.filter(|old| may_overwrite(op, old, value)) {
        let medium = &op.core().medium;
        // SAFETY: the object has room for the value, and the handle is borrowed exclusively, so that no reference to the entry lives.
        unsafe {
            if old.value.len() != value.len() {
                medium.store_word(old.at, entry::sizes(key.len(), value.len()));
            }
            if !value.is_empty() {
                medium.store(old.at + HEAD_BYTES + key.len(), value);
            }
        }
        return Ok(());
    }
    let new = entry::new(op, [key, &[]], value)?;
    op.fence();
    if let Err(why) = op.publish(word_at, PPtr::<u8>::to(new).raw()) {
        // SAFETY: nothing leads to it.
        unsafe { op.give_back(new) };
        return Err(why);
    }
    // SAFETY: the slot led to it, and leads to the new one.
    unsafe { op.free_replaced(old.map_or(0, |old| old.at)) };
    Ok(())
}

/// Whether a value may be stored over the old one: where a batch is durable as a whole, and in no transaction. The rollback of one would
/// change bytes that were lent.
fn may_overwrite<M: Medium>(op: &Op<'_, M>, old: &Entry<'_>, value: &[u8]) -> bool {
    let bytes = old.bytes() - old.value.len() + value.len();
    let core = op.core();
    core.medium.is_atomic()
        && op.transaction().is_none()
        && is_same_size(old.bytes(), bytes)
        // The lengths of a damaged entry may be any.
        && core.object_of(old.at).is_some_and(|it| it.start == old.at && bytes <= it.bytes)
}

/// The change of the number of keys.
pub(super) fn len_part<M: Medium>(tree: Tree<'_, M>, by: isize) -> Part<'static> {
    let len = tree.core.load(tree.head + LEN_AT);
    Part::Word(tree.head + LEN_AT, len.saturating_add_signed(by as i64))
}

/// Adds a key that the map does not have, at the end of the way to it.
fn add<M: Medium>(
    tree: Tree<'_, M>,
    op: &mut Op<'_, M>,
    made: &mut Made,
    path: &Path,
    key: &[u8],
    value: &[u8],
) -> Result<(), Error> {
    let at = entry::new(op, [key, &[]], value)?;
    let word = made.note(at);
    match path.steps().split_last() {
        Some((Step { node, place }, _)) if node.level == 0 && node.order.len() < SLOTS => {
            add_to_leaf(
                tree,
                op,
                node,
                *place,
                Item { prefix: prefix(key, node.skip), word, child: 0 },
            )
        }
        Some((leaf, way)) if leaf.node.level == 0 => tree.divide(op, made, way, leaf, key, word),
        _ => add_leaf(tree, op, made, path.steps(), key, word),
    }
}

/// Adds a slot to a leaf that has a free one.
fn add_to_leaf<M: Medium>(
    tree: Tree<'_, M>,
    op: &mut Op<'_, M>,
    leaf: &Node,
    place: usize,
    item: Item,
) -> Result<(), Error> {
    let slot = leaf.order.slot(leaf.order.len());
    // SAFETY: the slot is not in use, so that no thread reads it.
    unsafe { op.put_aside(leaf.slot_at(slot), bytes_of_all(&[item.prefix, item.word]))? };
    op.fence();
    op.change(&[Part::Word(leaf.at, leaf.order.with(place).0), len_part(tree, 1)])
}

/// Adds a leaf with one slot where the way ends: at a child that is not there, or at the root.
fn add_leaf<M: Medium>(
    tree: Tree<'_, M>,
    op: &mut Op<'_, M>,
    made: &mut Made,
    way: &[Step],
    key: &[u8],
    word: u64,
) -> Result<(), Error> {
    let (low, high) = tree.bounds(way, key);
    let skip = common(low, high);
    let item = Item { prefix: prefix(key, skip), word, child: 0 };
    let mut node = new_node(op, made, &Image::new(0, skip, 0, &[item]))?;
    let Some(step) = way.last() else {
        op.fence();
        let root =
            [Part::Word(tree.head, node), Part::Word(tree.head + HEIGHT_AT, 0), len_part(tree, 1)];
        return op.change(&root);
    };
    // A child is one level below its parent.
    for level in 1..step.node.level {
        node = new_node(op, made, &Image::new(level, skip, node, &[]))?;
    }
    op.fence();
    op.change(&[Part::Word(step.node.child_at(step.place), node), len_part(tree, 1)])
}
