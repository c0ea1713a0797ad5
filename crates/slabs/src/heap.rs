//! The page heap with the kernel behind it.

use core::ops::ControlFlow;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};

use spandrel_os::{budget, live};
use spandrel_pageheap::{Memory, PageHeap, Request, Settings, Stats, Urgency};
use spandrel_pages::{
    HEAP_PAGE_BYTES, HEAP_PAGES_PER_HUGEPAGE, HUGEPAGE_BYTES, HugeLength, HugePageId, Length, MIB,
    spread,
};
use spandrel_recorder::{self as recorder, Event};
use spandrel_sync::{Lock, Once, background};

use crate::beside;
use crate::class::CLASS;
use crate::density::Contents;
use crate::elsewhere;
use crate::figures;
use crate::fresh;
use crate::kept;
use crate::kernel::{Kernel, SMALL_PROGRAM, huge_address, id_of, page_of};
use crate::limit;
use crate::map::{self, LARGE, LARGE_GONE, Page};
use crate::refuse::clock;
use crate::report;
use crate::{cpu_cache, peak, sparse, tables, thread_cache, transfer};

/// Without a thread for it, background work is looked at this often, by a thread that
/// needs a span or gives one back.
const STEP_MS: u64 = 100;
/// The figures are written down for each of the first spans, then once in this number.
const TELL_ALWAYS: u32 = 256;
const TELL_EVERY: u32 = 16;
/// A span of this number of pages is published at once: 1 MiB.
const MUCH: Length = Length((MIB / HEAP_PAGE_BYTES) as u32);
/// Mebibytes that go back in a second unless demand will want them again.
const RELEASE_MIB_PER_S: u32 = 256;

static ONCE: Once = Once::new();
static READY: AtomicBool = AtomicBool::new(false);
/// Without records until it is started.
static HEAP: Lock<PageHeap<'static>> = Lock::new(PageHeap::new(&mut [], SETTINGS));
const SETTINGS: Settings = Settings {
    not_advised: HugeLength(SMALL_PROGRAM.0),
    // Larger spans may lie in regions, across huge pages.
    within_hugepage: Length(HEAP_PAGES_PER_HUGEPAGE / 4),
    // 16 MiB: with 64 MiB 200 MB in objects of 1.2 MB took 266 MiB, and 216 so.
    region_slack: HugeLength(8).pages(),
    coloured: true,
    ..Settings::DEFAULT
};
static NEXT_STEP_MS: AtomicU64 = AtomicU64::new(0);
static RELEASE_RATE: AtomicU32 = AtomicU32::new(RELEASE_MIB_PER_S);
/// Spans that were handed out or came back.
static OPERATIONS: AtomicU32 = AtomicU32::new(0);
/// Since the process was forked no thread has looked for what threads that are not
/// here were at.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Sets the mebibytes that may be given back in a second; 0: only empty huge pages that
/// demand does not justify.
pub fn set_release_rate(mib_per_s: u32) {
    RELEASE_RATE.store(mib_per_s, Relaxed);
}

/// The mebibytes that may go back in a second.
pub fn release_rate() -> u32 {
    RELEASE_RATE.load(Relaxed)
}

fn release_per_s() -> Length {
    let pages = (MIB / HEAP_PAGE_BYTES) as u32;
    Length(release_rate().saturating_mul(pages))
}

/// Publishes how the heap stands for readers of the process's memory, now and then, and when
/// much came or went.
fn tell(heap: &mut PageHeap<'static>, pages: Length) {
    // Under the heap's lock.
    let operations = OPERATIONS.load(Relaxed).wrapping_add(1);
    OPERATIONS.store(operations, Relaxed);
    let is_due = operations <= TELL_ALWAYS || operations.is_multiple_of(TELL_EVERY);
    if is_due || pages >= MUCH {
        settle_fork(heap, clock::coarse_ms());
        figures::publish_heap(&heap.stats());
    }
}

/// Makes the heap ready; false: there is no address space for it.
pub fn start() -> bool {
    if !ONCE.is_done() {
        ONCE.run(|| {
            // SAFETY: once.
            if let Some(trackers) = unsafe { map::start() } {
                HEAP.lock().give_records(trackers);
                live::set_bounds(map::bounds());
                READY.store(true, Release);
            }
        });
    }
    READY.load(Acquire)
}

/// Whether the heap is ready already.
pub fn is_started() -> bool {
    READY.load(Acquire)
}

