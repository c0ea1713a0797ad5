//! Guard pages: a few objects each on pages of their own between inaccessible pages, so
//! that a write or a read beside an object, or after its end, is found where it happens.
//!
//! ```text
//! slot    guard page(s)   object's page(s), the object at one of their ends   next slot's guard
//! ```
//!
//! Which objects these are is a matter of chance: one in N of those for which the native
//! allocator's caches have none. A slot that was given back stays closed until all others have been
//! used, so that what is used after its end is found for long. It is off by default, and then
//! costs nothing: such an object is known by its owner byte.
//!
//! After GWP-ASan's design (Serebryany et al., 2023, "GWP-ASan: Sampling-Based Detection of
//! Memory-Safety Bugs in Production"), without a line of it.

mod report;

use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

use spandrel_os::slices;
use spandrel_os::{clock, vm};
use spandrel_pages::{AllocatorId, MIB, MIN_ALIGN, PAGE_BYTES};
use spandrel_sync::{Lock, Once};

use crate::stack::{self, Stack};
use crate::{Backend, Native};
use report::Accident;

/// Guarded objects at a time.
const SLOTS: usize = 512;
/// Pages of a slot that may hold an object, and as many before them that hold none.
const SLOT_PAGES: usize = 2;
const OBJECT_BYTES: usize = SLOT_PAGES * PAGE_BYTES;
const SLOT_BYTES: usize = 2 * OBJECT_BYTES;
/// A slice is no smaller.
const SLICE_BYTES: usize = 256 * MIB;
/// What lies between an object and the end of its page.
const FILLER: u8 = 0xa5;

/// One in this many requests is guarded; 0: none.
static ONE_IN: AtomicU32 = AtomicU32::new(0);
static REQUESTS: AtomicU32 = AtomicU32::new(0);
/// Where the slots begin; 0: they are not there.
static BASE: AtomicUsize = AtomicUsize::new(0);
static BEGIN: Once = Once::new();
static RANDOM: AtomicU64 = AtomicU64::new(0x9e37_79b9_7f4a_7c15);
static SLOT: Lock<Slots> = Lock::new(Slots::new());

/// Objects on pages of their own.
pub enum Guarded {}

/// What a slot is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Unused,
    Live,
    /// Its object was given back; no thread may touch it.
    Ended,
}

/// What is known of a slot's object.
#[derive(Clone, Copy)]
struct Record {
    state: State,
    address: usize,
    size: usize,
    born: Stack,
    ended: Stack,
}

struct Slots {
    records: [Record; SLOTS],
    /// Where to look for the slot that was given back longest ago.
    next: usize,
}

impl Slots {
    const fn new() -> Self {
        let empty = Record {
            state: State::Unused,
            address: 0,
            size: 0,
            born: Stack::new(),
            ended: Stack::new(),
        };
        Self { records: [empty; SLOTS], next: 0 }
    }
}

/// From now on one in `requests` requests that find no cached object is guarded.
pub fn guard_one_in(requests: u32) {
    ONE_IN.store(requests, Relaxed);
}

/// Whether some requests are guarded.
#[inline]
pub fn is_on() -> bool {
    ONE_IN.load(Relaxed) != 0
}

/// A guarded object of `size` bytes aligned to `align`, if it is this request's turn; else null.
#[cold]
pub fn sample(size: usize, align: usize) -> *mut u8 {
    let one_in = ONE_IN.load(Relaxed);
    let fits = size <= OBJECT_BYTES && align <= PAGE_BYTES;
    if one_in == 0 || !fits || REQUESTS.fetch_add(1, Relaxed) % one_in != one_in - 1 {
        return ptr::null_mut();
    }
    // What is done for the first of them may allocate: not that.
    if !BEGIN.is_done() && !BEGIN.run(begin) {
        return ptr::null_mut();
    }
    match BASE.load(Acquire) {
        0 => ptr::null_mut(),
        base => make(base, size, align.max(MIN_ALIGN)),
    }
}

/// Reserves the slots and has accidents reported.
fn begin() {
    stack::prepare();
    let slice = slices::claim(AllocatorId::Guarded, SLICE_BYTES, SLICE_BYTES);
    let Some(slice) = slice else { return };
    RANDOM.fetch_xor(clock::nanos() ^ slice.base as u64, Relaxed);
    report::install();
    BASE.store(slice.base, Release);
}

/// The first page of a slot that may hold an object.
fn pages_of(base: usize, slot: usize) -> usize {
    base + slot * SLOT_BYTES + OBJECT_BYTES
}

fn random() -> u64 {
    // The order in which threads mix it does not matter.
    let mut state = RANDOM.load(Relaxed);
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    RANDOM.store(state, Relaxed);
    state
}

