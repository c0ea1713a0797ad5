//! A growing array on pages of its own: nothing that is measured sees it.

use crate::meter::page_size;
use std::ops::{Deref, DerefMut};

/// At most a fixed number of plain values; pages are touched as it grows.
pub struct Table<T: Copy> {
    at: *mut T,
    most: usize,
    len: usize,
    /// The most values that it ever held.
    highest: usize,
}

impl<T: Copy> Table<T> {
    /// An empty table for `most` values, on small pages.
    pub fn new(most: usize) -> Result<Self, String> {
        let bytes = (most * size_of::<T>()).next_multiple_of(page_size());
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, placed by the kernel; the advice changes no contents.
        let at = unsafe {
            let at = libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0);
            if at == libc::MAP_FAILED {
                return Err(format!("no room for a table of {bytes} bytes"));
            }
            libc::madvise(at, bytes, libc::MADV_NOHUGEPAGE);
            at
        };
        Ok(Self { at: at.cast(), most, len: 0, highest: 0 })
    }

    /// Adds a value.
    pub fn push(&mut self, value: T) {
        assert!(self.len < self.most, "the table is full");
        // SAFETY: within the mapping.
        unsafe { self.at.add(self.len).write(value) };
        self.len += 1;
        self.highest = self.highest.max(self.len);
    }

    /// Forgets all but the first `len` values.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Bytes of pages that were ever touched.
    pub fn touched(&self) -> usize {
        (self.highest * size_of::<T>()).next_multiple_of(page_size())
    }
}

impl<T: Copy> Deref for Table<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: the first `len` values were written.
        unsafe { std::slice::from_raw_parts(self.at, self.len) }
    }
}

impl<T: Copy> DerefMut for Table<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and the table is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_and_shrinks() {
        let mut table = Table::new(10_000).unwrap();
        (0..10_000u32).for_each(|value| table.push(value));
        assert_eq!((table.len(), table[9_999], table.touched()), (10_000, 9_999, 40_960));
        table.truncate(3);
        table.swap(0, 2);
        assert_eq!(*table, [2, 1, 0]);
    }
}
