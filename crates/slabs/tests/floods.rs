//! After a long flood new objects lie side by side. The heap is the process's: this test is alone in its file.

mod caches;
mod stay;

use std::collections::BTreeSet;

use spandrel_slabs as slabs;

const SIZE: usize = 64;
const PAGE: usize = 8192;

fn make(count: usize) -> Vec<usize> {
    let make_one = |_| slabs::alloc(SIZE) as usize;
    let objects: Vec<_> = (0..count).map(make_one).collect();
    assert!(!objects.contains(&0));
    objects
}

/// Each in a page that is far from the last one's.
fn free_scattered(objects: &[usize]) {
    let step = 7919;
    assert_ne!(objects.len() % step, 0);
    for at in 0..objects.len() {
        // SAFETY: a live object of this test's; the step is prime, so that each has its turn once.
        unsafe { slabs::free(objects[at * step % objects.len()] as *mut u8) };
    }
}

#[test]
fn what_is_made_after_a_long_flood_lies_side_by_side() {
    stay::stay();
    if !caches::start() {
        return;
    }
    let objects = make(60_000);
    free_scattered(&objects);
    let few = make(2_000);
    let pages: BTreeSet<_> = few.iter().map(|at| at / PAGE).collect();
    // 2,000 objects fill 16 pages. A batch that was freed last may lie anywhere.
    assert!(pages.len() < 250, "{} pages", pages.len());
    free_scattered(&few);
    // Stacks hold as much as before: what comes and goes in small numbers stays in them.
    let again: BTreeSet<_> = make(500).into_iter().collect();
    assert!(again.iter().all(|at| few.contains(at)), "of what was freed just now");
}
