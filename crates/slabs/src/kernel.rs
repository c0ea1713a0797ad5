//! The kernel, as the page heap asks for memory.

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use spandrel_os::pagemap::Pagemap;
use spandrel_os::vm;
use spandrel_pageheap::{Collapse, Memory};
use spandrel_pages::{
    HEAP_PAGE_BYTES, HUGEPAGE_BYTES, HugeLength, HugePageId, Length, PAGE_BYTES, PageId,
};
use spandrel_sync::background;

use crate::fresh;
use crate::map::{self, Page};
use crate::refuse::{Call, clock, refuses};

/// Huge pages from the start of the slice that are not advised to be huge.
pub const SMALL_PROGRAM: HugePageId = HugePageId(2);

/// Huge pages that the heap has ever reached over.
static REACHED: AtomicU32 = AtomicU32::new(0);

/// The page heap counts from the first page of data.
pub fn page_of(page: PageId) -> Page {
    Page(map::first_data_page() + page.0 as usize)
}

/// See [`page_of`].
pub fn id_of(page: Page) -> PageId {
    PageId((page.0 - map::first_data_page()) as u32)
}

/// Huge pages that the heap has ever reached over.
pub fn reached() -> u32 {
    REACHED.load(Relaxed)
}

/// Where a huge page of the data lies.
pub fn huge_address(page: HugePageId) -> *mut u8 {
    let first = Page(map::first_data_page()).address();
    (first + page.0 as usize * HUGEPAGE_BYTES) as *mut u8
}

/// Data of the slice, for one call of the page heap.
#[derive(Default)]
pub struct Kernel {
    /// A single huge page that this call got whole, and no thread has touched yet.
    fresh: Option<HugePageId>,
    /// What this call gets has small pages, as the slice has where it is not advised otherwise.
    small: bool,
}

/// Has whole huge pages of data come huge from now on, but for those that a small program lives in. False: the kernel refuses.
///
/// # Safety
/// They are open.
pub unsafe fn advise_huge(at: *mut u8, len: usize) -> bool {
    let skipped = (huge_address(SMALL_PROGRAM) as usize).saturating_sub(at as usize).min(len);
    // SAFETY: passed on from the caller.
    len == skipped || unsafe { vm::advise_huge(at.wrapping_add(skipped), len - skipped) }
}

impl Kernel {
    /// For an object that begins with small pages.
    pub fn small() -> Self {
        Self { fresh: None, small: true }
    }

    /// Whether what was got has small pages.
    pub fn is_small(&self) -> bool {
        self.small
    }

    /// Touches the huge page that the call got for this span of small objects, if it did: the
    /// first of them would be the next to. It tells how long huge pages take.
    pub fn touch_fresh(&self, span: PageId) {
        if let Some(page) = self.fresh.filter(|page| page.first_page() == span) {
            // SAFETY: open data of the slice, zero, in a span that no other thread has yet.
            let _ = unsafe { fresh::touch(huge_address(page)) };
        }
    }
}

impl Memory for Kernel {
    fn extend(&mut self, end: HugePageId) -> bool {
        let done = map::open_trackers(end.0 as usize);
        if done {
            REACHED.store(end.0, Relaxed);
        }
        done
    }

    fn back(&mut self, first: HugePageId, n: HugeLength) -> bool {
        if !map::open(first.0 as usize, n.0 as usize) {
            return false;
        }
        let (at, len) = (huge_address(first), n.0 as usize * HUGEPAGE_BYTES);
        if self.small {
            // What was used before may be advised otherwise. Where the kernel refuses it stays so.
            // SAFETY: open data of the slice.
            self.small = unsafe { vm::advise_small(at, len) };
            return true;
        }
        // A small program lives in the first huge pages; each costs more than all it has.
        if first.after(n) > SMALL_PROGRAM {
            // SAFETY: open data of the slice. Without huge pages it works as well.
            let advised = unsafe { advise_huge(at, len) };
            self.fresh = (advised && n == HugeLength(1)).then_some(first);
        }
        true
    }

    fn is_gone(&self, first: HugePageId, n: HugeLength) -> bool {
        map::is_gone(first.0 as usize, n.0 as usize)
    }

