//! The `remap` backend: every object in address space with room to grow.
//!
//! Growing is not copying: an object grows within its slot, and when it
//! outgrows the slot its pages move through the page tables. Fresh memory is
//! not free: empty slots keep their pages for a while, bounded, and the next
//! object of about that size gets them warm. From 2 MiB on, huge pages;
//! before that, pages come in batches to objects that are being appended to.
//!
//! The slot that was given back last is kept aside for the next request.
//!
//! Locks: [`Remap::lists`] guards the lists, [`Remap::trimming`] is held while
//! pages are given back (system calls), and is taken first. A live slot's
//! record is changed only between `enter` and `leave`; but for the mark of `early`,
//! which only says what is expected of the object.

mod accounts;
mod charged;
mod colour;
mod density;
mod early;
mod grow;
mod huge;
mod layout;
mod lists;
mod packed;
mod parked;
mod promote;
mod regret;
mod reserve;
mod slot;
mod trim;
mod wrong;

use core::cell::UnsafeCell;
use core::ptr::{self, NonNull};
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::*,
};

use spandrel_os::budget::Promise;
use spandrel_os::message::say;
use spandrel_os::{slices, vm};
use spandrel_pages::{AllocatorId, HUGEPAGE_BYTES, MIB, PAGE_BYTES};
use spandrel_slabs::density::{Contents, Densities};
use spandrel_slabs::promotion::Promotion;
use spandrel_sync::{Lock, Once};

pub use early::{alloc_early, alloc_fresh, note_late, note_unserved};
pub use layout::ALIGN_KEPT_BYTES;
use layout::{CLASSES, Layout, ROOM, SlotId, can_align, class_aligned, tight_class_for};
use lists::{Lists, Want, pages_of, record};
pub use packed::alloc_unless_packed;
use slot::{LIVE, Slot};

/// Base pages in a huge page.
const PAGES_PER_HUGE: usize = HUGEPAGE_BYTES / PAGE_BYTES;

/// A request from this size on takes longer than a look at what is due.
const LOOKED_AT_BYTES: usize = 8 * MIB;

/// What the backend counts.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct RemapStats {
    /// Objects.
    pub live_slots: usize,
    /// Bytes of pages that objects use.
    pub live_bytes: usize,
    /// Bytes of resident pages that no object uses.
    pub warm_bytes: usize,
    /// Bytes that objects were given warm, without page faults.
    pub reused_bytes: u64,
    /// Reallocations that moved page-table entries.
    pub moved: u64,
    /// Reallocations within the backend that copied.
    pub copied: u64,
    /// Bytes copied by them.
    pub copied_bytes: u64,
}

#[repr(C)]
struct Remap {
    /// Written once, before `ready`.
    layout: UnsafeCell<Layout>,
    /// The slot that was given back last: see `parked`.
    parked: AtomicU32,
    parks: AtomicU32,
    /// The accounts' warm pages, for a look without the lock.
    warm_seen: AtomicUsize,
    /// Whether there is enough for the background thread to look after.
    is_large: AtomicBool,
    /// Whether that thread has been requested.
    wanted: AtomicBool,
    ready: AtomicBool,
    /// By mark of a thread: whether an object was freed that it expected to grow and that
    /// had not, by whomever.
    freed_early: [AtomicU8; early::MARKS],
    once: Once,
    lists: Lock<Lists>,
    trimming: Lock<()>,
    /// Locked under `trimming`.
    promotion: Lock<Promotion>,
    /// Mappings beyond one per class: see [`grow::SPLIT_BUDGET`].
    splits: AtomicUsize,
    /// What large objects use of their pages.
    densities: Densities,
    /// Slots that are opened one by one, where memory is charged when opened.
    apart: AtomicUsize,
    next_decay_ms: AtomicU64,
    moved: AtomicU64,
    copied: AtomicU64,
    copied_bytes: AtomicU64,
}

// SAFETY: `layout` is written once, by the thread that then sets `ready`, and
// read only by threads that have seen `ready`; the rest is atomic or locked.
unsafe impl Sync for Remap {}

