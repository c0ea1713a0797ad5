//! Large objects of the native heap that may be sparse begin with small pages: see [`crate::density`]. Those that are filled get huge ones: see
//! [`crate::promotion`].
//!
//! Only what comes from the kernel for an object can begin with small pages; what was there before has the pages that it has. The record of the object's
//! span says that it began so. A bounded number of such objects may be promoted, the latest.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::*, fence};

use spandrel_os::vm;
use spandrel_pages::{HEAP_PAGE_BYTES, HUGEPAGE_BYTES, PAGE_BYTES, align_down, align_up};
use spandrel_sync::Lock;

use crate::density::{Contents, Densities};
use crate::kernel;
use crate::map::{self, LARGE, Page};
use crate::promotion::{News, Objects, Pages, Promotion};

/// Objects that may be promoted.
const MOST: usize = 64;
/// Heap pages of the smallest object that has a huge page of its own.
const LEAST_PAGES: usize = HUGEPAGE_BYTES / HEAP_PAGE_BYTES;

static DENSITIES: Densities = Densities::new();
static IS_SETTLED: AtomicBool = AtomicBool::new(false);
static NEWS: News = News::new();
/// The object that the background visits: its number; 0: none. What frees the object waits for the end of the visit, and nothing else does: a call to the
/// kernel within a visit may wait for a thread of the program (`userfaultfd`).
static VISITED: AtomicU32 = AtomicU32::new(0);
static VISIT: Lock<()> = Lock::new(());
static PROMOTION: Lock<Promotion> = Lock::new(Promotion::new());
static ENTRIES: [Entry; MOST] = [const { Entry::none() }; MOST];
/// Where the next object is entered when all entries are taken.
static OLDEST: AtomicUsize = AtomicUsize::new(0);

/// A live object that may be promoted.
struct Entry {
    /// The first page of its span; 0: none.
    first: AtomicU32,
    /// Small pages from its first huge page on that are advised to be huge. Written during a visit.
    huge: AtomicU32,
}

impl Entry {
    const fn none() -> Self {
        Self { first: AtomicU32::new(0), huge: AtomicU32::new(0) }
    }
}

fn entry(id: u32) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| entry.first.load(Acquire) == id)
}

/// The whole huge pages of a large object's span: where they lie, and how many small pages they have.
fn whole(first: Page) -> (*mut u8, usize) {
    let pages = first.large_pages();
    let at = align_up(first.address(), HUGEPAGE_BYTES).unwrap_or(usize::MAX);
    let end = align_down(first.address() + pages * HEAP_PAGE_BYTES, HUGEPAGE_BYTES);
    (at as *mut u8, end.saturating_sub(at) / PAGE_BYTES)
}

fn live(id: u32) -> Option<(*mut u8, usize)> {
    let first = Page(id as usize);
    (first.class().load(Acquire) == LARGE).then(|| whole(first))
}

/// Whether a new large object of `pages` heap pages had better begin with small pages.
pub fn begins_small(pages: usize, contents: Contents) -> bool {
    // Where open memory is charged or locked the kernel's pages are there at once.
    if pages < LEAST_PAGES || map::is_charged() {
        return false;
    }
    if !IS_SETTLED.swap(true, Relaxed) && vm::huge_pages() == vm::HugePages::Always {
        DENSITIES.are_unasked();
    }
    !DENSITIES.begins_huge(contents, pages * (HEAP_PAGE_BYTES / PAGE_BYTES), live)
}

/// A large object has begun with small pages, all of them fresh.
pub fn note(first: Page, contents: Contents) {
    let id = first.0 as u32;
    first.set_began_small(true);
    DENSITIES.note(id, contents);
    let is_free = |entry: &Entry| entry.first.compare_exchange(0, id, Release, Relaxed).is_ok();
    if !ENTRIES.iter().any(is_free) {
        let oldest = OLDEST.fetch_add(1, Relaxed) % MOST;
        ENTRIES[oldest].huge.store(0, Relaxed);
        ENTRIES[oldest].first.store(id, Release);
    }
    NEWS.tell();
}

/// A large object is about to go back. Returns whether its huge pages are mapped by small pages.
pub fn note_freed(first: Page) -> bool {
    first.began_small() && forget(first)
}

#[cold]
fn forget(first: Page) -> bool {
    let id = first.0 as u32;
    first.set_began_small(false);
    let huge = entry(id).map_or(0, |entry| {
        let huge = entry.huge.swap(0, Relaxed);
        // Another object may have taken the entry.
        let _ = entry.first.compare_exchange(id, 0, Release, Relaxed);
        huge as usize
    });
    // After the entry is gone: a visit that begins later finds none.
    fence(SeqCst);
    if VISITED.load(SeqCst) == id {
        drop(VISIT.lock());
    }
    let (at, pages) = whole(first);
    DENSITIES.note_freed(id, at, pages);
    huge < pages
}

/// One pass over large objects; see [`Promotion::pass`].
pub fn promote(leisure: bool) -> Option<u32> {
    if map::is_charged() || ENTRIES.iter().all(|entry| entry.first.load(Relaxed) == 0) {
        return None;
    }
    let Some(mut promotion) = PROMOTION.try_lock() else { return Promotion::later() };
    promotion.pass(&Large, &NEWS, leisure)
}

/// In the child of a fork: the thread that promoted is not here.
pub fn fork_forget() {
    VISITED.store(0, Relaxed);
    if VISIT.try_lock().is_none() {
        // SAFETY: the lock is held by a thread that is not in this process.
        unsafe { VISIT.release() };
    }
    if PROMOTION.try_lock().is_none() {
        // SAFETY: as above.
        unsafe { PROMOTION.release() };
    }
}

/// The large objects of the native heap, by the number of their first page.
struct Large;

impl Objects for Large {
    fn next(&self, cursor: &mut u32) -> Option<u32> {
        while let Some(entry) = ENTRIES.get(*cursor as usize) {
            *cursor += 1;
            let id = entry.first.load(Acquire);
            if id != 0 {
                return Some(id);
            }
        }
        None
    }

    fn pages(&self, id: u32) -> Option<Pages> {
        let entry = entry(id)?;
        let (at, end) = live(id)?;
        Some(Pages { at, huge: (entry.huge.load(Relaxed) as usize).min(end), end })
    }

    fn visit<T>(&self, id: u32, work: impl FnOnce() -> T) -> Option<T> {
        let visit = VISIT.lock();
        VISITED.store(id, SeqCst);
        fence(SeqCst);
        let done = self.pages(id).map(|_| work());
        VISITED.store(0, SeqCst);
        drop(visit);
        done
    }

    fn advise_huge(&self, id: u32, end: usize) -> bool {
        let (Some(entry), Some(pages)) = (entry(id), self.pages(id)) else { return false };
        let more = end.min(pages.end).saturating_sub(pages.huge);
        let at = pages.at.wrapping_add(pages.huge * PAGE_BYTES);
        // SAFETY: open pages of a live object, which does not go back during a visit.
        let advised = more == 0 || unsafe { kernel::advise_huge(at, more * PAGE_BYTES) };
        if advised {
            entry.huge.store((pages.huge + more) as u32, Relaxed);
        }
        advised
    }
}
