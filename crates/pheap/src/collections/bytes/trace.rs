//! What the objects of a tree lead to. Slots that are not in use hold what was there before, and name nothing.

use super::SortedBytesHead;
use super::node::{Inner, LEAF_BYTES, Leaf, Order, SLOTS, level};
use crate::pointer::{PPtr, offset_of};
use crate::trace::{Target, Trace, Tracer, hash, mix};

/// A change of the layout changes this number.
const LAYOUT: u64 = mix(hash("SortedBytes", 1), LEAF_BYTES as u64);

/// Names a pointer to a node of a level.
fn node(to: &PPtr<Leaf>, of_level: usize, tracer: &mut Tracer<'_>) {
    let target = if of_level == 0 { Target::of::<Leaf>(1) } else { Target::of::<Inner>(1) };
    tracer.0.pointer(core::ptr::from_ref(to).cast(), target);
}

// SAFETY: any bytes are a pointer and numbers, and `trace` names the pointer.
unsafe impl Trace for SortedBytesHead {
    const LAYOUT: u64 = LAYOUT;

    fn trace(&self, tracer: &mut Tracer<'_>) {
        node(&self.root, self.height as usize, tracer);
    }
}

// SAFETY: any bytes are numbers and slots, and `trace` names the entries of the slots in use.
unsafe impl Trace for Leaf {
    const LAYOUT: u64 = LAYOUT;

    fn trace(&self, tracer: &mut Tracer<'_>) {
        let order = Order(self.order);
        (0..order.len()).for_each(|place| tracer.slice(&self.slots[order.slot(place)].word, 1));
    }
}

// SAFETY: any bytes are a node and pointers, and `trace` names those in use.
unsafe impl Trace for Inner {
    const LAYOUT: u64 = LAYOUT;

    fn trace(&self, tracer: &mut Tracer<'_>) {
        let (order, below) = (Order(self.node.order), level(self.node.kind).saturating_sub(1));
        node(&self.children[SLOTS], below, tracer);
        for slot in (0..order.len()).map(|place| order.slot(place)) {
            let word = &self.node.slots[slot].word;
            // A short separator is in its slot, and the word a number.
            if offset_of(word.raw()).is_some() {
                tracer.slice(word, 1);
            }
            node(&self.children[slot], below, tracer);
        }
    }
}
