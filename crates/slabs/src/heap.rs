//! The page heap with the kernel behind it.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use spandrel_os::{clock, vm};
use spandrel_pageheap::{Collapse, Memory, PageHeap, Request, Settings, Stats, Urgency};
use spandrel_pages::{
    HEAP_PAGE_BYTES, HUGEPAGE_BYTES, HugeLength, HugePageId, Length, MIB, PageId,
};
use spandrel_sync::{Lock, Once};

use crate::class::CLASS;
use crate::map::{self, LARGE, NO_CLASS, Page};
use crate::span::Span;

/// Huge pages from the start of the slice that are not advised to be huge.
const SMALL_PROGRAM: HugePageId = HugePageId(2);
/// Background work is looked at this often, by whoever needs a span or gives one back.
const STEP_MS: u64 = 100;
/// Pages that go back in a second unless demand will want them again.
const RELEASE_PER_S: Length = Length((32 * MIB / HEAP_PAGE_BYTES) as u32);

static ONCE: Once = Once::new();
static HEAP: Lock<Option<PageHeap<'static>>> = Lock::new(None);
static NEXT_STEP_MS: AtomicU64 = AtomicU64::new(0);

/// Data of the slice, as the page heap asks for it.
struct Kernel;

impl Kernel {
    fn address(page: PageId) -> *mut u8 {
        page_of(page).address() as *mut u8
    }

    fn huge_address(page: HugePageId) -> *mut u8 {
        let first = Page(map::first_data_page()).address();
        (first + page.0 as usize * HUGEPAGE_BYTES) as *mut u8
    }
}

impl Memory for Kernel {
    fn back(&mut self, first: HugePageId, n: HugeLength) -> bool {
        if !map::open(first.0 as usize, n.0 as usize) {
            return false;
        }
        // A small program lives in the first huge pages; each costs more than all it has.
        let skipped = (SMALL_PROGRAM.0.saturating_sub(first.0)).min(n.0);
        let at = Self::huge_address(HugePageId(first.0 + skipped));
        let len = (n.0 - skipped) as usize * HUGEPAGE_BYTES;
        if len > 0 {
            // SAFETY: open data of the slice. Without huge pages it works as well.
            let _ = unsafe { vm::advise_huge(at, len) };
        }
        true
    }

    fn unback(&mut self, first: PageId, n: Length) -> bool {
        // SAFETY: the page heap gives back only what nobody uses.
        unsafe { vm::discard(Self::address(first), n.0 as usize * HEAP_PAGE_BYTES) }
    }

    fn collapse(&mut self, page: HugePageId) -> Collapse {
        let start = clock::micros();
        // SAFETY: the page heap restores huge pages of its own.
        let outcome = unsafe { vm::collapse(Self::huge_address(page), HUGEPAGE_BYTES) };
        let micros = u32::try_from(clock::micros() - start).unwrap_or(u32::MAX);
        match outcome {
            vm::Whole::Done => Collapse::Done { micros },
            vm::Whole::Busy => Collapse::Busy { micros },
            vm::Whole::Unsupported => Collapse::Unsupported,
        }
    }
}

/// The page heap counts from the first page of data.
fn page_of(page: PageId) -> Page {
    Page(map::first_data_page() + page.0 as usize)
}

fn id_of(page: Page) -> PageId {
    PageId((page.0 - map::first_data_page()) as u32)
}

/// Makes the heap ready; false: there is no address space for it.
pub fn start() -> bool {
    if !ONCE.is_done() {
        ONCE.run(|| {
            let mut heap = HEAP.lock();
            // SAFETY: once.
            if let Some(trackers) = unsafe { map::start() } {
                *heap = Some(PageHeap::new(trackers, Settings::default()));
            }
        });
    }
    HEAP.lock().is_some()
}

fn allocate(request: Request) -> Option<(Page, bool)> {
    let mut heap = HEAP.lock();
    let heap = heap.as_mut()?;
    let now = clock::coarse_ms();
    let span = heap.allocate(&mut Kernel, now, request)?;
    step(heap, now);
    Some((page_of(span.first), span.zeroed))
}

/// Background work, now and then; the lock makes the caller the only one.
fn step(heap: &mut PageHeap<'static>, now: u64) {
    if now >= NEXT_STEP_MS.load(Relaxed) {
        NEXT_STEP_MS.store(now + STEP_MS, Relaxed);
        heap.step(&mut Kernel, now, RELEASE_PER_S);
    }
}

/// A span for objects of a class; not prepared yet.
pub fn small_span(class: usize) -> Option<Span> {
    let pages = Length(u32::from(CLASS[class].pages));
    let objects = u32::from(CLASS[class].objects);
    let (first, _) = allocate(Request { pages, align: Length(1), objects })?;
    Some(Span::at(first, class))
}

/// Gives the pages of a span back.
pub fn free_span(first: Page, pages: usize) {
    if let Some(heap) = HEAP.lock().as_mut() {
        let now = clock::coarse_ms();
        heap.free(&mut Kernel, now, id_of(first), Length(pages as u32));
        step(heap, now);
    }
}

/// A span for one large object: its address, and whether it is zero.
pub fn allocate_large(pages: usize, align_pages: usize) -> Option<(usize, bool)> {
    if !map::can_align(align_pages) {
        return None;
    }
    let request = Request {
        pages: Length(u32::try_from(pages).ok()?),
        align: Length(u32::try_from(align_pages).ok()?),
        objects: 1,
    };
    let (first, zeroed) = allocate(request)?;
    first.record().pages.store(pages as u32, Relaxed);
    first.class().store(LARGE, Relaxed);
    Some((first.address(), zeroed))
}

/// Makes a large object longer where it is; false: what lies behind it is in use.
pub fn grow_large(first: Page, pages: usize) -> bool {
    let old = first.record().pages.load(Relaxed) as usize;
    let (Ok(from), Ok(to)) = (u32::try_from(old), u32::try_from(pages)) else { return false };
    let mut heap = HEAP.lock();
    let grown = heap.as_mut().is_some_and(|heap| {
        let (id, now) = (id_of(first), clock::coarse_ms());
        heap.try_grow(&mut Kernel, now, id, Length(from), Length(to)).is_some()
    });
    if grown {
        first.record().pages.store(to, Relaxed);
    }
    grown
}

/// Gives a large object back.
pub fn free_large(first: Page) {
    let pages = first.record().pages.load(Relaxed) as usize;
    first.class().store(NO_CLASS, Relaxed);
    free_span(first, pages);
}

/// Gives back to the kernel all that can go; true if there was any.
pub fn release_all() -> bool {
    let mut heap = HEAP.lock();
    heap.as_mut().is_some_and(|heap| {
        heap.release(&mut Kernel, clock::coarse_ms(), Length(u32::MAX), Urgency::Asked).0 > 0
    })
}

/// What the page heap counts.
pub fn stats() -> Option<Stats> {
    HEAP.lock().as_ref().map(PageHeap::stats)
}

/// Takes the lock before a `fork`.
pub fn fork_prepare() {
    HEAP.acquire();
}

/// Gives the lock back after a `fork`.
///
/// # Safety
/// The calling thread called [`fork_prepare`] before the fork.
pub unsafe fn fork_done() {
    // SAFETY: passed on from the caller.
    unsafe { HEAP.release() }
}