/// As many spans of one kind as there is room for in `into`, or fewer; how many, and whether the last is
/// zero. Near a limit one is enough.
fn allocate(kernel: &mut Kernel, request: Request, into: &mut [Page]) -> (usize, bool) {
    if budget::can_never_be(request.pages.0 as usize * HEAP_PAGE_BYTES) {
        budget::refuse();
        return (0, false);
    }
    let mut guard = HEAP.lock();
    let heap = &mut *guard;
    let now = clock::coarse_ms();
    let (mut count, mut zeroed) = (0, false);
    for page in into.iter_mut() {
        if count > 0 && budget::counts() {
            break;
        }
        let Some(span) = heap.allocate(kernel, now, request) else { break };
        if budget::counts() && !limit::admit(heap, now) {
            heap.free(kernel, now, span.first, request.pages);
            limit::give_up(heap, now, request.pages);
            break;
        }
        if recorder::records_spans() {
            recorder::span(&Event::New {
                first: span.first.0,
                pages: request.pages.0,
                align_log2: request.align.0.max(1).ilog2() as u8,
                objects: request.objects,
            });
        }
        tell(heap, request.pages);
        *page = page_of(span.first);
        (count, zeroed) = (count + 1, span.zeroed);
    }
    if count == 0 {
        return (0, false);
    }
    let stepped = step(heap, now);
    let refilled = to_restore(heap, now, stepped);
    drop(guard);
    refilled.into_iter().for_each(restore);
    (count, zeroed)
}

/// A huge page to be made whole now: one that has just filled, or, in a step of
/// background work, one from before.
fn to_restore(heap: &mut PageHeap<'static>, now: u64, stepped: bool) -> Option<HugePageId> {
    // Whole ones hold more.
    if budget::counts() && !limit::has_room(HUGEPAGE_BYTES) {
        return None;
    }
    let fresh = heap.just_refilled(now);
    if fresh.is_none() && stepped { heap.next_to_restore(now) } else { fresh }
}

/// Makes a huge page whole, while others go on: it takes some tenths of a
/// millisecond, or several where huge pages are slow to come.
fn restore(page: HugePageId) {
    let outcome = beside::counted(|| Kernel::default().collapse(page));
    let mut heap = HEAP.lock();
    heap.restored(&mut Kernel::default(), clock::coarse_ms(), page, outcome);
    limit::note(&heap);
}

/// What the child of a fork has to do first, as its parent's other threads are not here; and its parent
/// tells of what was before.
fn settle_fork(heap: &mut PageHeap<'static>, now: u64) {
    if FORKED.load(Relaxed) && FORKED.swap(false, Relaxed) {
        heap.abandon_restoring(&mut Kernel::default(), now);
        heap.at_leisure(false);
        heap.forget_counters();
    }
}

/// Background work: the thread's if there is one, else the caller's now and
/// then, as this tells; the lock makes it the only one.
fn step(heap: &mut PageHeap<'static>, now: u64) -> bool {
    settle_fork(heap, now);
    if background::is_running() {
        if heap.idle() > beside::LITTLE {
            background::wake();
        }
        return false;
    }
    let is_due = now >= NEXT_STEP_MS.load(Relaxed);
    if is_due {
        NEXT_STEP_MS.store(now + STEP_MS, Relaxed);
        beside::counted(|| release(heap, now));
    }
    is_due
}

/// Gives back what is due, and what is beyond a limit; how much that was.
fn release(heap: &mut PageHeap<'static>, now: u64) -> Length {
    let released = heap.step_release(&mut Kernel::default(), now, release_per_s()).released;
    released.saturating_add(limit::release_excess(heap, now))
}

/// What the thread found to do for the heap.
#[derive(Clone, Copy, Default)]
pub struct Pass {
    /// Pages that went back.
    pub released: Length,
    /// Of them, because others need the memory.
    pub pressed: Length,
    /// A huge page was made whole.
    pub restored: bool,
    /// Pages that could still go back.
    pub idle: Length,
    /// When another huge page may be tried.
    pub restores_in_ms: Option<u64>,
    /// Pages released since the start of the process.
    pub released_ever: u64,
}

/// The thread's work for the heap, if there is one: what is due, and this number of bytes because others
/// need them. `leisure`: the program does nothing just now; `small`: the heap is, and keeps nothing that demand does not justify.
pub fn pass(beyond: usize, leisure: bool, small: bool) -> Option<Pass> {
    if !READY.load(Acquire) {
        return None;
    }
    let now = clock::coarse_ms();
    let mut guard = HEAP.lock();
    let heap = &mut *guard;
    settle_fork(heap, now);
    heap.at_leisure(leisure);
    heap.keeps_least(!(leisure || small));
    let pressed = limit::release_for_others(heap, now, beyond);
    let released = release(heap, now).saturating_add(pressed);
    // Whole ones hold more.
    let refilled = if beyond > 0 { None } else { to_restore(heap, now, true) };
    let stats = heap.stats();
    figures::publish_heap(&stats);
    let released_ever = stats.counters.released.total();
    let (idle, restores_in_ms) = (heap.idle(), heap.restores_in_ms(now));
    drop(guard);
    let restored = refilled.is_some();
    refilled.into_iter().for_each(restore);
    Some(Pass { released, pressed, restored, idle, restores_in_ms, released_ever })
}