static REMAP: Remap = Remap {
    once: Once::new(),
    ready: AtomicBool::new(false),
    freed_early: [const { AtomicU8::new(0) }; early::MARKS],
    layout: UnsafeCell::new(Layout::EMPTY),
    lists: Lock::new(Lists::EMPTY),
    trimming: Lock::new(()),
    promotion: Lock::new(Promotion::new()),
    warm_seen: AtomicUsize::new(0),
    is_large: AtomicBool::new(false),
    wanted: AtomicBool::new(false),
    splits: AtomicUsize::new(0),
    densities: Densities::new(),
    apart: AtomicUsize::new(0),
    next_decay_ms: AtomicU64::new(0),
    parked: AtomicU32::new(parked::NO_SLOT),
    parks: AtomicU32::new(0),
    moved: AtomicU64::new(0),
    copied: AtomicU64::new(0),
    copied_bytes: AtomicU64::new(0),
};

/// A slot together with what its record says of it.
#[derive(Clone, Copy)]
struct Place {
    id: SlotId,
    slot: &'static Slot,
    /// The slot's first page.
    at: *mut u8,
}

impl Place {
    /// The slot's object.
    #[inline(always)]
    fn object(self) -> *mut u8 {
        self.at.wrapping_add(self.slot.offset())
    }
}

impl Remap {
    fn layout(&self) -> &Layout {
        // SAFETY: see `unsafe impl Sync`; before `ready` it is the constant
        // EMPTY, to which no address belongs.
        unsafe { &*self.layout.get() }
    }

    #[inline]
    fn is_ready(&self) -> bool {
        self.ready.load(Acquire) || self.start()
    }

    #[cold]
    fn start(&self) -> bool {
        if self.once.is_done() {
            // There is no address space for a slice: every request comes here.
            return self.ready.load(Acquire);
        }
        // A fork waits for the start to end.
        let _starting = self.trimming.lock();
        self.once.run(|| {
            let Some(slice) =
                slices::claim(AllocatorId::Mmap, layout::WANTED_BYTES, layout::LEAST_BYTES)
            else {
                return;
            };
            let mut lists = self.lists.lock();
            match vm::huge_pages() {
                vm::HugePages::Always => self.densities.are_unasked(),
                vm::HugePages::Never => self.densities.are_not_packed(),
                _ => {}
            }
            let strict = STRICT.load(Relaxed) || vm::is_charged_when_opened();
            STRICT.store(strict, Relaxed);
            if !lists.start(slice, strict) {
                return;
            }
            // SAFETY: `ready` is still false, and `once` admits one thread.
            unsafe { *self.layout.get() = lists.layout };
            self.ready.store(true, Release);
            spandrel_slabs::set_companion(|turn| REMAP.step(turn));
        });
        self.ready.load(Acquire)
    }

    fn place(&self, id: SlotId) -> Place {
        let layout = self.layout();
        // SAFETY: ids come from lists or from `find`, below the frontier.
        Place { id, slot: unsafe { record(layout, id) }, at: layout.address(id) as *mut u8 }
    }

    /// The slot of an object, if the address is one.
    #[inline(always)]
    fn find(&self, object: *mut u8) -> Option<Place> {
        let (id, record, offset) = self.layout().slot_at(object as usize)?;
        // SAFETY: all records can be read; those that were never opened are zero.
        let slot = unsafe { &*(record as *const Slot) };
        (slot.offset() == offset).then(|| Place { id, slot, at: object.wrapping_sub(offset) })
    }

    /// Takes a slot in one of the classes from `class` upwards that suits the alignment, in state HELD.
    fn take(&self, lists: &mut Lists, class: usize, want: Want, align: usize) -> Option<Place> {
        // A warm slot of a larger class beats a cold one of the best class. Slots of an alignment are too few to look further.
        let warm = match want {
            Want::Near(pages) if align <= PAGE_BYTES => lists.take_near(class, pages),
            Want::Fitting(pages) => lists.take_fitting(class, pages),
            _ => None,
        };
        let id = warm.or_else(|| {
            let mut classes = (class..CLASSES).filter(|class| can_align(*class, align));
            classes.find_map(|class| lists.take(class, want))
        })?;
        Some(self.place(id))
    }

