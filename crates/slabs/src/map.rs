//! The slice of the native allocator and the tables at its head.
//!
//! ```text
//! base   class of each heap page   1 B    the first load of every free
//!        span record of each page  32 B
//!        object bits of each page  64 B   one per 16 bytes, indexed by object
//!        record of the vast span that begins in each huge page  16 B
//!        record of each huge page  128 B  the page heap's
//!        caches
//! data   heap pages
//! spare  one huge page, for memory on its way elsewhere
//! ```
//!
//! All of it is reserved at once and opened as the heap grows: accessible
//! memory that was not touched would be walked by core dumps.

use core::cell::UnsafeCell;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::*};

use spandrel_os::slices::{self, GRANULE_BYTES, Slice};
use spandrel_os::vm;
use spandrel_pageheap::Tracker;
use spandrel_pages::live::BOUNDS;
use spandrel_pages::{
    AllocatorId, GIB, HEAP_PAGE_BYTES, HUGEPAGE_BYTES, KIB, MIB, MIN_ALIGN, PAGE_BYTES, TIB,
    align_down, align_up,
};

use crate::class::CLASSES;
use crate::large::{LargeRecord, VAST_PAGES};
use crate::refuse::{Call, refuses};
use crate::span::SpanRecord;

/// Address space wanted.
const WANTED_BYTES: usize = 4 * TIB;
/// Where opened memory is charged: the records of huge pages are opened at once.
const WANTED_CHARGED_BYTES: usize = 64 * GIB;
/// Least address space that makes sense.
const LEAST_BYTES: usize = 256 * MIB;
/// Words of object bits for each heap page.
pub const WORDS_PER_PAGE: usize = HEAP_PAGE_BYTES / 16 / 64;
/// Part of the slice that is kept for caches.
const CACHES_PART: usize = 64;
/// The slice is opened in steps of this size; where opening is charged, huge
/// page by huge page.
const STEP_BYTES: usize = 64 * MIB;
/// Kept for caches when the rest of the slice is given back: those of 128 threads, or of 32 processors.
const CACHES_KEPT_BYTES: usize = 32 * MIB;
/// The records of huge pages in steps of this: 1 GiB's.
const TRACKERS_STEP_BYTES: usize = 64 * KIB;

/// Class of a page that no span covers, or not the first of a large one.
pub const NO_CLASS: u8 = 0;
/// Class of the first page of a large span.
pub const LARGE: u8 = 255;
/// Added to the class of a page whose span has gone back, so that a second free is recognised: no thread
/// else has to know.
pub const GONE: u8 = 128;
/// Class of the first page of a large span that has gone back.
pub const LARGE_GONE: u8 = 254;
const _: () = assert!(CLASSES <= GONE as usize && GONE as usize + CLASSES <= LARGE_GONE as usize);

/// Where everything lies. Addresses; all zero before the start.
#[derive(Clone, Copy)]
struct Places {
    base: usize,
    records: usize,
    bits: usize,
    vast: usize,
    trackers: usize,
    caches: usize,
    data: usize,
    end: usize,
    slice: Slice,
}

/// A table of heap pages.
#[derive(Clone, Copy)]
pub struct Table {
    at: fn(&Places) -> usize,
    /// Bytes of an entry, ...
    each: usize,
    /// ... and the heap pages that share one.
    pages: usize,
}

/// The classes.
pub const CLASS_TABLE: Table = Table { at: |places| places.base, each: 1, pages: 1 };
/// The tables of pages that hold nothing about a page without a live object.
pub const SPAN_TABLES: [Table; 3] = [
    Table { at: |places| places.records, each: size_of::<SpanRecord>(), pages: 1 },
    Table { at: |places| places.bits, each: WORDS_PER_PAGE * 8, pages: 1 },
    Table { at: |places| places.vast, each: size_of::<LargeRecord>(), pages: VAST_PAGES },
];
const TABLES: [Table; 4] = [CLASS_TABLE, SPAN_TABLES[0], SPAN_TABLES[1], SPAN_TABLES[2]];

impl Table {
    fn entries_in(&self, places: &Places, pages: Range<usize>) -> Range<usize> {
        let place = |page: usize| (self.at)(places) + page / self.pages * self.each;
        place(pages.start)..place(pages.end)
    }