fn make(base: usize, size: usize, align: usize) -> *mut u8 {
    let born = Stack::here();
    let mut slots = SLOT.lock();
    let from = slots.next;
    let free = (0..SLOTS).map(|step| (from + step) % SLOTS);
    let mut free = free;
    let Some(slot) = free.find(|slot| slots.records[*slot].state != State::Live) else {
        return ptr::null_mut();
    };
    slots.next = (slot + 1) % SLOTS;
    let pages = pages_of(base, slot);
    // SAFETY: the pages are of this room's slice, and hold no object.
    if !unsafe { vm::open(pages as *mut u8, OBJECT_BYTES) } {
        return ptr::null_mut();
    }
    // At the end what is written behind it is found, at the beginning what is written before.
    let at_end = random() & 1 == 0;
    let start = if at_end { (OBJECT_BYTES - size.max(1)) & !(align - 1) } else { 0 };
    let address = pages + start;
    let end = address + size;
    // SAFETY: within the pages just opened.
    unsafe { ptr::write_bytes(end as *mut u8, FILLER, filler_of(end)) };
    slots.records[slot] = Record { state: State::Live, address, size, born, ended: Stack::new() };
    address as *mut u8
}

/// Bytes behind an object that tell of a write: what is left of its last page.
fn filler_of(end: usize) -> usize {
    end.next_multiple_of(PAGE_BYTES) - end
}

/// The slot in whose part of the slice an address lies.
fn slot_of(address: usize) -> Option<usize> {
    let base = BASE.load(Acquire);
    let slot = address.checked_sub(base)? / SLOT_BYTES;
    (base != 0 && slot < SLOTS).then_some(slot)
}

/// The record of a live object that begins at this address; anything else is reported, and the end.
fn live(call: &'static str, slots: &Slots, address: usize) -> usize {
    let slot = slot_of(address);
    let record = slot.map(|slot| &slots.records[slot]);
    match (slot, record) {
        (Some(slot), Some(record)) if record.state == State::Live && record.address == address => {
            slot
        }
        (_, Some(record)) if record.state == State::Ended && record.address == address => {
            report::end(&Accident::EndedTwice { call }, record, address)
        }
        (_, Some(record)) if record.state != State::Unused => {
            report::end(&Accident::NotItsBeginning { call }, record, address)
        }
        _ => report::nowhere(call, address),
    }
}

/// Takes the lock before a `fork`.
pub fn fork_prepare() {
    SLOT.acquire();
}

/// Gives the lock back after a `fork`.
///
/// # Safety
/// The calling thread called [`fork_prepare`] before the fork.
pub unsafe fn fork_done() {
    // SAFETY: passed on from the caller.
    unsafe { SLOT.release() }
}

impl Backend for Guarded {
    const ID: AllocatorId = AllocatorId::Guarded;

    /// No request names this allocator: it answers as the native one.
    fn alloc(size: usize) -> *mut u8 {
        Native::alloc(size)
    }

    fn alloc_zeroed(size: usize) -> *mut u8 {
        Native::alloc_zeroed(size)
    }

    fn alloc_aligned(align: usize, size: usize) -> *mut u8 {
        Native::alloc_aligned(align, size)
    }

    fn alloc_zeroed_aligned(align: usize, size: usize) -> *mut u8 {
        Native::alloc_zeroed_aligned(align, size)
    }

    unsafe fn realloc(object: *mut u8, size: usize) -> *mut u8 {
        // SAFETY: passed on from the caller.
        let old = unsafe { Self::usable_size(object) };
        // It stays guarded, if it is its turn.
        let guarded = sample(size, MIN_ALIGN);
        let moved = if guarded.is_null() { Native::alloc(size) } else { guarded };
        if !moved.is_null() {
            // SAFETY: both are live and distinct, and of at least as many bytes as are copied.
            unsafe {
                ptr::copy_nonoverlapping(object, moved, old.min(size));
                Self::free(object);
            }
        }
        moved
    }

    unsafe fn free(object: *mut u8) {
        let address = object as usize;
        let ended = Stack::here();
        let mut slots = SLOT.lock();
        let slot = live("free", &slots, address);
        let record = &mut slots.records[slot];
        let end = address + record.size;
        // SAFETY: the object and what is behind it to the end of its pages are open.
        let is_whole = |at: usize| unsafe { (at as *const u8).read() } == FILLER;
        if !(end..end + filler_of(end)).all(is_whole) {
            report::end(&Accident::WrittenBehind, record, address);
        }
        (record.state, record.ended) = (State::Ended, ended);
        let pages = address - (address - BASE.load(Relaxed)) % OBJECT_BYTES;
        // SAFETY: the pages are of this room's slice, and their object is gone. What the kernel
        // refuses stays open: then nothing is found there.
        unsafe {
            vm::close(pages as *mut u8, OBJECT_BYTES);
        }
    }

    unsafe fn free_sized(object: *mut u8, _size: usize, _align: usize) {
        // SAFETY: passed on from the caller.
        unsafe { Self::free(object) }
    }

    unsafe fn usable_size(object: *mut u8) -> usize {
        let slots = SLOT.lock();
        let slot = live("malloc_usable_size", &slots, object as usize);
        slots.records[slot].size
    }

    fn trim() -> bool {
        false
    }
}