    /// Takes a slot for a new object and enters it into the accounts.
    fn take_new(
        &self,
        class: usize,
        size: usize,
        want: Want,
        align: usize,
    ) -> Option<(Place, Promise)> {
        let mut lists = self.lists.lock();
        let place = self.take(&mut lists, class, want, align)?;
        let touched = place.slot.touched.load(Relaxed) as usize;
        let offset = colour::offset(place.id, size, align, want, touched);
        place.slot.set_offset(offset);
        let pages = pages_of(offset + size);
        if touched <= pages {
            lists.dequeue(place.id);
        } else if !place.slot.is_queued() {
            lists.enqueue(place.id, self.stamp());
        }
        // Else what is left over keeps its age: a large slot is not kept warm by
        // small objects that come and go in it.
        lists.accounts.open(pages, pages.min(touched));
        self.see(&lists);
        drop(lists);
        let promise = match want {
            // What is warm is only taken if it is there.
            _ if !self.ensure_open(place, pages) => None,
            Want::Warm(_) | Want::Fitting(_) => {
                Promise::of(pages.saturating_sub(touched) * PAGE_BYTES)
            }
            _ => self.admit(place.slot, pages),
        };
        if promise.is_none() {
            self.put_back(place, pages);
        }
        promise.map(|promise| (place, promise))
    }

    /// Returns a slot that was taken for a new object of `pages` and not used.
    fn put_back(&self, place: Place, pages: usize) {
        let mut lists = self.lists.lock();
        let touched = place.slot.touched.load(Relaxed) as usize;
        lists.accounts.close(pages);
        lists.accounts.change(0, pages.min(touched) as isize - pages as isize);
        self.see(&lists);
        drop(lists);
        self.put_empty(place);
    }

    /// Puts a held slot without an object on the list that it belongs to.
    fn put_empty(&self, place: Place) {
        let mut lists = self.lists.lock();
        if place.slot.touched.load(Relaxed) == 0 {
            lists.put_cold(place.id);
        } else {
            lists.put_warm(place.id, self.stamp());
        }
    }

    fn ensure_open(&self, place: Place, pages: usize) -> bool {
        let opened = place.slot.opened.load(Relaxed) as usize;
        if pages <= opened {
            return true;
        }
        let capacity = ROOM[place.id.class()] / PAGE_BYTES;
        if pages > capacity || reserve::has_ended() {
            return false;
        }
        let strict = self.lists_strict();
        if strict && opened == 0 && self.apart.load(Relaxed) >= grow::APART_BUDGET {
            return false;
        }
        let target = if strict {
            // Charged at once: a little ahead of an object that grows, so that appends do not pay a
            // system call each.
            let ahead = if opened == 0 { 0 } else { (pages / 8).max(16) };
            (pages + ahead).min(capacity)
        } else {
            (pages * 2).next_power_of_two().min(capacity)
        };
        for target in [target, pages] {
            let from = opened * PAGE_BYTES;
            // SAFETY: the range lies in a slot that the caller holds.
            if unsafe { vm::open(place.at.add(from), target * PAGE_BYTES - from) } {
                place.slot.opened.store(target as u32, Relaxed);
                if strict && opened == 0 {
                    self.apart.fetch_add(1, Relaxed);
                }
                return true;
            }
        }
        false
    }

    fn lists_strict(&self) -> bool {
        STRICT.load(Relaxed)
    }

    /// Makes a HELD slot of [`Remap::take_new`] live. Returns how many bytes of the object from
    /// its start may not be zero.
    fn settle_new(&self, place: Place, size: usize, contents: Contents, promise: Promise) -> usize {
        let slot = place.slot;
        let end = slot.offset() + size;
        let pages = pages_of(end);
        let touched = slot.touched.load(Relaxed) as usize;
        slot.used.store(end, Relaxed);
        slot.counter.store(0, Relaxed);
        slot.streak.store(0, Relaxed);
        slot.early.store(0, Relaxed);
        if pages > touched {
            self.extend(place, touched, pages, huge::Pattern::New(contents), promise);
            self.queue_spare(place, pages);
        }
        slot.set_state(LIVE);
        (touched * PAGE_BYTES).saturating_sub(slot.offset())
    }

    fn allocate(
        &self,
        size: usize,
        align: usize,
        want: Want,
        contents: Contents,
    ) -> Option<(NonNull<u8>, usize)> {
        if !self.is_ready() {
            return None;
        }
        let size = size.max(1);
        let class = class_aligned(size, align)?;
        if let Some((place, dirty)) = self.unpark(class, size, align, want) {
            return NonNull::new(place.object()).map(|at| (at, dirty.min(size)));
        }
        let (place, promise) = self.take_new(class, size, want, align).or_else(|| {
            // The roomy classes are full: any class in which it fits.
            let tight = tight_class_for(size.max(align))?;
            (tight < class).then(|| self.take_new(tight, size, want, align)).flatten()
        })?;
        if place.object() as usize & (align - 1) != 0 {
            // Only a shrunken slice has slots that are less aligned than large.
            self.put_back(place, pages_of(place.slot.offset() + size));
            return None;
        }
        let dirty = self.settle_new(place, size, contents, promise);
        self.tick();
        self.see_to_background();
        if size >= LOOKED_AT_BYTES {
            spandrel_slabs::step_beside();
        }
        NonNull::new(place.object()).map(|at| (at, dirty.min(size)))
    }
}

