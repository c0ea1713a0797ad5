//! Which pages of a private mapping, of a file or anonymous, were written.
//!
//! Two ways:
//!
//! - The kernel records writes exactly (userfaultfd's asynchronous write protection and `PAGEMAP_SCAN`, Linux 6.7): a first write to a page
//!   costs a fault, which the kernel handles by itself. Containers often forbid that call.
//! - Elsewhere the page table shows which pages the process has a copy of: all that were ever written. A comparison with the file shows
//!   which of them have changed.
//!
//! Neither way needs a signal or a protection that the program could notice: system calls may store to the pages, threads may block
//! signals, and a handler of `SIGSEGV` is the program's own.

mod back;
mod kernel;
mod own;

use core::sync::atomic::{AtomicUsize, Ordering::*};

use crate::descriptors::Kept;

/// A range that is watched.
#[derive(Debug)]
pub struct Written {
    at: usize,
    len: AtomicUsize,
    how: How,
}

#[derive(Debug)]
enum How {
    Kernel { watch: Kept, pagemap: Kept },
    Own { pagemap: Option<Kept> },
}

/// What [`Written::take`] names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Names {
    /// Pages that were written since the last call.
    Written,
    /// Pages that were written at any time. The caller compares them with the file.
    Candidates,
}

impl Written {
    /// Watches a range of whole pages, of which none counts as written.
    ///
    /// # Safety
    /// The range is a private mapping, of a file or anonymous, for reading and writing, that belongs to the caller. What was written before does not
    /// count. It is unmapped only after the last call of this value.
    pub unsafe fn watch(at: *mut u8, len: usize) -> Self {
        let at = at as usize;
        let how = kernel::watch(at, len).unwrap_or_else(|_| How::Own { pagemap: own::open() });
        Self { at, len: AtomicUsize::new(len), how }
    }

    /// As [`Written::watch`], without the kernel's record of writes: for tests.
    ///
    /// # Safety
    /// As for [`Written::watch`].
    pub unsafe fn watch_own(at: *mut u8, len: usize) -> Self {
        let how = How::Own { pagemap: own::open() };
        Self { at: at as usize, len: AtomicUsize::new(len), how }
    }

    /// Watches a longer range, of `len` bytes in all. No page behind the old end was written yet.
    ///
    /// # Errors
    /// The error's number. The range stays as long as it was then.
    ///
    /// # Safety
    /// As for [`Written::watch`]; one thread at a time makes the range longer.
    pub unsafe fn extend(&self, len: usize) -> Result<(), i32> {
        let before = self.len.load(Relaxed);
        let (at, more) = (self.at + before, len.saturating_sub(before));
        if let How::Kernel { watch, pagemap } = &self.how {
            kernel::add(watch, pagemap, at, more)?;
        }
        self.len.store(len, Release);
        Ok(())
    }

    /// Watches a shorter range, of `len` bytes in all.
    pub fn shorten(&self, len: usize) {
        self.len.fetch_min(len, Release);
    }

    /// What [`Written::take`] names.
    pub fn names(&self) -> Names {
        match self.how {
            How::Kernel { .. } => Names::Written,
            How::Own { .. } => Names::Candidates,
        }
    }

    /// Calls `run` with the offset and length of every run of pages, in order. A page that is written meanwhile is named now or the next
    /// time.
    ///
    /// # Errors
    /// The error's number. Runs that were not named may be lost.
    pub fn take(&self, mut run: impl FnMut(usize, usize)) -> Result<(), i32> {
        let len = self.len.load(Acquire);
        match &self.how {
            How::Kernel { pagemap, .. } => {
                kernel::take(pagemap, self.at, len, |at, len| run(at - self.at, len))
            }
            How::Own { pagemap } => own::pages(pagemap.as_ref(), self.at, len, |at, len| {
                run(at - self.at, len);
            }),
        }
    }

    /// About the number of bytes that the next [`Written::take`] would name. The pages count as written as before.
    pub fn bytes(&self) -> usize {
        let (len, mut bytes) = (self.len.load(Acquire), 0);
        let count = |_: usize, len: usize| bytes += len;
        // Where the kernel lists no pages, any may be written.
        let listed = match &self.how {
            How::Kernel { pagemap, .. } => kernel::list(pagemap, self.at, len, count),
            How::Own { pagemap } => own::pages(pagemap.as_ref(), self.at, len, count),
        };
        if listed.is_ok() { bytes } else { len }
    }

