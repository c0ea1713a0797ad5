//! Transient memory of a heap: reserved as large as it may become, opened as it is needed, zero at first.

use core::marker::PhantomData;
use core::ptr::NonNull;
use core::slice;
use core::sync::atomic::{AtomicUsize, Ordering::*};

use spandrel_os::vm;
use spandrel_pages::PAGE_BYTES;

use crate::error::Error;

/// Types of which zero bytes are a value.
///
/// # Safety
/// They are.
pub unsafe trait Zeroed {}

// SAFETY: numbers.
unsafe impl Zeroed for u64 {}
// SAFETY: numbers.
unsafe impl Zeroed for core::sync::atomic::AtomicU8 {}
// SAFETY: numbers.
unsafe impl Zeroed for core::sync::atomic::AtomicU64 {}

/// Opened in steps of this number of bytes, so that a heap that grows by a block does not ask the kernel each time.
const STEP_BYTES: usize = 16 * PAGE_BYTES;

/// A row that becomes longer.
pub struct Table<T> {
    at: NonNull<T>,
    reserved: usize,
    opened: AtomicUsize,
    of: PhantomData<T>,
}

// SAFETY: it is what its elements are.
unsafe impl<T: Send> Send for Table<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Table<T> {}

impl<T: Zeroed> Table<T> {
    /// Reserves room for `count` elements.
    ///
    /// # Errors
    /// [`Error::NoMemory`]: no address space.
    pub fn reserve(count: usize) -> Result<Self, Error> {
        let reserved = (count * size_of::<T>()).max(1).next_multiple_of(PAGE_BYTES);
        let at = vm::reserve_small(reserved).ok_or(Error::NoMemory)?.cast();
        Ok(Self { at, reserved, opened: AtomicUsize::new(0), of: PhantomData })
    }

    /// Opens at least `count` elements. One thread at a time.
    ///
    /// # Errors
    /// [`Error::Full`]: more than were reserved; [`Error::NoMemory`]: the kernel refused.
    pub fn ensure(&self, count: usize) -> Result<(), Error> {
        let opened = self.opened.load(Relaxed);
        let needed = count * size_of::<T>();
        if needed <= opened {
            return Ok(());
        }
        let to = needed.next_multiple_of(STEP_BYTES).min(self.reserved);
        if to < needed {
            return Err(Error::Full);
        }
        // SAFETY: within the reservation.
        let is_open = unsafe { vm::open(self.at.as_ptr().cast::<u8>().add(opened), to - opened) };
        if !is_open {
            return Err(Error::NoMemory);
        }
        self.opened.store(to, Release);
        Ok(())
    }

    /// Has all that are there on pages of their own, large ones if the kernel has them: threads will write to scattered elements, and
    /// a page that was read before it is written costs two faults and an interrupt of every other processor.
    pub fn populate(&self) {
        let (at, bytes) = (self.at.as_ptr().cast(), self.opened.load(Relaxed));
        // SAFETY: its own, and open.
        unsafe {
            vm::advise_huge(at, bytes);
            vm::populate(at, bytes);
        }
    }

    /// All that are there.
    #[inline]
    pub fn all(&self) -> &[T] {
        let count = self.opened.load(Relaxed) / size_of::<T>();
        // SAFETY: `count` elements are open, and zero is a value (`Zeroed`).
        unsafe { slice::from_raw_parts(self.at.as_ptr(), count) }
    }

    /// One of them, where it is.
    #[inline]
    pub fn pointer(&self, index: usize) -> Option<*mut T> {
        let end = (index + 1).checked_mul(size_of::<T>())?;
        // SAFETY: within what was opened.
        (end <= self.opened.load(Relaxed)).then(|| unsafe { self.at.as_ptr().add(index) })
    }
}

impl<T> Drop for Table<T> {
    fn drop(&mut self) {
        // SAFETY: its own.
        unsafe { vm::release(self.at.as_ptr().cast(), self.reserved) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU64;

    #[test]
    fn a_table_grows_where_it_is() {
        let table = Table::<AtomicU64>::reserve(100_000).unwrap();
        assert!(table.all().is_empty() && table.pointer(0).is_none());
        table.ensure(1).unwrap();
        table.all()[5].store(7, Relaxed);
        table.ensure(100_000).unwrap();
        assert_eq!(table.all()[5].load(Relaxed), 7);
        assert_eq!(table.all()[99_999].load(Relaxed), 0);
        assert_eq!(table.ensure(200_000), Err(Error::Full));
    }
}
