//! A kernel that says of every range that it cannot be collapsed is taken for one that does
//! not know how. In a program of its own: what the kernel can do is known for the process.

mod common;

use common::{collapse, open_range};
use spandrel_os::vm::{self, Whole};

#[test]
fn a_kernel_that_finds_every_range_invalid_is_asked_nine_times() {
    // Never touched: invalid to kernels that know the advice as well.
    let range = open_range();
    for _ in 0..8 {
        assert_eq!(collapse(range), Whole::Busy);
        assert!(vm::can_collapse());
    }
    assert_eq!(collapse(range), Whole::Unsupported);
    assert!(!vm::can_collapse());
}