/// Releases this number of bytes for other processes that need memory, or all free memory where there is less. Returns the pages that were released.
pub fn relieve(bytes: usize) -> Length {
    if bytes == 0 || !READY.load(Acquire) {
        return Length::ZERO;
    }
    let mut heap = HEAP.lock();
    settle_fork(&mut heap, clock::coarse_ms());
    let released = limit::release_for_others(&mut heap, clock::coarse_ms(), bytes);
    figures::publish_heap(&heap.stats());
    released
}

/// Gives back free pages as another allocator of ours takes these bytes: see [`elsewhere`].
pub fn make_room(bytes: usize) {
    if !READY.load(Acquire) {
        return;
    }
    let mut heap = HEAP.lock();
    let now = clock::coarse_ms();
    settle_fork(&mut heap, now);
    if elsewhere::make_room(&mut heap, now, bytes) > Length::ZERO {
        figures::publish_heap(&heap.stats());
    }
}

/// Bytes of free pages that could go back to the kernel at once; 0 before the start.
pub fn idle_at_once() -> usize {
    if READY.load(Acquire) { HEAP.lock().idle().0 as usize * HEAP_PAGE_BYTES } else { 0 }
}

/// Bytes that could go back to the kernel at once.
pub fn idle_bytes() -> usize {
    let pages = HEAP.lock().idle().saturating_add(SETTINGS.cache_least.pages());
    pages.0 as usize * HEAP_PAGE_BYTES + kept::bytes()
}

/// Spans for objects of a class, as many as there is room for or fewer, not prepared yet; how many.
pub fn small_spans(class: usize, into: &mut [Page]) -> usize {
    let pages = Length(u32::from(CLASS[class].pages));
    let objects = u32::from(CLASS[class].objects);
    let mut kernel = Kernel::default();
    let count = allocate(&mut kernel, Request { pages, align: Length(1), objects }, into).0;
    // No other thread has to wait while the page comes.
    into[..count].iter().for_each(|page| kernel.touch_fresh(id_of(*page)));
    count
}

/// Gives the pages of spans of small objects back that are as long as each other.
pub fn free_spans(spans: &[Page], pages: usize) {
    free(spans, pages, false);
}

/// Gives the pages of spans back; `broken`: they are mapped by small pages. That there is no such span means that two
/// threads freed it at once, or that the tables were overwritten: said, and the end.
fn free(spans: &[Page], pages: usize, broken: bool) {
    let mut heap = HEAP.lock();
    let now = clock::coarse_ms();
    for first in spans {
        let (kernel, id, length) = (&mut Kernel::default(), id_of(*first), Length(pages as u32));
        let was_one = if broken {
            heap.free_broken(kernel, now, id, length)
        } else {
            heap.free(kernel, now, id, length)
        };
        if !was_one {
            drop(heap);
            report::not_live("free", first.address());
        }
        recorder::span(&Event::Delete { first: id.0 });
        tell(&mut heap, length);
    }
    step(&mut heap, now);
    limit::note(&heap);
    if heap.kept() > beside::KEPT_LEAST && !background::is_running() {
        beside::note_kept(now);
    }
}

/// A span for one large object of these contents, which begins at one of its first `lines` cache lines: the object's address, and whether it is zero.
pub fn allocate_large(
    pages: usize,
    align_pages: usize,
    lines: usize,
    contents: Contents,
) -> Option<(usize, bool)> {
    if !map::can_align(align_pages) {
        return None;
    }
    let request = Request {
        pages: Length(u32::try_from(pages).ok()?),
        align: Length(u32::try_from(align_pages).ok()?),
        objects: 1,
    };
    let mut span = [Page(0)];
    let is_small = sparse::begins_small(pages, contents);
    let mut kernel = if is_small { Kernel::small() } else { Kernel::default() };
    let (1, zeroed) = allocate(&mut kernel, request, &mut span) else { return None };
    let [first] = span;
    first.set_large(pages, spread(first.0, lines));
    // A thread that finds it knows how long it is.
    first.class().store(LARGE, Release);
    if zeroed && kernel.is_small() {
        sparse::note(first, contents);
    }
    Some((first.large_object(), zeroed))
}

