//! How long a fresh huge page takes, and whether the next ones begin with small pages.
//!
//! A huge page takes 0.1 to 0.3 ms, mostly to clear it: less than its small pages
//! would. It takes many times as long where the kernel has to make room in one
//! piece first, or where the host of a virtual machine took the memory back while it
//! was free, which it does with large pieces only (4 to 5 ms were measured). Small
//! pages come from the pieces that are left then, and are made one page when they
//! have filled and there is time.

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};

use spandrel_os::{clock, vm};
use spandrel_pages::HUGEPAGE_BYTES;
use spandrel_sync::background;

use crate::map;

/// A huge page that took so long was slow: its small pages take 1 ms.
const SLOW_MICROS: u64 = 1500;
/// After a slow one this many begin small, and twice as many after each further one …
const REST: u32 = 16;
/// … up to this many times: until 1 GiB.
const MOST_DOUBLINGS: u32 = 5;

struct Fresh {
    /// Huge pages that are still to begin small.
    rest: AtomicU32,
    /// Slow ones in a row.
    slow: AtomicU32,
}

static FRESH: Fresh = Fresh::new();

impl Fresh {
    const fn new() -> Self {
        Self { rest: AtomicU32::new(0), slow: AtomicU32::new(0) }
    }

    /// Lost counts do not matter.
    fn begin_small(&self, huge_pages: usize) -> bool {
        let rest = self.rest.load(Relaxed);
        if rest > 0 {
            let fewer = u32::try_from(huge_pages).unwrap_or(u32::MAX);
            self.rest.store(rest.saturating_sub(fewer), Relaxed);
        }
        rest > 0
    }

    /// # Safety
    /// What `spare` gives is an open huge page that is not in use.
    unsafe fn fetch(&self, spare: impl FnOnce() -> Option<*mut u8>) {
        if self.slow.load(Relaxed) == 0 {
            return;
        }
        if let Some(spare) = spare() {
            // SAFETY: passed on from the caller.
            unsafe {
                ptr::write_volatile(spare, 0);
                vm::discard(spare, HUGEPAGE_BYTES);
            }
        }
    }

    fn took(&self, micros: u64) -> Speed {
        let slow = self.slow.load(Relaxed);
        if micros < SLOW_MICROS {
            if slow != 0 {
                // Another thread's, by now.
                self.rest.store(0, Relaxed);
                self.slow.store(0, Relaxed);
            }
            return Speed::Quick;
        }
        self.slow.store((slow + 1).min(MOST_DOUBLINGS), Relaxed);
        self.rest.store(REST << slow, Relaxed);
        Speed::Slow
    }
}

/// How long a huge page took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Speed {
    /// Less than its small pages.
    Quick,
    /// More.
    Slow,
}

/// Whether the next `huge_pages` huge pages had better begin with small pages. If so, they are counted as having done so.
#[inline]
pub fn begin_small(huge_pages: usize) -> bool {
    FRESH.begin_small(huge_pages)
}

/// Whether the last huge page that was touched was slow.
pub fn are_slow() -> bool {
    FRESH.slow.load(Relaxed) > 0
}

/// Has the kernel ready what the next huge page is made of, if that is slow to come: a thread that makes
/// a page whole keeps all others of the process from faulting meanwhile, and a thread that touches a
/// fresh one keeps none. What a processor has given back last it gets first.
pub fn fetch() {
    // One at a time: the second would find the first one's page.
    if FETCHING.swap(true, Acquire) {
        return;
    }
    // SAFETY: `map::spare` gives such a page.
    unsafe { FRESH.fetch(map::spare) };
    FETCHING.store(false, Release);
}

/// In the child of a fork: a thread that fetched is not here.
pub fn fork_forget() {
    if FETCHING.swap(false, Relaxed)
        && let Some(spare) = map::spare()
    {
        // SAFETY: it is never in use.
        unsafe { vm::discard(spare, HUGEPAGE_BYTES) };
    }
}

static FETCHING: AtomicBool = AtomicBool::new(false);

/// Whether there are huge pages in this process, as the calling thread found it last: the administrator may set it otherwise at any time, and the thread beside
/// a program may not open files where it shares the program's descriptors.
pub fn are_allowed() -> bool {
    if background::may_open_files() {
        ALLOWED.store(vm::huge_pages() != vm::HugePages::Never, Relaxed);
    }
    ALLOWED.load(Relaxed)
}

static ALLOWED: AtomicBool = AtomicBool::new(true);

/// Touches a fresh huge page, and learns from how long it takes. Returns that.
///
/// # Safety
/// Writable memory that is zero, and the caller's.
pub unsafe fn touch(at: *mut u8) -> Speed {
    // Not the wall's time: what others did meanwhile says nothing.
    let start = clock::thread_micros();
    // SAFETY: passed on from the caller.
    unsafe { ptr::write_volatile(at, 0) };
    FRESH.took(clock::thread_micros().saturating_sub(start))
}

/// As [`touch`], for a huge page of live memory that was not used yet: what is stored there meanwhile stays. [`Speed::Quick`] where the kernel cannot.
///
/// # Safety
/// Writable memory, which stays so.
pub unsafe fn populate(at: *mut u8) -> Speed {
    let start = clock::thread_micros();
    // SAFETY: passed on from the caller.
    if unsafe { vm::populate(at, HUGEPAGE_BYTES) } {
        FRESH.took(clock::thread_micros().saturating_sub(start))
    } else {
        Speed::Quick
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many begin small until one is tried whole.
    fn small(fresh: &Fresh) -> u32 {
        (0..).find(|_| !fresh.begin_small(1)).unwrap_or(0)
    }

    #[test]
    fn after_slow_ones_more_and_more_begin_small_until_one_is_quick() {
        let fresh = Fresh::new();
        fresh.took(SLOW_MICROS - 1);
        assert_eq!(small(&fresh), 0);
        let rests = [(); 8].map(|()| {
            fresh.took(SLOW_MICROS);
            small(&fresh)
        });
        assert_eq!(rests, [16, 32, 64, 128, 256, 512, 512, 512]);
        fresh.took(100);
        assert_eq!(small(&fresh), 0);
        fresh.took(5000);
        assert!(fresh.begin_small(1));
        fresh.took(100);
        assert_eq!(small(&fresh), 0, "another thread found them quick");
    }

    #[test]
    fn where_huge_pages_are_slow_one_is_fetched_and_given_back() {
        let range = vm::reserve(HUGEPAGE_BYTES).expect("address space").as_ptr();
        let fresh = Fresh::new();
        // SAFETY: just reserved, and the test's.
        unsafe {
            assert!(vm::open(range, HUGEPAGE_BYTES));
            ptr::write_volatile(range, 1);
            fresh.fetch(|| unreachable!("they are quick"));
            fresh.took(SLOW_MICROS);
            fresh.fetch(|| Some(range));
            assert!(!vm::is_resident(range));
            assert_eq!(ptr::read_volatile(range), 0);
            fresh.fetch(|| None);
        }
        assert_eq!(small(&fresh), 16, "no thread tried another");
    }

    #[test]
    fn the_spare_page_is_behind_all_data() {
        assert!(crate::heap::start());
        let Some(spare) = map::spare() else { return };
        assert_eq!(spare as usize, map::bounds()[4]);
        assert!((spare as usize).is_multiple_of(HUGEPAGE_BYTES));
        FRESH.took(SLOW_MICROS);
        fetch();
    }
}