/// As the lists have it, for a look without the lock.
static STRICT: AtomicBool = AtomicBool::new(false);

/// Claims the backend's slice, if that has not been tried; whether there is one.
pub fn start() -> bool {
    REMAP.is_ready()
}

/// Whether an object of `size` bytes fits into a slot, all slots being free.
pub fn has_slots_for(size: usize) -> bool {
    tight_class_for(size).is_some()
}

/// A new object of `size` bytes aligned to `align`, a power of two; null when
/// there is no slot or no memory. The contents are arbitrary.
pub fn alloc(size: usize, align: usize) -> *mut u8 {
    let want = Want::Near(pages_of(size));
    REMAP.allocate(size, align, want, Contents::Any).map_or(ptr::null_mut(), |(at, _)| at.as_ptr())
}

/// As [`alloc`], zeroed; only what an earlier object left is cleared.
pub fn alloc_zeroed(size: usize, align: usize) -> *mut u8 {
    let want = Want::Near(pages_of(size));
    let Some((at, dirty)) = REMAP.allocate(size, align, want, Contents::Zeros) else {
        return ptr::null_mut();
    };
    // SAFETY: the object has at least `dirty` bytes.
    unsafe { ptr::write_bytes(at.as_ptr(), 0, dirty) };
    at.as_ptr()
}

/// A warm place for an object that is growing to `size` bytes; null when there
/// is none at hand.
pub fn alloc_warm(size: usize) -> *mut u8 {
    if !REMAP.ready.load(Acquire)
        || (REMAP.warm_seen.load(Relaxed) < pages_of(size)
            && REMAP.parked.load(Relaxed) == parked::NO_SLOT)
    {
        return ptr::null_mut();
    }
    let want = Want::Warm(pages_of(size));
    REMAP.allocate(size, 1, want, Contents::Any).map_or(ptr::null_mut(), |(at, _)| at.as_ptr())
}

/// Gives an object back.
///
/// # Safety
/// `object` came from this backend, and is not used any more. A pointer that
/// is no live object is reported, and the process aborted.
pub unsafe fn free(object: *mut u8) {
    match REMAP.find(object).filter(|place| place.slot.enter()) {
        Some(place) => {
            if place.slot.early.load(Relaxed) != 0 {
                REMAP.note_freed(place.slot);
            }
            if !REMAP.park(place) {
                REMAP.release(place);
            }
        }
        None => wrong::not_live("free", object),
    }
}

/// Bytes that the object may use: to the end of its last page.
///
/// # Safety
/// As for [`free`].
pub unsafe fn usable_size(object: *mut u8) -> usize {
    // SAFETY: passed on from the caller.
    unsafe { usable_size_in("malloc_usable_size", object) }
}

/// As [`usable_size`], in a call of that name: what is wrong with the address is said of it.
///
/// # Safety
/// As for [`free`].
pub unsafe fn usable_size_in(call: &str, object: *mut u8) -> usize {
    match REMAP.find(object).filter(|place| place.slot.state() == LIVE) {
        Some(place) => pages_of(place.slot.used.load(Relaxed)) * PAGE_BYTES - place.slot.offset(),
        None => wrong::not_live(call, object),
    }
}

/// The object with a new size: where it is, or moved through the page tables,
/// or copied; null when there is no room or memory, and the object is as it was.
/// Alignments up to [`ALIGN_KEPT_BYTES`] are kept.
///
/// # Safety
/// As for [`free`]; afterwards only the returned address is the object's.
pub unsafe fn realloc(object: *mut u8, size: usize) -> *mut u8 {
    match REMAP.find(object).filter(|place| place.slot.enter()) {
        Some(place) => REMAP.resize(place, size.max(1)).0,
        None => wrong::not_live("realloc", object),
    }
}