    fn begins_small(&mut self) -> bool {
        // Nor where nothing can make it whole later.
        vm::can_collapse() && fresh::begin_small(1)
    }

    fn back_small(&mut self, page: HugePageId) -> bool {
        let at = huge_address(page);
        // Once one small page is here the others come small as well, whatever the advice: it
        // is for this one alone, so that the mapping stays one with its neighbours.
        // SAFETY: open data of the slice, zero, and not in use yet.
        unsafe {
            if !map::open(page.0 as usize, 1) || !vm::advise_small(at, HUGEPAGE_BYTES) {
                return false;
            }
            ptr::write_volatile(at, 0);
            let _ = vm::advise_huge(at, HUGEPAGE_BYTES);
        }
        true
    }

    fn stay_small(&mut self, page: HugePageId) {
        // Where that fails memory may come back that was not requested.
        // SAFETY: open data of the slice, whose contents stay.
        let _ = unsafe { vm::advise_small(huge_address(page), HUGEPAGE_BYTES) };
    }

    fn unback(&mut self, first: PageId, n: Length) -> bool {
        let at = page_of(first).address() as *mut u8;
        // SAFETY: the page heap gives back only what is not in use.
        unsafe { map::give_back(at, n.0 as usize * HEAP_PAGE_BYTES) }
    }

    fn collapse(&mut self, page: HugePageId) -> Collapse {
        if refuses(Call::Collapse) {
            return Collapse::Busy { micros: 30 };
        }
        let start = clock::micros();
        // The kernel makes huge pages on request also where it is set to have none; an administrator that set it so
        // does not want any. It may be set otherwise another time.
        if !fresh::are_allowed() {
            return Collapse::Busy { micros: 30 };
        }
        let at = huge_address(page);
        if HAS_FORKED.load(Relaxed) && is_shared(at) {
            return Collapse::Busy { micros: 30 };
        }
        fresh::fetch();
        // SAFETY: the page heap restores huge pages of its own. What was to stay small cannot be
        // made whole before it is advised otherwise.
        let outcome = unsafe {
            let _ = vm::advise_huge(at, HUGEPAGE_BYTES);
            vm::collapse(at, HUGEPAGE_BYTES)
        };
        let micros = u32::try_from(clock::micros() - start).unwrap_or(u32::MAX);
        match outcome {
            vm::Whole::Done => Collapse::Done { micros },
            vm::Whole::Busy => Collapse::Busy { micros },
            vm::Whole::Unsupported => Collapse::Unsupported,
        }
    }
}

/// The process has forked, or is the child of a fork: pages may be shared.
static HAS_FORKED: AtomicBool = AtomicBool::new(false);
/// Shared pages of a huge page that is made whole, at most: the kernel copies them.
const SHARED_MOST: usize = HUGEPAGE_BYTES / PAGE_BYTES / 8;

/// The process is about to fork.
pub fn note_fork() {
    HAS_FORKED.store(true, Relaxed);
}

