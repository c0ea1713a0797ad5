//! A range for huge pages that nothing has touched.

use spandrel_os::vm;

pub const HUGE: usize = 2 << 20;

/// A huge page's worth of open memory, as aligned.
pub fn open_range() -> *mut u8 {
    let reserved = vm::reserve(2 * HUGE).expect("address space").as_ptr() as usize;
    let at = reserved.next_multiple_of(HUGE) as *mut u8;
    // SAFETY: within what was just reserved.
    assert!(unsafe { vm::open(at, HUGE) });
    at
}

/// What comes of collapsing a range of [`open_range`].
pub fn collapse(at: *mut u8) -> vm::Whole {
    // SAFETY: open, and the test's alone.
    unsafe { vm::collapse(at, HUGE) }
}