/// Makes a large object longer where it is; false: what lies behind it is in use.
pub fn grow_large(first: Page, pages: usize) -> bool {
    let old = first.large_pages();
    let (Ok(from), Ok(to)) = (u32::try_from(old), u32::try_from(pages)) else { return false };
    let mut guard = HEAP.lock();
    let heap = &mut *guard;
    let (id, now) = (id_of(first), clock::coarse_ms());
    // Growing cannot be undone: near a limit a longer one is a new one.
    let more = to.saturating_sub(from) as usize * HEAP_PAGE_BYTES;
    let grown = budget::missing(more + HUGEPAGE_BYTES) == 0
        && heap.try_grow(&mut Kernel::default(), now, id, Length(from), Length(to)).is_some();
    limit::note(heap);
    let refilled = to_restore(heap, now, false);
    if grown {
        recorder::span(&Event::Grow { first: id.0, pages: to });
        tell(heap, Length(to.saturating_sub(from)));
        first.lengthen_large(pages);
    }
    drop(guard);
    refilled.into_iter().for_each(restore);
    grown
}

/// Gives a large object back.
pub fn free_large(first: Page) {
    let broken = sparse::note_freed(first);
    let pages = first.large_pages();
    first.class().store(LARGE_GONE, Relaxed);
    free(&[first], pages, broken);
}

/// Gives back to the kernel all that can go; true if there was any.
pub fn release_all() -> bool {
    if !READY.load(Acquire) {
        return false;
    }
    let mut heap = HEAP.lock();
    let now = clock::coarse_ms();
    recorder::span(&Event::Release { pages: u32::MAX });
    settle_fork(&mut heap, now);
    let released = heap.release(&mut Kernel::default(), now, Length(u32::MAX), Urgency::Asked);
    limit::note(&heap);
    let stats = heap.stats();
    figures::publish_heap(&stats);
    drop(heap);
    tables::give_back_now(stats.counters.released.total());
    released.0 > 0
}

/// Closes what is open and holds nothing, as that begins to count; false: it does so already, or nothing is open.
pub fn open_sparingly() -> bool {
    let heap = HEAP.lock();
    let begins = map::open_sparingly(heap.frontier().0 as usize);
    if begins {
        heap.unbacked(|first, count| {
            // SAFETY: the huge pages hold nothing, and the heap's lock is held.
            unsafe { map::close_kept(huge_address(first), count.0 as usize * HUGEPAGE_BYTES) };
        });
    }
    begins
}

/// Gives back address space that has never been used but for `keep` bytes; see [`map::give_back_rest`].
pub fn give_back_reserve(keep: usize) {
    if READY.load(Acquire) {
        let heap = HEAP.lock();
        map::give_back_rest(keep);
        heap.unbacked(|first, count| {
            // SAFETY: the huge pages hold nothing, and the heap's lock is held.
            unsafe { map::give_back_hole(first.0 as usize, count.0 as usize) };
        });
    }
}

/// The position of a walk over vacant huge pages: the range, and the huge page in it.
pub type Cursor = (HugePageId, HugePageId);

/// Releases the tables of at most `most` vacant huge pages. Returns the cursor of the next call; `None`: the walk is complete.
pub fn give_back_tables((range, page): Cursor, most: HugeLength) -> Option<Cursor> {
    let (mut left, mut next) = (most.0, None);
    HEAP.lock().unbacked_from(range, |first, count| {
        let (start, end) = (first.max(page), first.after(count));
        if start >= end {
            return ControlFlow::Continue(());
        }
        let part = left.min(end.0 - start.0);
        left -= part;
        // SAFETY: the huge pages hold nothing, and the heap's lock is held.
        unsafe { tables::give_back(start, HugeLength(part)) };
        if left > 0 {
            return ControlFlow::Continue(());
        }
        next = Some((first, start.after(HugeLength(part))));
        ControlFlow::Break(())
    });
    next
}

/// Shows the page heap, if it is ready.
pub fn look<T>(look: impl FnOnce(&PageHeap<'static>) -> T) -> Option<T> {
    READY.load(Acquire).then(|| look(&HEAP.lock()))
}

/// What the page heap counts.
pub fn stats() -> Option<Stats> {
    READY.load(Acquire).then(|| {
        let mut heap = HEAP.lock();
        settle_fork(&mut heap, clock::coarse_ms());
        heap.stats()
    })
}

/// The child of a fork has the thread when it has grown itself.
pub fn fork_forget() {
    beside::fork_forget();
    transfer::fork_forget();
    cpu_cache::fork_forget();
    peak::fork_forget();
    budget::fork_forget();
    figures::fork_forget();
    thread_cache::fork_forget();
    fresh::fork_forget();
    sparse::fork_forget();
    FORKED.store(true, Relaxed);
}

/// The process is about to fork: pages that it shares with a child stay so.
pub fn note_fork() {
    crate::kernel::note_fork();
}

/// Takes the lock before a `fork`.
pub fn fork_prepare() {
    note_fork();
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