    /// Where the entries of whole huge pages lie.
    pub fn entries(&self, pages: Range<usize>) -> Range<usize> {
        self.entries_in(places(), pages)
    }
}

/// Open memory is charged: what is released is closed.
static CHARGED: AtomicBool = AtomicBool::new(false);

/// Whether what is released is closed.
pub fn is_charged() -> bool {
    CHARGED.load(Relaxed)
}

struct Map {
    /// Written once, before the allocator counts as started.
    places: UnsafeCell<Places>,
    /// First byte of data that is not open yet.
    opened: AtomicUsize,
    caches_opened: AtomicUsize,
    /// What data and caches may take; less than there was once a part of the slice was given back.
    data_end: AtomicUsize,
    caches_end: AtomicUsize,
    /// First byte of the huge pages' records that cannot be written yet.
    trackers_opened: AtomicUsize,
}

// SAFETY: `places` is written once, before `start` returns.
unsafe impl Sync for Map {}

static MAP: Map = Map {
    places: UnsafeCell::new(Places {
        base: 0,
        records: 0,
        bits: 0,
        vast: 0,
        trackers: 0,
        caches: 0,
        data: 0,
        end: 0,
        slice: Slice { base: 0, len: 0 },
    }),
    opened: AtomicUsize::new(0),
    caches_opened: AtomicUsize::new(0),
    data_end: AtomicUsize::new(0),
    caches_end: AtomicUsize::new(0),
    trackers_opened: AtomicUsize::new(0),
};

/// A heap page, counted from the base of the slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page(pub usize);

#[inline(always)]
fn places() -> &'static Places {
    // SAFETY: see `unsafe impl Sync`.
    unsafe { &*MAP.places.get() }
}

/// Claims the slice and divides it; the trackers for the page heap. `None`:
/// there is no address space.
///
/// # Safety
/// Called once, before anything else of this module.
pub unsafe fn start() -> Option<&'static mut [Tracker]> {
    let charged = vm::is_charged_when_opened();
    let wanted = if charged { WANTED_CHARGED_BYTES } else { WANTED_BYTES };
    let slice = slices::claim(AllocatorId::Native, wanted, LEAST_BYTES)?;
    CHARGED.fetch_or(charged, Relaxed);
    let places = divide(slice)?;
    let trackers = (places.end - places.base) / HUGEPAGE_BYTES * size_of::<Tracker>();
    let trackers = align_up(trackers, PAGE_BYTES)?;
    // The classes all at once, so that a wild pointer into the slice finds no class
    // instead of no memory; and the records of huge pages, whose neighbours are
    // looked at. To be read: what can be written counts when memory is locked or charged.
    let classes = align_up(slice.len / HEAP_PAGE_BYTES, PAGE_BYTES)?;
    // SAFETY: within the slice, which is this module's. Where the kernel has huge pages wherever one fits, a table's first entry
    // would take 2 MiB.
    let opened = unsafe {
        let _ = vm::advise_small(slice.base as *mut u8, slice.len);
        vm::open_to_read(places.trackers as *mut u8, trackers)
            && vm::open_to_read(places.base as *mut u8, classes)
    };
    if !opened {
        return None;
    }
    // SAFETY: no thread reads it yet.
    unsafe { *MAP.places.get() = places };
    MAP.caches_opened.store(places.caches, Relaxed);
    MAP.data_end.store(places.end, Relaxed);
    MAP.caches_end.store(places.data, Relaxed);
    MAP.trackers_opened.store(places.trackers, Relaxed);
    MAP.opened.store(places.data, Release);
    slices::set_direct(slice);
    let huge_pages = (places.end - places.data) / HUGEPAGE_BYTES;
    // SAFETY: the trackers' part of the slice is this module's, open, and zero.
    Some(unsafe { core::slice::from_raw_parts_mut(places.trackers as *mut Tracker, huge_pages) })
}