    /// Releases the memory of pages that are equal to the file's: they read the same afterwards, from the file. Returns the number of
    /// bytes.
    ///
    /// `is_equal` compares the page at an offset with the file, where the kernel does not record writes. Signals of the calling thread are
    /// blocked meanwhile.
    ///
    /// # Safety
    /// The file has every store up to the last call of [`Written::take`]. No other thread stores to the range meanwhile, nor does an
    /// asynchronous system call that was begun before.
    pub unsafe fn give_back(&self, is_equal: impl FnMut(usize) -> bool) -> usize {
        let len = self.len.load(Acquire);
        // SAFETY: passed on from the caller.
        unsafe { back::give(&self.how, self.at, len, is_equal) }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::image::{Image, Mapping};
    use crate::vm;
    use spandrel_pages::PAGE_BYTES;
    use std::ffi::CString;
    use std::format;
    use std::vec::Vec;

    /// A file of pages that hold their number, mapped privately.
    struct Mapped {
        image: Image,
        at: *mut u8,
        pages: usize,
    }

    impl Mapped {
        fn new(name: &str, pages: usize) -> Self {
            let path = format!("spandrel-written-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(path);
            let path = CString::new(path.to_str().unwrap()).unwrap();
            let image = Image::create(&path).unwrap();
            crate::image::remove(&path).unwrap();
            image.grow(0, (pages * PAGE_BYTES) as u64).unwrap();
            for page in 0..pages {
                image.write_at(&(page as u64).to_le_bytes(), (page * PAGE_BYTES) as u64).unwrap();
            }
            let at = vm::reserve(pages * PAGE_BYTES).unwrap().as_ptr();
            // SAFETY: just reserved.
            unsafe { image.map(at, 0, pages * PAGE_BYTES, Mapping::Private).unwrap() };
            Self { image, at, pages }
        }

        fn word(&self, page: usize) -> *mut u64 {
            assert!(page < self.pages);
            self.at.wrapping_add(page * PAGE_BYTES).cast()
        }

        fn store(&self, page: usize, word: u64) {
            // SAFETY: mapped, and the test's own.
            unsafe { self.word(page).write_volatile(word) };
        }

        fn load(&self, page: usize) -> u64 {
            // SAFETY: as above.
            unsafe { self.word(page).read_volatile() }
        }

        fn own(&self) -> Vec<(usize, usize)> {
            let mut runs = Vec::new();
            let pagemap = own::open();
            let add = |at: usize, len: usize| {
                runs.push(((at - self.at as usize) / PAGE_BYTES, len / PAGE_BYTES));
            };
            own::pages(pagemap.as_ref(), self.at as usize, self.pages * PAGE_BYTES, add).unwrap();
            runs
        }
    }

    impl Drop for Mapped {
        fn drop(&mut self) {
            // SAFETY: the test's own.
            unsafe { vm::release(self.at, self.pages * PAGE_BYTES) };
        }
    }

    fn runs(written: &Written) -> Vec<(usize, usize)> {
        let mut runs = Vec::new();
        written.take(|at, len| runs.push((at / PAGE_BYTES, len / PAGE_BYTES))).unwrap();
        runs
    }

    const PAGES: usize = 1000;

    #[test]
    fn the_kernel_names_each_write_once() {
        let mapped = Mapped::new("kernel", PAGES);
        // SAFETY: mapped, and not written yet.
        let written = unsafe {
            let written = Written::watch(mapped.at, (PAGES - 1) * PAGE_BYTES);
            written.extend(PAGES * PAGE_BYTES).unwrap();
            written
        };
        if written.names() == Names::Candidates {
            return;
        }
        assert_eq!(runs(&written), []);
        [3, 4, 5, 64, 999].into_iter().for_each(|page| mapped.store(page, 1));
        assert_eq!(mapped.load(7), 7, "reading is no writing");
        assert_eq!(written.bytes(), 5 * PAGE_BYTES);
        assert_eq!(runs(&written), [(3, 3), (64, 1), (999, 1)]);
        assert_eq!((runs(&written), written.bytes()), (Vec::new(), 0));
        mapped.store(4, 2);
        mapped.store(0, 2);
        assert_eq!(runs(&written), [(0, 1), (4, 1)]);
        (0..PAGES).for_each(|page| mapped.store(page, 3));
        assert_eq!(runs(&written), [(0, PAGES)]);
    }

    /// A store to a huge page would name all of it.
    #[test]
    fn a_page_of_memory_that_was_a_huge_page_is_named_alone() {
        const HUGE: usize = 2 << 20;
        let at = vm::reserve(4 * HUGE).unwrap().as_ptr();
        let at = at.wrapping_add(at.align_offset(HUGE));
        // SAFETY: within what was reserved.
        let written = unsafe {
            assert!(vm::open(at, 2 * HUGE));
            vm::advise_huge(at, 2 * HUGE);
            at.write_bytes(1, 2 * HUGE);
            Written::watch(at, 2 * HUGE)
        };
        if written.names() == Names::Candidates {
            return;
        }
        for (offset, page) in [(0, 0), (HUGE + 5 * PAGE_BYTES, 517), (2 * HUGE - 1, 1023)] {
            // SAFETY: as above.
            unsafe { at.add(offset).write_volatile(2) };
            assert_eq!(runs(&written), [(page, 1)]);
        }
    }

    #[test]
    fn without_the_kernel_all_pages_of_its_own_are_candidates() {
        let mapped = Mapped::new("own", PAGES);
        // SAFETY: mapped, and not written yet.
        let written = unsafe { Written::watch_own(mapped.at, PAGES * PAGE_BYTES) };
        assert_eq!(written.names(), Names::Candidates);
        assert!((0..PAGES).all(|page| mapped.load(page) == page as u64));
        assert_eq!(runs(&written), []);
        [3, 4, 5, 64, 999].into_iter().for_each(|page| mapped.store(page, 1));
        let named = [(3, 3), (64, 1), (999, 1)];
        assert_eq!((runs(&written), runs(&written)), (named.to_vec(), named.to_vec()));
        // A system call stores as any other store does.
        let read = mapped.image.read_at(
            // SAFETY: mapped, and nothing else refers to it.
            unsafe { core::slice::from_raw_parts_mut(mapped.at.add(8 * PAGE_BYTES), 8) },
            0,
        );
        assert_eq!(read, Ok(8));
        assert_eq!(runs(&written), [(3, 3), (8, 1), (64, 1), (999, 1)]);
    }

    #[test]
    fn pages_that_are_equal_to_the_file_are_given_back_and_others_stay() {
        for watch in
            [Written::watch, Written::watch_own] as [unsafe fn(*mut u8, usize) -> Written; 2]
        {
            let mapped = Mapped::new("back", PAGES);
            // SAFETY: mapped, and not written yet.
            let written = unsafe { watch(mapped.at, PAGES * PAGE_BYTES) };
            (0..100).for_each(|page| mapped.store(page, 7));
            runs(&written);
            for page in 0..100 {
                mapped.image.write_at(&7u64.to_le_bytes(), (page * PAGE_BYTES) as u64).unwrap();
            }
            mapped.store(50, 8);
            let is_equal = |at: usize| {
                let mut word = [0; 8];
                mapped.image.read_at(&mut word, at as u64).unwrap();
                mapped.load(at / PAGE_BYTES) == u64::from_le_bytes(word)
            };
            // SAFETY: no other thread has the range.
            let bytes = unsafe { written.give_back(is_equal) };
            assert_eq!(bytes, 99 * PAGE_BYTES);
            // Where the kernel watches the page table has marks in the place of pages.
            if written.names() == Names::Candidates {
                assert_eq!(mapped.own(), [(50, 1)]);
            }
            assert!((0..100).all(|page| mapped.load(page) == if page == 50 { 8 } else { 7 }));
            assert_eq!(runs(&written), [(50, 1)]);
            mapped.store(3, 9);
            assert!(runs(&written).contains(&(3, 1)));
        }
    }
}