/// Grows an object where it is if the memory for it is resident: what is quickest, to be
/// tried before [`realloc`]. False: nothing has changed.
///
/// # Safety
/// As for [`free`]; of an object that is gone it says false, and [`realloc`] reports it.
#[inline(always)]
pub unsafe fn grow_warm(object: *mut u8, size: usize) -> bool {
    REMAP.find(object).is_some_and(|place| REMAP.grow_warm(place, size))
}

/// As [`realloc`]; bytes beyond the old size are zero.
///
/// # Safety
/// As for [`realloc`].
pub unsafe fn realloc_zeroed(object: *mut u8, old_size: usize, size: usize) -> *mut u8 {
    let Some(place) = REMAP.find(object).filter(|place| place.slot.enter()) else {
        wrong::not_live("realloc", object)
    };
    let (moved, dirty) = REMAP.resize(place, size.max(1));
    let dirty = dirty.min(size);
    if !moved.is_null() && dirty > old_size {
        // SAFETY: the object has `size` bytes.
        unsafe { ptr::write_bytes(moved.add(old_size), 0, dirty - old_size) };
    }
    moved
}

/// Value of the object's allocation counter.
///
/// # Safety
/// As for [`free`].
pub unsafe fn allocation_counter(object: *mut u8) -> u8 {
    REMAP.find(object).map_or(0, |place| place.slot.counter.load(Relaxed))
}

/// Gives all warm memory back. True if there was any.
pub fn trim() -> bool {
    let released = REMAP.trim_all();
    REMAP.close_all();
    released
}

/// Closes what is open and holds nothing, as that begins to count; false: it does so already, or nothing is open.
pub fn open_sparingly() -> bool {
    REMAP.open_sparingly()
}

/// Gives back address space that is reserved and holds no object: for a limit of it.
pub fn give_back_reserve() {
    REMAP.give_back_reserve();
}

/// Bytes of warm memory, as far as slots have reported it.
pub fn warm_bytes() -> usize {
    REMAP.unpark_to_lists();
    REMAP.lists.lock().accounts.warm * PAGE_BYTES
}

/// What the backend counts. Not a consistent cut: the program goes on.
pub fn stats() -> RemapStats {
    REMAP.unpark_to_lists();
    let (mut accounts, frontiers) = {
        let lists = REMAP.lists.lock();
        (lists.accounts, lists.frontiers())
    };
    // What slots have noted and not reported adds up: a mebibyte for each object.
    let ids = (0..CLASSES).flat_map(|c| (0..frontiers[c]).map(move |i| SlotId::new(c, i)));
    let (live, warm) = ids.fold((0, 0), |(live, warm), id| {
        let slot = REMAP.place(id).slot;
        let noted = |delta: &AtomicI32| delta.load(Relaxed) as isize;
        (live + noted(&slot.live_delta), warm + noted(&slot.warm_delta))
    });
    accounts.change(live, warm);
    RemapStats {
        live_slots: accounts.slots,
        live_bytes: accounts.live * PAGE_BYTES,
        warm_bytes: accounts.warm * PAGE_BYTES,
        reused_bytes: accounts.reused * PAGE_BYTES as u64,
        moved: REMAP.moved.load(Relaxed),
        copied: REMAP.copied.load(Relaxed),
        copied_bytes: REMAP.copied_bytes.load(Relaxed),
    }
}

/// Counts moves and copies anew: in the child of a `fork`. Live and warm pages
/// are what they are.
pub fn forget_counts() {
    REMAP.wanted.store(false, Relaxed);
    for count in [&REMAP.moved, &REMAP.copied, &REMAP.copied_bytes] {
        count.store(0, Relaxed);
    }
}

/// Takes the locks before a `fork`.
pub fn fork_prepare() {
    REMAP.trimming.acquire();
    REMAP.lists.acquire();
}

/// Gives the locks back after a `fork`, in parent and child.
///
/// # Safety
/// The calling thread called [`fork_prepare`] before the fork.
pub unsafe fn fork_done() {
    // SAFETY: the locks are held without guards by `fork_prepare`.
    unsafe {
        REMAP.lists.release();
        REMAP.trimming.release();
    }
}

/// Neither going on nor going back is possible.
#[cold]
fn fatal(why: &str) -> ! {
    say(format_args!("mmap backend: {why}"));
    // SAFETY: abort has no preconditions.
    unsafe { libc::abort() }
}