fn divide(slice: Slice) -> Option<Places> {
    let pages = slice.len / HEAP_PAGE_BYTES;
    let page_aligned = |at: usize| align_up(at, PAGE_BYTES);
    let base = slice.base;
    let records = page_aligned(base + pages)?;
    let bits = page_aligned(records + pages * size_of::<SpanRecord>())?;
    let vast = page_aligned(bits + pages * WORDS_PER_PAGE * 8)?;
    let trackers = page_aligned(vast + pages / VAST_PAGES * size_of::<LargeRecord>())?;
    let huge_pages = slice.len / HUGEPAGE_BYTES;
    let caches = page_aligned(trackers + huge_pages * size_of::<Tracker>())?;
    // The page heap aligns page numbers; they begin to count here.
    let align = GIB.min(1 << (slice.len / 8).ilog2());
    let data = align_up(caches + slice.len / CACHES_PART, align)?;
    let end = align_down(base + slice.len, HUGEPAGE_BYTES) - HUGEPAGE_BYTES;
    Some(Places { base, records, bits, vast, trackers, caches, data, end, slice })
}

/// Makes `[first, first + huge_pages)`, huge pages of data, accessible with all
/// that is recorded of them. False: the kernel refused.
pub fn open(first: usize, huge_pages: usize) -> bool {
    let places = places();
    let start = places.data + first * HUGEPAGE_BYTES;
    let wanted = start + huge_pages * HUGEPAGE_BYTES;
    if wanted > MAP.data_end.load(Relaxed) || has_hole(start, wanted) || refuses(Call::Open) {
        return false;
    }
    open_to(places, wanted)
        // What went back was closed, where that matters.
        // SAFETY: within the slice, which is this module's.
        && (!is_charged() || unsafe { vm::open(start as *mut u8, wanted - start) })
}

/// Gives data back, whole huge pages of it together with their charge; it reads
/// as zero when it is open again. False: the kernel refused.
///
/// # Safety
/// It is not in use.
pub unsafe fn give_back(at: *mut u8, len: usize) -> bool {
    let whole = (at as usize | len).is_multiple_of(HUGEPAGE_BYTES);
    if refuses(Call::GiveBack) {
        return false;
    }
    // SAFETY: passed on from the caller.
    unsafe { if whole && is_charged() { close(at, len) } else { vm::discard(at, len) } }
}

/// From now on open memory is charged, or is about to be locked: closes what of the data was opened in advance, from huge page `end` on. False: it was charged
/// already. Under the heap's lock.
pub fn open_sparingly(end: usize) -> bool {
    let opened = MAP.opened.load(Relaxed);
    if CHARGED.swap(true, Relaxed) || opened == 0 {
        return false;
    }
    let from = places().data + end * HUGEPAGE_BYTES;
    if from < opened {
        // SAFETY: the heap has not reached over its end.
        unsafe { close(from as *mut u8, opened - from) };
    }
    true
}

/// Closes data, which is opened again when it is used. False: the kernel refused.
///
/// # Safety
/// It is not in use.
pub unsafe fn close(at: *mut u8, len: usize) -> bool {
    // SAFETY: passed on from the caller.
    unsafe {
        let closed = vm::close(at, len);
        // It is mapped anew, without the slice's advice.
        let _ = vm::advise_small(at, len);
        closed
    }
}

/// The same but for what was released for good, and may be another's by now. The caller holds the heap's lock.
///
/// # Safety
/// It is not in use.
pub unsafe fn close_kept(at: *mut u8, len: usize) {
    let (mut from, to) = (at as usize, at as usize + len);
    while from < to {
        let holes = HOLES.iter().map(|(from, to)| (from.load(Relaxed), to.load(Relaxed)));
        let holes = holes.take_while(|(_, end)| *end > 0);
        let next = holes.filter(|(begin, end)| *begin < to && *end > from).min();
        let (begin, end) = next.unwrap_or((to, to));
        if begin > from {
            // SAFETY: passed on from the caller.
            unsafe { close(from as *mut u8, begin - from) };
        }
        from = end;
    }
}

