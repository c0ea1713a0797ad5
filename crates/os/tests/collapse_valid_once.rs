//! A kernel that has collapsed a range can: what it says of others later is of those alone. In a
//! program of its own, as its sibling.

mod common;

use common::{HUGE, collapse, open_range};
use spandrel_os::vm::{self, Whole};

#[test]
fn a_kernel_that_collapsed_once_is_never_given_up() {
    let filled = open_range();
    for page in (0..HUGE).step_by(4096) {
        // SAFETY: within the open range.
        unsafe { filled.add(page).write(mark(page)) };
    }
    match collapse(filled) {
        // Before Linux 6.1 there is nothing to see.
        Whole::Busy => return,
        outcome => assert_eq!(outcome, Whole::Done),
    }
    let untouched = open_range();
    for _ in 0..30 {
        assert_eq!(collapse(untouched), Whole::Busy);
    }
    assert!(vm::can_collapse());
    // SAFETY: as above.
    let kept = (0..HUGE).step_by(4096).all(|page| unsafe { filled.add(page).read() } == mark(page));
    assert!(kept, "collapsing changed what was there");
}

fn mark(at: usize) -> u8 {
    (at >> 12) as u8 | 1
}
