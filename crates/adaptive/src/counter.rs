//! The paper's allocation counter for objects outside the page-mapped backend
//! (Brug, section III.A.2): +1 for each growth, -1 for each shrink, not below 0.
//!
//! A bounded side table instead of a header before the object: objects that
//! are not resized cost nothing, `free` does not look here, and what does not
//! fit is forgotten. An entry is believed only while the object still has the
//! size that its last reallocation left, so that a new object at an old address
//! normally starts from zero.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use spandrel_pages::SizeClass;

const ENTRIES: usize = 4096;
const COUNT_BITS: u32 = 8;
const CLASS_BITS: u32 = 10;
const TAG_SHIFT: u32 = COUNT_BITS + CLASS_BITS;

/// Tag of the address, size class, counter; zero when empty.
static TABLE: [AtomicU64; ENTRIES] = [const { AtomicU64::new(0) }; ENTRIES];

fn entry(object: *mut u8) -> (&'static AtomicU64, u64) {
    // Objects are 16 bytes apart: the low bits say nothing. A 46-bit tag holds
    // the rest of a 47-bit address.
    let tag = object as u64 >> 4;
    let index = tag.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - ENTRIES.ilog2());
    (&TABLE[index as usize % ENTRIES], tag)
}

fn pack(tag: u64, usable: usize, count: u8) -> u64 {
    tag << TAG_SHIFT | (SizeClass::of(usable).index() as u64) << COUNT_BITS | u64::from(count)
}

fn count_of(object: *mut u8, usable: usize) -> u8 {
    let (entry, tag) = entry(object);
    let found = entry.load(Relaxed);
    if found >> COUNT_BITS == pack(tag, usable, 0) >> COUNT_BITS { found as u8 } else { 0 }
}

/// Notes that `object`, of `usable` bytes, grows or shrinks; its new count.
pub fn note(object: *mut u8, usable: usize, grows: bool, shrinks: bool) -> u8 {
    let count = count_of(object, usable);
    let count = match (grows, shrinks) {
        (true, _) => count.saturating_add(1),
        (_, true) => count.saturating_sub(1),
        _ => count,
    };
    let (entry, tag) = entry(object);
    entry.store(pack(tag, usable, count), Relaxed);
    count
}

/// Carries the count over a reallocation from `old` to `new`, which now has
/// `usable` bytes.
pub fn follow(old: *mut u8, new: *mut u8, usable: usize) {
    let (from, tag) = entry(old);
    let found = from.load(Relaxed);
    if found >> TAG_SHIFT != tag {
        return;
    }
    if old != new {
        from.store(0, Relaxed);
    }
    let (to, tag) = entry(new);
    to.store(pack(tag, usable, found as u8), Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_counts_up_shrinking_down_and_never_below_zero() {
        let object = 0x7000_1230 as *mut u8;
        assert_eq!(note(object, 64, false, true), 0);
        for expected in 1..=3 {
            assert_eq!(note(object, 64, true, false), expected);
        }
        assert_eq!(note(object, 64, false, true), 2);
    }

    #[test]
    fn the_count_follows_a_moved_object_and_leaves_its_old_address() {
        let (old, new) = (0x7000_4560 as *mut u8, 0x7000_7890 as *mut u8);
        note(old, 100, true, false);
        note(old, 100, true, false);
        follow(old, new, 200);
        assert_eq!(note(new, 200, true, false), 3);
        assert_eq!(note(old, 100, true, false), 1);
    }

    #[test]
    fn a_new_object_of_another_size_starts_from_zero() {
        let object = 0x7000_abc0 as *mut u8;
        note(object, 4096, true, false);
        assert_eq!(note(object, 64, true, false), 1);
    }
}