/// Opens the tables for all data below an address, and what of that data was
/// never open.
fn open_to(places: &Places, wanted: usize) -> bool {
    let opened = MAP.opened.load(Relaxed);
    if wanted <= opened {
        return true;
    }
    let step = if is_charged() { HUGEPAGE_BYTES } else { STEP_BYTES };
    let ahead = align_up(wanted, step).unwrap_or(wanted).min(MAP.data_end.load(Relaxed));
    for end in [ahead, wanted] {
        let (from, to) =
            ((opened - places.base) / HEAP_PAGE_BYTES, (end - places.base) / HEAP_PAGE_BYTES);
        let opened_all = TABLES.iter().all(|table| {
            let entries = table.entries_in(places, from..to);
            // The page in which the last step ended is open already; again does no harm.
            let start = align_down(entries.start, PAGE_BYTES);
            let end = align_up(entries.end, PAGE_BYTES).unwrap_or(start);
            // SAFETY: within the slice, which is this module's.
            unsafe { !refuses(Call::Open) && vm::open(start as *mut u8, end - start) }
        });
        // SAFETY: as above.
        if opened_all && unsafe { vm::open(opened as *mut u8, end - opened) } {
            MAP.opened.store(end, Relaxed);
            return true;
        }
    }
    false
}

/// Ranges of data, as addresses, whose address space was released for good. Accessed under the heap's lock.
static HOLES: [(AtomicUsize, AtomicUsize); HOLES_MOST] =
    [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; HOLES_MOST];
const HOLES_MOST: usize = 32;
/// Smaller ones are not worth it.
const HOLE_LEAST_BYTES: usize = 16 * MIB;

/// Whether the address space of any of these huge pages of data was released for good.
pub fn is_gone(first: usize, huge_pages: usize) -> bool {
    let start = places().data + first * HUGEPAGE_BYTES;
    has_hole(start, start + huge_pages * HUGEPAGE_BYTES)
}

/// Whether any of a range was released for good.
fn has_hole(from: usize, to: usize) -> bool {
    let taken = HOLES.iter().map(|(from, to)| (from.load(Relaxed), to.load(Relaxed)));
    taken.take_while(|(_, to)| *to > 0).any(|hole| hole.0 < to && from < hole.1)
}

/// Releases the address space of huge pages of data for good, if there are many: they cannot be opened again. The caller holds the heap's lock.
///
/// # Safety
/// They are not in use.
pub unsafe fn give_back_hole(first: usize, huge_pages: usize) {
    let places = places();
    let from = places.data + first * HUGEPAGE_BYTES;
    let to = (from + huge_pages * HUGEPAGE_BYTES).min(MAP.data_end.load(Relaxed));
    let is_worth = to.saturating_sub(from) >= HOLE_LEAST_BYTES && !has_hole(from, to);
    let free = HOLES.iter().find(|(_, to)| to.load(Relaxed) == 0);
    if let (true, Some(hole)) = (is_worth, free) {
        hole.0.store(from, Relaxed);
        hole.1.store(to, Relaxed);
        // SAFETY: passed on from the caller; they are not opened from now on.
        unsafe { places.slice.give_back(from, to) };
    }
}

/// Gives the address space of the slice back but for what is in use, `keep` bytes of data behind that, and
/// tables for these. To be called by one thread at a time, which holds the lock of the heap.
pub fn give_back_rest(keep: usize) {
    let places = places();
    let opened = MAP.opened.load(Relaxed);
    let before = MAP.data_end.load(Relaxed);
    let wanted = align_up(opened.saturating_add(keep), HUGEPAGE_BYTES);
    let Some(end) = wanted.filter(|end| opened > 0 && *end < before) else { return };
    MAP.data_end.store(end, Relaxed);
    // Before the classes of what follows are gone.
    slices::shorten_direct(align_up(end, GRANULE_BYTES).unwrap_or(end));
    let least = MAP.caches_opened.load(Relaxed) + CACHES_KEPT_BYTES;
    let caches_before = MAP.caches_end.fetch_min(least, Relaxed);
    let caches_end = caches_before.min(least);
    let pages = |end: usize| (end - places.base) / HEAP_PAGE_BYTES;
    // The class of an address is looked up as long as its granule is the slice's.
    let known = |end: usize| pages(align_up(end, GRANULE_BYTES).unwrap_or(end));
    let others = [
        places.base + known(end)..(places.base + known(before)).min(places.records),
        trackers_end(places, end)..trackers_end(places, before),
        caches_end..caches_before,
        end..before,
    ];
    let of_spans =
        SPAN_TABLES.iter().map(|table| table.entries_in(places, pages(end)..pages(before)));
    // At the first time also what was never to be used: tables of pages before the data, and what is left over.
    let before_data =
        SPAN_TABLES.iter().map(|table| table.entries_in(places, 0..first_data_page()));
    let behind = places.end + HUGEPAGE_BYTES..places.slice.base + places.slice.len;
    let rest = before_data.chain([behind]).filter(|_| before == places.end);
    for range in others.into_iter().chain(of_spans).chain(rest) {
        // SAFETY: the ends above keep all of it from being opened; tables are used for pages from the first of
        // the data to its end.
        unsafe { places.slice.give_back(range.start, range.end) };
    }
}

