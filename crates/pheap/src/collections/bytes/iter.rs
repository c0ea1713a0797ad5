//! Iteration, from both ends. A cursor is a way from the root to a place in a leaf; leaves have no links, which insertions would have to store.

use core::fmt;
use core::ops::{Bound, RangeBounds};

use spandrel_pmem::Medium;

use super::View;
use super::tree::{Path, Step, Tree};
use crate::collections::held::{HeapRef, Watch};

/// The place of a child before the first.
const BEFORE: usize = usize::MAX;

/// A place between the keys: in a leaf, before the slot of the last step's place. Without steps: there is no leaf on that side any more.
struct Cursor {
    path: Path,
    /// Places of children that may still be looked at: a damaged tree may have a node under many parents.
    left: usize,
}

/// The sides of a key that a cursor may stand on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Before,
    Behind,
}

impl Cursor {
    /// Before or behind a key.
    fn at<M: Medium>(tree: Tree<'_, M>, key: &[u8], side: Side, is_front: bool) -> Self {
        let (path, is_there) = tree.path(key);
        let mut cursor = Self::of(tree, path);
        match cursor.path.last_mut() {
            Some(step) if step.node.level == 0 => {
                step.place += usize::from(is_there && side == Side::Behind);
            }
            // No leaf has the range that the key is in.
            _ => _ = cursor.go_on(tree, is_front),
        }
        cursor
    }

    /// Before all keys, or behind them.
    fn at_end<M: Medium>(tree: Tree<'_, M>, is_front: bool) -> Self {
        let mut cursor = Self::of(tree, Path::new());
        let Some(root) = tree.root() else { return cursor };
        match (root.level, is_front) {
            (0, true) => cursor.path.push(root, 0),
            (0, false) => cursor.path.push(root, root.order.len()),
            _ => {
                cursor.path.push(root, if is_front { BEFORE } else { root.order.len() + 1 });
                cursor.go_on(tree, is_front);
            }
        }
        cursor
    }

    fn of<M: Medium>(tree: Tree<'_, M>, path: Path) -> Self {
        Self { path, left: tree.most_places() }
    }

    /// Goes on behind the child at the place of the last step, to the beginning of the next leaf. False: there is none.
    fn forward<M: Medium>(&mut self, tree: Tree<'_, M>) -> bool {
        while let Some(step) = self.path.last_mut() {
            let next = step.place.wrapping_add(1);
            if next > step.node.order.len() || self.left == 0 {
                self.path.pop();
                continue;
            }
            self.left -= 1;
            step.place = next;
            match tree.child_node(&step.node, next) {
                Some(leaf) if leaf.level == 0 => {
                    self.path.push(leaf, 0);
                    return true;
                }
                Some(inner) => self.path.push(inner, BEFORE),
                None => {}
            }
        }
        false
    }

    /// Moves the cursor to the end of the leaf before the child of the last step. False: there is no such leaf.
    fn backward<M: Medium>(&mut self, tree: Tree<'_, M>) -> bool {
        while let Some(step) = self.path.last_mut() {
            let Some(next) = step.place.checked_sub(1).filter(|_| self.left > 0) else {
                self.path.pop();
                continue;
            };
            self.left -= 1;
            step.place = next;
            match tree.child_node(&step.node, next) {
                Some(leaf) if leaf.level == 0 => {
                    let len = leaf.order.len();
                    self.path.push(leaf, len);
                    return true;
                }
                Some(inner) => {
                    let len = inner.order.len();
                    self.path.push(inner, len + 1);
                }
                None => {}
            }
        }
        false
    }

    /// Goes on to the next leaf, or back to the one before.
    fn go_on<M: Medium>(&mut self, tree: Tree<'_, M>, is_front: bool) -> bool {
        if is_front { self.forward(tree) } else { self.backward(tree) }
    }

    /// The place of the next slot of the leaf on the way, which it passes.
    fn pass(&mut self, is_front: bool) -> Option<Step> {
        let step = self.path.last_mut()?;
        let passed = if is_front { step.place } else { step.place.checked_sub(1)? };
        if passed >= step.node.order.len() {
            return None;
        }
        step.place = if is_front { passed + 1 } else { passed };
        Some(Step { node: step.node, place: passed })
    }

    /// The leaf that it stands in, and the place.
    fn leaf(&self) -> Option<(usize, usize)> {
        self.path.steps().last().map(|step| (step.node.at, step.place))
    }

