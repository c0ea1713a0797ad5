//! An address-ordered treap of ranges, each subtree knowing its largest range (4.2).
//!
//! Nodes live in the first record of each range. Priorities are a hash of the address: nothing is
//! stored for them, and equal histories give equal trees.

use spandrel_pages::HugePageId;

use crate::tracker::{Link, Node, Table};

/// The root; the rest is in the table.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Tree {
    root: Link,
}

/// Thomas Mueller's 32-bit mixer: every bit of the address moves every bit of the priority, and no
/// two addresses share one.
fn priority(page: HugePageId) -> u32 {
    let mut x = page.0;
    x = (x >> 16 ^ x).wrapping_mul(0x045d_9f3b);
    x = (x >> 16 ^ x).wrapping_mul(0x045d_9f3b);
    x >> 16 ^ x
}

fn largest(table: &Table, link: Link) -> u32 {
    link.get().map_or(0, |page| table[page].node().largest)
}

fn edit(table: &mut Table, page: HugePageId, change: impl FnOnce(&mut Node)) {
    let mut node = table[page].node();
    change(&mut node);
    table[page].set_node(node);
}

/// Makes the node's knowledge of its subtree right.
fn refresh(table: &mut Table, page: HugePageId) {
    let node = table[page].node();
    let below = largest(table, node.left).max(largest(table, node.right));
    let value = below.max(table[page].length);
    edit(table, page, |n| n.largest = value);
}

impl Tree {
    pub(crate) const fn new() -> Self {
        Self { root: Link::NONE }
    }

    /// Adds the range whose first record is `page`; its length is set there.
    pub(crate) fn insert(&mut self, table: &mut Table, page: HugePageId) {
        let length = table[page].length;
        let (mut parent, mut at) = (Link::NONE, self.root);
        while let Some(here) = at.get() {
            edit(table, here, |n| n.largest = n.largest.max(length));
            parent = at;
            let node = table[here].node();
            at = if page < here { node.left } else { node.right };
        }
        table[page].set_node(Node { parent, largest: length, ..Node::default() });
        self.put_below(table, parent, page, Link::to(page));
        while let Some(above) = table[page].node().parent.get() {
            if priority(above) >= priority(page) {
                break;
            }
            self.rotate_up(table, page, above);
        }
    }

    /// Takes the range whose first record is `page` out. Its length must not have changed.
    pub(crate) fn remove(&mut self, table: &mut Table, page: HugePageId) {
        // Down to where it has one child at most, which takes its place.
        let node = loop {
            let node = table[page].node();
            match (node.left.get(), node.right.get()) {
                (Some(left), Some(right)) => {
                    let child = if priority(left) >= priority(right) { left } else { right };
                    self.rotate_up(table, child, page);
                }
                _ => break node,
            }
        };
        let child = if node.left == Link::NONE { node.right } else { node.left };
        self.put_below(table, node.parent, page, child);
        if let Some(child) = child.get() {
            edit(table, child, |n| n.parent = node.parent);
        }
        let mut at = node.parent;
        while let Some(here) = at.get() {
            refresh(table, here);
            at = table[here].node().parent;
        }
    }

    /// The range that fits `count` huge pages closely: at each fork the way whose largest range is
    /// the smaller one that suffices. Lower addresses among equals.
    pub(crate) fn find(&self, table: &Table, count: u32) -> Option<HugePageId> {
        let mut best: Option<(u32, HugePageId)> = None;
        let mut at = self.root;
        while let Some(here) = at.get() {
            let length = table[here].length;
            if length >= count && best.is_none_or(|b| (length, here) < b) {
                best = Some((length, here));
            }
            let node = table[here].node();
            let (left, right) = (largest(table, node.left), largest(table, node.right));
            at = match (left >= count, right >= count) {
                (true, true) if right < left => node.right,
                (true, _) => node.left,
                (false, true) => node.right,
                (false, false) => Link::NONE,
            };
        }
        best.map(|b| b.1)
    }