/// Where the records end that may be looked at: the neighbours of huge pages up to an address of data.
fn trackers_end(places: &Places, data_end: usize) -> usize {
    let huge_pages = data_end.saturating_sub(places.data) / HUGEPAGE_BYTES + 1;
    let end = align_up(places.trackers + huge_pages * size_of::<Tracker>(), PAGE_BYTES);
    let opened = MAP.trackers_opened.load(Relaxed);
    end.map_or(places.caches, |end| end.max(opened).min(places.caches))
}

/// The first page, counted from the base, whose tables and data were never open.
pub fn opened_pages() -> usize {
    (MAP.opened.load(Relaxed) - places().base) / HEAP_PAGE_BYTES
}

/// Makes the records of the first `huge_pages` huge pages writable. False: the
/// kernel refused.
pub fn open_trackers(huge_pages: usize) -> bool {
    let places = places();
    let data_end = MAP.data_end.load(Relaxed);
    if places.data + huge_pages * HUGEPAGE_BYTES > data_end {
        return false;
    }
    let opened = MAP.trackers_opened.load(Relaxed);
    let wanted = places.trackers + huge_pages * size_of::<Tracker>();
    if wanted <= opened {
        return true;
    }
    let most = trackers_end(places, data_end);
    let Some(end) = align_up(wanted, TRACKERS_STEP_BYTES).map(|end| end.min(most)) else {
        return false;
    };
    // SAFETY: within the slice, which is this module's.
    let done = !refuses(Call::Open) && unsafe { vm::open(opened as *mut u8, end - opened) };
    if done {
        MAP.trackers_opened.store(end, Relaxed);
    }
    done
}

/// Memory for a cache, zeroed, never given back; null when there is none.
pub fn open_cache(bytes: usize) -> *mut u8 {
    let taken = align_up(bytes, PAGE_BYTES).and_then(|bytes| {
        let end = || MAP.caches_end.load(Relaxed);
        let next = |at: usize| at.checked_add(bytes).filter(|to| *to <= end());
        let at = MAP.caches_opened.fetch_update(Relaxed, Relaxed, next).ok()? as *mut u8;
        // SAFETY: within the slice, which is this module's.
        let opened = !refuses(Call::Open) && unsafe { vm::open(at, bytes) };
        if !opened {
            // For the next request, unless another thread has taken more meanwhile.
            let (from, to) = (at as usize, at as usize + bytes);
            let _ = MAP.caches_opened.compare_exchange(to, from, Relaxed, Relaxed);
        }
        opened.then_some(at)
    });
    taken.unwrap_or(core::ptr::null_mut())
}

/// A huge page behind the data, open, advised to be huge, and in use for no longer than a
/// moment; none where open memory is charged.
pub fn spare() -> Option<*mut u8> {
    static READY: AtomicBool = AtomicBool::new(false);
    let places = places();
    let at = places.end as *mut u8;
    if is_charged() {
        return None;
    }
    if !READY.load(Relaxed) {
        // SAFETY: within the slice, which is this module's; twice does no harm.
        unsafe {
            if !vm::open(at, HUGEPAGE_BYTES) || !vm::advise_huge(at, HUGEPAGE_BYTES) {
                return None;
            }
        }
        READY.store(true, Relaxed);
    }
    Some(at)
}

/// Whether objects can be aligned to this number of pages.
pub fn can_align(pages: usize) -> bool {
    places().data.is_multiple_of(pages * HEAP_PAGE_BYTES)
}

/// The page in which an address of the slice lies.
#[inline(always)]
pub fn page_of(address: usize) -> Page {
    Page((address - places().base) / HEAP_PAGE_BYTES)
}

