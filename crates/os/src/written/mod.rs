//! Which pages of a range were written since somebody looked.
//!
//! The kernel tells where it can (userfaultfd's asynchronous write protection and `PAGEMAP_SCAN`, Linux 6.7): a first
//! write to a page costs a fault that the kernel ends by itself. Elsewhere pages are protected, and a handler of `SIGSEGV`
//! notes the first write to each.

mod faults;
mod kernel;

use core::sync::atomic::{AtomicUsize, Ordering::*};

use rustix::fd::OwnedFd;

use faults::Guarded;

/// A range that is watched.
#[derive(Debug)]
pub struct Written {
    at: usize,
    len: AtomicUsize,
    how: How,
}

#[derive(Debug)]
enum How {
    Kernel { watch: OwnedFd, pagemap: OwnedFd },
    Faults(&'static Guarded),
}

impl Written {
    /// Watches a range of whole pages, of which none counts as written. It may become longer, to `limit` bytes.
    ///
    /// # Errors
    /// The error's number: it cannot be watched, in either way.
    ///
    /// # Safety
    /// The range is mapped for reading and writing, and the caller's; it is released after this.
    pub unsafe fn watch(at: *mut u8, len: usize, limit: usize) -> Result<Self, i32> {
        let at = at as usize;
        let how = match kernel::watch(at, len) {
            Ok(how) => how,
            Err(_) => How::Faults(faults::watch(at, len, limit)?),
        };
        Ok(Self { at, len: AtomicUsize::new(len), how })
    }

    /// The same by protection alone: for tests.
    ///
    /// # Errors
    /// As for [`Written::watch`].
    ///
    /// # Safety
    /// As for [`Written::watch`].
    pub unsafe fn watch_by_faults(at: *mut u8, len: usize, limit: usize) -> Result<Self, i32> {
        let at = at as usize;
        let how = How::Faults(faults::watch(at, len, limit)?);
        Ok(Self { at, len: AtomicUsize::new(len), how })
    }

    /// Watches what was mapped behind the range as well, up to `len` bytes of all; nobody has written there yet.
    ///
    /// # Errors
    /// The error's number. It is as it was then.
    ///
    /// # Safety
    /// As for [`Written::watch`]; `len` is at most the limit, and nobody else makes the range longer.
    pub unsafe fn extend(&self, len: usize) -> Result<(), i32> {
        let before = self.len.load(Relaxed);
        let (at, more) = (self.at + before, len.saturating_sub(before));
        match &self.how {
            How::Kernel { watch, pagemap } => kernel::add(watch, pagemap, at, more)?,
            How::Faults(guarded) => guarded.extend(at, more)?,
        }
        self.len.store(len, Release);
        Ok(())
    }

    /// Whether the kernel tells.
    pub fn is_by_kernel(&self) -> bool {
        matches!(self.how, How::Kernel { .. })
    }

    /// Names every run of pages that was written since the last call, by offset and length, in order; they do not count as
    /// written from then on. What is written meanwhile is named now or the next time.
    ///
    /// # Errors
    /// The error's number. Runs that were not named may be lost.
    pub fn take(&self, mut run: impl FnMut(usize, usize)) -> Result<(), i32> {
        match &self.how {
            How::Kernel { pagemap, .. } => {
                let len = self.len.load(Acquire);
                kernel::take(pagemap, self.at, len, |at, len| run(at - self.at, len))
            }
            How::Faults(guarded) => guarded.take(|at, len| run(at - self.at, len)),
        }
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        if let How::Faults(guarded) = self.how {
            guarded.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::vm;
    use spandrel_pages::PAGE_BYTES;
    use std::vec::Vec;

    fn runs(written: &Written) -> Vec<(usize, usize)> {
        let mut runs = Vec::new();
        written.take(|at, len| runs.push((at / PAGE_BYTES, len / PAGE_BYTES))).unwrap();
        runs
    }

    type Watch = unsafe fn(*mut u8, usize, usize) -> Result<Written, i32>;

    fn writes_are_named_once(watch: Watch) -> bool {
        let pages = 1000;
        let at = vm::reserve(pages * PAGE_BYTES).unwrap().as_ptr();
        // SAFETY: the test's own memory.
        unsafe {
            assert!(vm::open(at, pages * PAGE_BYTES));
            at.write_volatile(1);
            let written = watch(at, (pages - 1) * PAGE_BYTES, pages * PAGE_BYTES).unwrap();
            written.extend(pages * PAGE_BYTES).unwrap();
            assert_eq!(runs(&written), []);
            for page in [3, 4, 5, 64, 999] {
                at.add(page * PAGE_BYTES + 17).write_volatile(1);
            }
            assert_eq!(at.add(4 * PAGE_BYTES + 17).read_volatile(), 1);
            assert_eq!(at.add(7 * PAGE_BYTES).read_volatile(), 0, "reading is no writing");
            assert_eq!(runs(&written), [(3, 3), (64, 1), (999, 1)]);
            assert_eq!(runs(&written), []);
            at.add(4 * PAGE_BYTES).write_volatile(2);
            at.write_volatile(2);
            assert_eq!(runs(&written), [(0, 1), (4, 1)]);
            (0..pages).for_each(|page| at.add(page * PAGE_BYTES).write_volatile(3));
            assert_eq!(runs(&written), [(0, pages)]);
            let is_by_kernel = written.is_by_kernel();
            drop(written);
            at.write_volatile(4);
            vm::release(at, pages * PAGE_BYTES);
            is_by_kernel
        }
    }

    #[test]
    fn the_kernel_tells_if_it_can() {
        writes_are_named_once(Written::watch);
    }

    #[test]
    fn protection_tells_where_the_kernel_does_not() {
        assert!(!writes_are_named_once(Written::watch_by_faults));
    }

    #[test]
    fn noting_a_write_leaves_errno_alone() {
        let at = vm::reserve(2 * PAGE_BYTES).unwrap().as_ptr();
        // SAFETY: the test's own memory.
        unsafe {
            assert!(vm::open(at, 2 * PAGE_BYTES));
            let written = Written::watch_by_faults(at, 2 * PAGE_BYTES, 2 * PAGE_BYTES).unwrap();
            crate::env::set_errno(77);
            at.write_volatile(1);
            assert_eq!(crate::env::errno(), 77);
            assert_eq!(runs(&written), [(0, 1)]);
            drop(written);
            vm::release(at, 2 * PAGE_BYTES);
        }
    }

    #[test]
    fn threads_that_begin_at_once_are_all_heard() {
        let begin = std::sync::Barrier::new(4);
        let watch = || {
            let at = vm::reserve(PAGE_BYTES).unwrap().as_ptr();
            begin.wait();
            // SAFETY: the thread's own memory.
            unsafe {
                assert!(vm::open(at, PAGE_BYTES));
                let written = Written::watch_by_faults(at, PAGE_BYTES, PAGE_BYTES).unwrap();
                at.write_volatile(1);
                assert_eq!(runs(&written), [(0, 1)]);
                drop(written);
                vm::release(at, PAGE_BYTES);
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(watch))));
    }
}