    /// The range with the highest address.
    pub(crate) fn last(&self, table: &Table) -> Option<HugePageId> {
        let mut at = self.root.get()?;
        while let Some(right) = table[at].node().right.get() {
            at = right;
        }
        Some(at)
    }

    /// Huge pages of the largest range.
    pub(crate) fn largest(&self, table: &Table) -> u32 {
        largest(table, self.root)
    }

    /// Lifts a child above its parent.
    fn rotate_up(&mut self, table: &mut Table, child: HugePageId, parent: HugePageId) {
        let above = table[parent].node();
        let below = table[child].node();
        let moved = if above.left == Link::to(child) {
            edit(table, parent, |n| n.left = below.right);
            edit(table, child, |n| n.right = Link::to(parent));
            below.right
        } else {
            edit(table, parent, |n| n.right = below.left);
            edit(table, child, |n| n.left = Link::to(parent));
            below.left
        };
        if let Some(moved) = moved.get() {
            edit(table, moved, |n| n.parent = Link::to(parent));
        }
        edit(table, parent, |n| n.parent = Link::to(child));
        edit(table, child, |n| n.parent = above.parent);
        self.put_below(table, above.parent, parent, Link::to(child));
        refresh(table, parent);
        refresh(table, child);
    }

    /// Puts `new` where `old` is or belongs, as a child of `parent` or as the root.
    fn put_below(&mut self, table: &mut Table, parent: Link, old: HugePageId, new: Link) {
        match parent.get() {
            None => self.root = new,
            // A child that is not there yet goes by its address.
            Some(parent) => edit(table, parent, |n| {
                if n.left == Link::to(old) || (n.right != Link::to(old) && old < parent) {
                    n.left = new;
                } else {
                    n.right = new;
                }
            }),
        }
    }
}

#[cfg(test)]
impl Tree {
    /// Every range in the order of addresses; fails if the tree is malformed.
    pub(crate) fn walk(&self, table: &Table, visit: &mut dyn FnMut(HugePageId)) {
        fn below(table: &Table, at: Link, parent: Link, visit: &mut dyn FnMut(HugePageId)) -> u32 {
            let Some(here) = at.get() else { return 0 };
            let node = table[here].node();
            assert_eq!(node.parent, parent);
            if let Some(parent) = parent.get() {
                assert!(priority(parent) >= priority(here));
            }
            let left = below(table, node.left, at, visit);
            visit(here);
            let right = below(table, node.right, at, visit);
            let value = left.max(right).max(table[here].length);
            assert_eq!(node.largest, value);
            value
        }
        below(table, self.root, Link::NONE, visit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tracker;
    extern crate std;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::vec;

    proptest! {
        #[test]
        fn a_tree_is_a_sorted_map(script in prop::collection::vec((0..64u32, 1..9u32), 1..200)) {
            let mut records = vec![Tracker::default(); 64];
            let mut table = Table::new(&mut records);
            let mut tree = Tree::default();
            let mut model = BTreeMap::new();
            for (at, length) in script {
                let page = HugePageId(at);
                if model.remove(&at).is_some() {
                    tree.remove(&mut table, page);
                } else {
                    table[page].length = length;
                    tree.insert(&mut table, page);
                    model.insert(at, length);
                }
                let mut seen = vec![];
                tree.walk(&table, &mut |p| seen.push(p.0));
                prop_assert_eq!(seen, model.keys().copied().collect::<std::vec::Vec<_>>());
                prop_assert_eq!(tree.last(&table).map(|p| p.0), model.keys().last().copied());
                for count in 1..10 {
                    let fits = model.values().any(|l| *l >= count);
                    let found = tree.find(&table, count).map(|p| model[&p.0]);
                    prop_assert_eq!(found.is_some(), fits);
                    prop_assert!(found.is_none_or(|l| l >= count));
                }
            }
        }
    }
}