    /// Whether it stands before another one, in the order of the keys.
    fn is_before(&self, other: &Self) -> bool {
        let (own, others) = (self.path.steps().iter(), other.path.steps().iter());
        own.map(|step| step.place).lt(others.map(|step| step.place))
    }
}

/// See [`SortedBytes::range`](super::SortedBytes::range).
pub struct BytesRange<'m, H: HeapRef, R> {
    view: View<'m, H>,
    range: R,
    watch: Watch,
    /// `None`: the iterator has ended.
    ends: Option<[Cursor; 2]>,
    /// The last keys from the front and from the back.
    last: [Option<&'m [u8]>; 2],
}

impl<H: HeapRef, R> fmt::Debug for BytesRange<'_, H, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BytesRange").finish_non_exhaustive()
    }
}

impl<'m, H: HeapRef, R: RangeBounds<[u8]>> BytesRange<'m, H, R> {
    pub(super) fn new(view: View<'m, H>, range: R) -> Self {
        let _look = view.held.look();
        let watch = view.held.watch();
        let mut made = Self { view, range, watch, ends: None, last: [None; 2] };
        made.ends = made.seek();
        made
    }

    /// Cursors at what is left of the range; `None`: no key is.
    fn seek(&self) -> Option<[Cursor; 2]> {
        let tree = self.view.tree();
        let from = self.last[0].map_or(self.range.start_bound(), Bound::Excluded);
        let to = self.last[1].map_or(self.range.end_bound(), Bound::Excluded);
        let front = match from {
            Bound::Unbounded => Cursor::at_end(tree, true),
            Bound::Included(key) => Cursor::at(tree, key, Side::Before, true),
            Bound::Excluded(key) => Cursor::at(tree, key, Side::Behind, true),
        };
        let back = match to {
            Bound::Unbounded => Cursor::at_end(tree, false),
            Bound::Included(key) => Cursor::at(tree, key, Side::Behind, false),
            Bound::Excluded(key) => Cursor::at(tree, key, Side::Before, false),
        };
        let is_any = front.leaf().is_some() && back.leaf().is_some() && front.is_before(&back);
        is_any.then_some([front, back])
    }

    /// The next key from one end, and its value.
    fn step(&mut self, is_front: bool) -> Option<(&'m [u8], &'m [u8])> {
        self.ends.as_ref()?;
        let (_look, is_void) = self.view.held.step(&mut self.watch);
        if is_void {
            self.ends = self.seek();
        }
        let found = self.found(is_front);
        if found.is_none() {
            self.ends = None;
        }
        found
    }

    fn found(&mut self, is_front: bool) -> Option<(&'m [u8], &'m [u8])> {
        let tree = self.view.tree();
        let [front, back] = self.ends.as_mut()?;
        let side = usize::from(!is_front);
        let mut is_next_leaf = false;
        loop {
            let ((leaf, place), (last_leaf, end)) = (front.leaf()?, back.leaf()?);
            if leaf == last_leaf && place >= end {
                return None;
            }
            let cursor = if is_front { &mut *front } else { &mut *back };
            let Some(step) = cursor.pass(is_front) else {
                cursor.path.pop();
                is_next_leaf = true;
                if cursor.go_on(tree, is_front) { continue } else { return None }
            };
            // A pointer to a damaged entry was cleared: the others are there.
            let Some(entry) = tree.entry_at(&step.node, step.place) else { continue };
            // Leaves in another order are damage: they may form a cycle.
            let is_damaged = |last: &[u8]| {
                is_next_leaf && if is_front { entry.key <= last } else { entry.key >= last }
            };
            if self.last[side].is_some_and(is_damaged) {
                return None;
            }
            let key = self.view.lend(entry.key);
            self.last[side] = Some(key);
            return Some((key, self.view.lend(entry.value)));
        }
    }
}

impl<'m, H: HeapRef, R: RangeBounds<[u8]>> Iterator for BytesRange<'m, H, R> {
    type Item = (&'m [u8], &'m [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        self.step(true)
    }
}

impl<H: HeapRef, R: RangeBounds<[u8]>> DoubleEndedIterator for BytesRange<'_, H, R> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(false)
    }
}

impl<H: HeapRef, R: RangeBounds<[u8]>> core::iter::FusedIterator for BytesRange<'_, H, R> {}