/// Whether many pages of a huge page are shared with another process, or the kernel does not tell.
fn is_shared(at: *mut u8) -> bool {
    if !background::may_open_files() {
        return true;
    }
    let resident = vm::resident(at, HUGEPAGE_BYTES).unwrap_or(0) / PAGE_BYTES;
    let own = Pagemap::open().map(|map| map.own(at, HUGEPAGE_BYTES / PAGE_BYTES));
    own.is_none_or(|own| own + SHARED_MOST < resident)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::heap;

    /// A huge page behind all that a test of this crate has the heap reach.
    const FAR: HugePageId = HugePageId(500);

    /// KiB in huge pages of the mapping around an address, and where the mapping lies.
    fn huge_kib(at: *mut u8) -> (u64, core::ops::Range<usize>) {
        let smaps = std::fs::read_to_string("/proc/self/smaps").expect("smaps");
        let mut inside = None;
        for line in smaps.lines() {
            let mut words = line.split_whitespace();
            let first = words.next().unwrap_or_default();
            let range = first.split_once('-').and_then(|(from, to)| {
                Some(usize::from_str_radix(from, 16).ok()?..usize::from_str_radix(to, 16).ok()?)
            });
            if let Some(range) = range {
                inside = range.contains(&(at as usize)).then_some(range);
            } else if let (Some(range), "AnonHugePages:") = (&inside, first) {
                let kib = words.next().and_then(|word| word.parse().ok()).expect("a number");
                return (kib, range.clone());
            }
        }
        panic!("{at:p} is not mapped");
    }

    fn byte(at: usize) -> u8 {
        (at >> 12) as u8 | 1
    }

    #[test]
    fn a_huge_page_that_begins_small_is_one_of_its_mapping_and_can_be_made_whole() {
        assert!(heap::start());
        let mut kernel = Kernel::default();
        let before = HugePageId(FAR.0 - 2);
        assert!(kernel.back(before, HugeLength(5)));
        let at = huge_address(FAR);
        if !kernel.back_small(FAR) {
            // A kernel without huge pages.
            return;
        }
        for offset in (0..HUGEPAGE_BYTES).step_by(4096) {
            // SAFETY: within the open huge page, which is the test's.
            unsafe { at.add(offset).write(byte(offset)) };
        }
        let (kib, mapping) = huge_kib(at);
        assert_eq!(kib, 0, "it came whole");
        let ends = huge_address(HugePageId(before.0 + 5)) as usize;
        assert!(
            mapping.start <= huge_address(before) as usize && mapping.end >= ends,
            "{mapping:x?}"
        );
        // Not before Linux 6.1, nor where no huge page is free.
        if let Collapse::Done { .. } = kernel.collapse(FAR) {
            assert_eq!(huge_kib(at).0, 2048);
        }
        for offset in (0..HUGEPAGE_BYTES).step_by(4096) {
            // SAFETY: as above.
            assert_eq!(unsafe { at.add(offset).read() }, byte(offset));
        }
    }

    /// Whether the mapping around an address has this flag (`hg`, `nh`: see proc(5)).
    fn has_flag(at: *mut u8, flag: &str) -> bool {
        let smaps = std::fs::read_to_string("/proc/self/smaps").expect("smaps");
        let (_, range) = huge_kib(at);
        let start = std::format!("{:x}-", range.start);
        let mut lines = smaps.lines().skip_while(|line| !line.starts_with(&start));
        let flags = lines.find_map(|line| line.strip_prefix("VmFlags:")).expect("flags");
        flags.split_whitespace().any(|word| word == flag)
    }

    #[test]
    fn what_was_broken_stays_so_until_it_is_made_whole() {
        assert!(heap::start());
        let page = HugePageId(FAR.0 + 50);
        let (mut kernel, at) = (Kernel::default(), huge_address(page));
        assert!(kernel.back(page, HugeLength(1)));
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            // A kernel without huge pages.
            return;
        }
        assert!(has_flag(at, "hg"));
        // SAFETY: an open huge page that is the test's.
        unsafe { at.write_bytes(7, HUGEPAGE_BYTES) };
        kernel.stay_small(page);
        let half = Length(Length::HUGEPAGE.0 / 2);
        assert!(kernel.unback(page.first_page().after(half), half));
        assert!(has_flag(at, "nh") && huge_kib(at).0 == 0);
        if let Collapse::Done { .. } = kernel.collapse(page) {
            assert!(has_flag(at, "hg") && huge_kib(at).0 >= 2048);
        }
        kernel.stay_small(page);
        assert!(kernel.unback(page.first_page(), Length::HUGEPAGE));
        assert!(kernel.back(page, HugeLength(1)) && has_flag(at, "hg"));
    }

    #[test]
    fn only_a_span_at_the_start_of_the_huge_page_that_a_call_got_is_touched() {
        assert!(heap::start());
        let page = HugePageId(FAR.0 + 100);
        let mut kernel = Kernel::default();
        assert!(kernel.back(page, HugeLength(1)));
        let at = huge_address(page);
        kernel.touch_fresh(PageId(page.first_page().0 + 1));
        Kernel::default().touch_fresh(page.first_page());
        assert!(!vm::is_resident(at));
        kernel.touch_fresh(page.first_page());
        assert_eq!(vm::is_resident(at), kernel.fresh.is_some(), "unless there are no huge pages");
        // Large ones come when they are used, as do several.
        let next = page.after(HugeLength(1));
        assert!(kernel.back(next, HugeLength(2)));
        kernel.touch_fresh(next.first_page());
        assert!(!vm::is_resident(huge_address(next)));
    }
}
