//! The page heap's records, in memory that the kernel gives as zeroes and only when it is touched:
//! a slice of terabytes costs what the heap on it has used.

use crate::hugepages;
use spandrel_pageheap::Tracker;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Records that were never used.
pub(crate) struct Records {
    first: NonNull<Tracker>,
    count: usize,
}

impl Records {
    /// `count` records; at least one.
    pub(crate) fn new(count: usize) -> Self {
        let count = count.max(1);
        let layout = Self::layout(count);
        // SAFETY: the layout is not empty: there is at least one record, and it has a size.
        let first = unsafe { alloc_zeroed(layout) };
        let Some(first) = NonNull::new(first.cast::<Tracker>()) else { handle_alloc_error(layout) };
        hugepages::advise(first.as_ptr().cast(), layout.size());
        Self { first, count }
    }

    pub(crate) fn as_mut(&mut self) -> &mut [Tracker] {
        // SAFETY: `first` was allocated for `count` records and lives as long as `self`, which is
        // borrowed mutably. All bytes zero is a valid record: `PageHeap::new` promises that it is
        // `Tracker::default()`, and a test here holds it to that.
        unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), self.count) }
    }

    fn layout(count: usize) -> Layout {
        Layout::array::<Tracker>(count).expect("a slice has at most 2^24 huge pages")
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `new`, and not used after this. Records own
        // nothing, so that none has to be dropped.
        unsafe { dealloc(self.first.as_ptr().cast(), Self::layout(self.count)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroes_are_records_that_were_never_used() {
        let mut records = Records::new(3);
        let all = records.as_mut();
        assert_eq!(all.len(), 3);
        for record in all {
            assert_eq!(format!("{record:?}"), format!("{:?}", Tracker::default()));
        }
    }
}