/// An address at which an object of the slice may begin: the class of its page. `None`: it is none, or
/// frees go the long way just now.
#[inline(always)]
pub fn class_of_direct(object: usize) -> Option<u8> {
    let (base, unit) = slices::direct(object)?;
    let page = unit / (HEAP_PAGE_BYTES / MIN_ALIGN);
    // SAFETY: `base` is the slice's, whose table of classes begins there and has a byte for each page of it.
    Some(unsafe { &*((base + page) as *const AtomicU8) }.load(Relaxed))
}

/// See `spandrel_pages::live::BOUNDS`.
pub fn bounds() -> [usize; BOUNDS] {
    let places = places();
    [places.base, places.trackers, places.caches, places.data, places.end]
}

/// Resident bytes.
pub struct Resident {
    /// Of the data.
    pub heap: usize,
    /// Of the tables and caches.
    pub tables: usize,
    /// Of these, of the records of huge pages.
    pub trackers: usize,
}

/// What is resident; `None`: the kernel does not tell.
pub fn resident() -> Option<Resident> {
    let places = places();
    let reached = MAP.opened.load(Acquire);
    if reached == 0 {
        return None;
    }
    let part = |from: usize, to: usize| {
        let from = align_down(from, PAGE_BYTES);
        vm::resident(from as *mut u8, align_up(to, PAGE_BYTES)?.checked_sub(from)?)
    };
    let pages = first_data_page()..(reached - places.base) / HEAP_PAGE_BYTES;
    let trackers = part(places.trackers, MAP.trackers_opened.load(Relaxed))?;
    let caches = part(places.caches, MAP.caches_opened.load(Relaxed))?;
    let mut tables = trackers + caches;
    for table in TABLES {
        let entries = table.entries_in(places, pages.clone());
        tables += part(entries.start, entries.end)?;
    }
    Some(Resident { heap: part(places.data, reached)?, tables, trackers })
}

/// Number of the first data page: where the page heap begins to count.
pub fn first_data_page() -> usize {
    (places().data - places().base) / HEAP_PAGE_BYTES
}

impl Page {
    /// First address.
    #[inline(always)]
    pub fn address(self) -> usize {
        places().base + self.0 * HEAP_PAGE_BYTES
    }

    /// The class of the span that covers the page.
    #[inline(always)]
    pub fn class(self) -> &'static AtomicU8 {
        // SAFETY: the table has a byte for each page of the slice; it is open
        // wherever data is.
        unsafe { &*((places().base + self.0) as *const AtomicU8) }
    }

    /// The record of the span that begins here, or where it begins.
    #[inline(always)]
    pub fn record(self) -> &'static SpanRecord {
        // SAFETY: as above; a record consists of atomics and is valid when zero.
        unsafe { &*((places().records + self.0 * size_of::<SpanRecord>()) as *const SpanRecord) }
    }

    /// The record of the large span that begins here and is not vast, in the place of the other.
    #[inline]
    pub fn short(self) -> &'static LargeRecord {
        let at = places().records + self.0 * size_of::<SpanRecord>();
        // SAFETY: as above.
        unsafe { &*(at as *const LargeRecord) }
    }

    /// The record of a vast span that begins in the page's huge page.
    #[inline]
    pub fn vast(self) -> &'static LargeRecord {
        let at = places().vast + self.0 / VAST_PAGES * size_of::<LargeRecord>();
        // SAFETY: as above.
        unsafe { &*(at as *const LargeRecord) }
    }

    /// One word of the object bits from this page on, of a span that begins here and has that word.
    #[inline(always)]
    pub fn word(self, at: usize) -> &'static AtomicU64 {
        debug_assert!(at < 32 * WORDS_PER_PAGE);
        let words = places().bits + self.0 * WORDS_PER_PAGE * 8;
        // SAFETY: as above; the index of an object is less than the span's number of them.
        unsafe { &*((words + at * 8) as *const AtomicU64) }
    }

    /// The object bits from this page on: one word for each 1 KiB.
    #[inline(always)]
    pub fn bits(self, words: usize) -> &'static [AtomicU64] {
        let at = places().bits + self.0 * WORDS_PER_PAGE * 8;
        // SAFETY: as above; a span asks for no more words than its pages have.
        unsafe { core::slice::from_raw_parts(at as *const AtomicU64, words) }
    }
}
