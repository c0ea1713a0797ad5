//! Lists of empty slots and the queue of warm memory; all under one lock.

use core::sync::atomic::Ordering::Relaxed;

use spandrel_os::slices::{GRANULE_BYTES, Slice};
use spandrel_os::vm;
use spandrel_pages::{KIB, PAGE_BYTES, align_down, align_up};

use super::STRICT;
use super::accounts::Accounts;
use super::layout::{CAPACITY, CLASSES, Layout, ROOM, SlotId};
use super::slot::{COLD, HELD, Slot, WARM};

/// Warm slots are kept apart by the power of two of their resident pages.
pub const BINS: usize = 26;
/// Powers of two between an object and the warm pages of a slot that is too good for it.
const MUCH_MORE: usize = 4;
/// Slots opened at a time; 0: each slot is opened in steps as its object grows,
/// because it is so large that opening it whole would show in core dumps and
/// under `mlockall`.
const BATCH: [u32; CLASSES] = [64, 16, 1, 0, 0, 0];
/// Slot records are opened in steps of this many bytes.
const RECORD_STEP: usize = 64 * KIB;

#[derive(Clone, Copy)]
struct Class {
    /// Slots from here on have never been used.
    frontier: u32,
    /// Slots from here on are not accessible.
    opened: u32,
    /// Records from here on are not accessible.
    records: u32,
    /// Slots from here on have been given back.
    end: u32,
    /// First of the cold slots below the frontier.
    cold: u32,
    /// First of the warm slots of each bin.
    bins: [u32; BINS],
    /// Which bins are not empty.
    filled: u32,
}

/// All lists.
pub struct Lists {
    pub layout: Layout,
    slice: Slice,
    /// Memory is charged when it is opened (overcommit mode 2, locked memory):
    /// slots are opened only as far as they are used.
    strict: bool,
    /// Live and warm pages.
    pub accounts: Accounts,
    classes: [Class; CLASSES],
    youngest: u32,
    oldest: u32,
}

/// The record of a slot.
///
/// # Safety
/// The record has been opened: the slot lies below its class's frontier, or the
/// caller has just opened it.
pub unsafe fn record(layout: &Layout, id: SlotId) -> &'static Slot {
    // SAFETY: records are 64 bytes apart in opened, zero-initialised memory
    // that is never closed again; `Slot` consists of atomics only.
    unsafe { &*(layout.record(id) as *const Slot) }
}

/// How a slot is to be chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want {
    /// A new object of so many pages: the smallest warm slot that is not
    /// smaller, else an empty one.
    Near(usize),
    /// An object that grows: only a warm slot with at least so many pages.
    Warm(usize),
    /// Pages will be moved in: an empty slot if there is one.
    Cold,
}

impl Lists {
    /// No slots at all.
    pub const EMPTY: Self = Lists {
        layout: Layout::EMPTY,
        slice: Slice { base: 0, len: 0 },
        strict: false,
        accounts: Accounts::EMPTY,
        classes: [Class {
            frontier: 0,
            opened: 0,
            records: 0,
            end: 0,
            cold: SlotId::NONE.raw(),
            bins: [SlotId::NONE.raw(); BINS],
            filled: 0,
        }; CLASSES],
        youngest: SlotId::NONE.raw(),
        oldest: SlotId::NONE.raw(),
    };

    /// Divides a slice into slots, whose records can all be read, so that a wrong address finds one that
    /// says so; false: the kernel refused.
    pub fn start(&mut self, slice: Slice, strict: bool) -> bool {
        let len = 1 << slice.len.ilog2();
        let layout = Layout::new(slice.base, len);
        let records = layout.records();
        // SAFETY: within the slice, which is the caller's. Where the kernel has huge pages wherever one fits, a record or a page of
        // an object would take 2 MiB.
        let opened = unsafe {
            let _ = vm::advise_small(slice.base as *mut u8, slice.len);
            vm::open_to_read(records.start as *mut u8, records.len())
        };
        if opened {
            (self.layout, self.strict) = (layout, strict);
            self.slice = slice;
            for (number, class) in self.classes.iter_mut().enumerate() {
                class.end = layout.count(number);
            }
        }
        opened
    }

    fn slot(&self, id: SlotId) -> &'static Slot {
        // SAFETY: every id on a list lies below its class's frontier.
        unsafe { record(&self.layout, id) }
    }

    /// Takes an empty slot of `class`, in state [`HELD`]. Memory may be opened
    /// for it; `None` when there is no slot, or no memory for one.
    pub fn take(&mut self, class: usize, want: Want) -> Option<SlotId> {
        let id = match want {
            Want::Near(pages) => self
                .warm(class, bin(pages), BINS - 1)
                .or_else(|| self.cold_or_new(class))
                .or_else(|| self.warm(class, 0, BINS - 1))?,
            Want::Warm(pages) => self.warm(class, bin(pages), BINS - 1)?,
            Want::Cold => self.cold_or_new(class).or_else(|| self.warm(class, 0, BINS - 1))?,
        };
        self.slot(id).set_state(HELD);
        Some(id)
    }

    /// The first class, of `class` and the two above it, that has a warm slot for [`Want::Near`] so many
    /// pages. Of classes above, none that has [`MUCH_MORE`]: it is for a larger object, which would take as much anew.
    pub fn warm_near(&self, class: usize, pages: usize) -> Option<(usize, usize)> {
        let has = |at: &usize| {
            let most = if *at == class { BINS - 1 } else { bin(pages) + MUCH_MORE };
            self.lowest_filled(*at, bin(pages), most).is_some()
        };
        (class..CLASSES.min(class + 3)).find(has).map(|class| (class, pages))
    }

    fn lowest_filled(&self, class: usize, from: usize, to: usize) -> Option<usize> {
        let filled = self.classes[class].filled & (u32::MAX << from.min(BINS - 1));
        let lowest = filled.trailing_zeros() as usize;
        (filled != 0 && lowest <= to).then_some(lowest)
    }

    fn warm(&mut self, class: usize, from: usize, to: usize) -> Option<SlotId> {
        let bin = self.lowest_filled(class, from, to)?;
        let id = SlotId::from_raw(self.classes[class].bins[bin]);
        self.remove_warm(id);
        Some(id)
    }

    fn cold_or_new(&mut self, class: usize) -> Option<SlotId> {
        let head = SlotId::from_raw(self.classes[class].cold);
        if head != SlotId::NONE {
            let slot = self.slot(head);
            self.classes[class].cold = slot.next.load(Relaxed);
            slot.unlink();
            return Some(head);
        }
        self.never_used(class)
    }

    fn never_used(&mut self, class: usize) -> Option<SlotId> {
        let count = self.classes[class].end;
        let index = self.classes[class].frontier;
        if index >= count {
            return None;
        }
        let id = SlotId::new(class, index);
        if index >= self.classes[class].records {
            let at = align_down(self.layout.record(id), PAGE_BYTES);
            // SAFETY: records lie in the head of the slice; opening them again
            // changes nothing.
            if !unsafe { vm::open(at as *mut u8, RECORD_STEP) } {
                return None;
            }
            let more = (RECORD_STEP / size_of::<Slot>()) as u32;
            self.classes[class].records = (index + more).min(count);
        }
        let batch = if self.strict { 0 } else { BATCH[class].min(count - index) };
        if batch > 0 && index >= self.classes[class].opened {
            let at = self.layout.start(id) as *mut u8;
            // SAFETY: the slots lie in the slice, at and beyond the frontier.
            unsafe {
                if !vm::open(at, PAGE_BYTES) {
                    return None;
                }
                if vm::is_resident(at) {
                    // The program has locked its memory (`mlockall`): whatever
                    // is opened is resident at once.
                    vm::close(at, PAGE_BYTES);
                    self.strict = true;
                    STRICT.store(true, Relaxed);
                } else if !vm::open(at, batch as usize * CAPACITY[class]) {
                    return None;
                } else {
                    self.classes[class].opened = index + batch;
                }
            }
        }
        let slot = self.slot(id);
        if index < self.classes[class].opened {
            slot.opened.store((ROOM[class] / PAGE_BYTES) as u32, Relaxed);
        }
        slot.unlink();
        self.classes[class].frontier = index + 1;
        Some(id)
    }

    /// Gives the address space of slots that hold nothing and have no memory back for good: those that were
    /// never open, and those on the lists of cold slots. `again`: what lies behind the open part of a slot may
    /// have gone back before, and be another's by now.
    pub fn give_back_empty(&mut self, again: bool) {
        for (number, capacity) in CAPACITY.into_iter().enumerate() {
            let class = &mut self.classes[number];
            let (end, count) = (class.frontier.max(class.opened), class.end);
            let mut next =
                SlotId::from_raw(core::mem::replace(&mut class.cold, SlotId::NONE.raw()));
            class.end = end;
            while next != SlotId::NONE {
                let slot = self.slot(next);
                slot.set_state(HELD);
                // SAFETY: it was on the list, and is on none from now on.
                unsafe { self.give_back_behind(next, 0, again) };
                next = SlotId::from_raw(slot.next.load(Relaxed));
                slot.unlink();
            }
            let address = |index| self.layout.start(SlotId::new(number, index));
            // A wrong address finds its record as long as its granule is the slice's.
            let granule = |at: usize| align_up(at, GRANULE_BYTES).unwrap_or(at);
            let known = granule(address(end)).saturating_sub(address(0)) / capacity;
            let record = |index| self.layout.record(SlotId::new(number, index));
            let known = u32::try_from(known + 1).unwrap_or(count).min(count);
            // SAFETY: slots from the end on are never used; their records are not open.
            unsafe {
                self.slice.give_back(address(end), address(count));
                self.slice.give_back(
                    record(known).max(record(self.classes[number].records)),
                    record(count),
                );
            }
        }
    }

    /// Gives the address space of a slot before its first page and behind some of its pages back for good. `again` as above.
    ///
    /// # Safety
    /// The slot is the caller's, and nothing of it beyond these pages is in use.
    pub unsafe fn give_back_behind(&self, id: SlotId, pages: usize, again: bool) {
        let (start, at) = (self.layout.start(id), self.layout.address(id));
        let opened = self.slot(id).opened.fetch_min(pages as u32, Relaxed) as usize;
        let end = if again { at + opened * PAGE_BYTES } else { start + CAPACITY[id.class()] };
        // SAFETY: passed on from the caller; what is open has not gone back.
        unsafe {
            if !again {
                self.slice.give_back(start, at);
            }
            self.slice.give_back(at + pages * PAGE_BYTES, end);
        }
    }

    /// Slots of each class from here on have never been used.
    pub fn frontiers(&self) -> [u32; CLASSES] {
        self.classes.map(|class| class.frontier)
    }

    /// Puts an empty slot without resident pages on its class's list.
    pub fn put_cold(&mut self, id: SlotId) {
        let slot = self.slot(id);
        slot.unlink();
        slot.next.store(self.classes[id.class()].cold, Relaxed);
        self.classes[id.class()].cold = id.raw();
        slot.set_state(COLD);
    }

    /// Puts an empty slot with resident pages on its class's list and at the
    /// young end of the queue.
    pub fn put_warm(&mut self, id: SlotId, stamp: u32) {
        let slot = self.slot(id);
        let bin = bin(slot.touched.load(Relaxed) as usize);
        let class = &mut self.classes[id.class()];
        let first = SlotId::from_raw(class.bins[bin]);
        class.bins[bin] = id.raw();
        class.filled |= 1 << bin;
        slot.set_bin(bin);
        slot.unlink();
        slot.next.store(first.raw(), Relaxed);
        if first != SlotId::NONE {
            self.slot(first).prev.store(id.raw(), Relaxed);
        }
        slot.set_state(WARM);
        self.enqueue(id, stamp);
    }

    /// Takes a warm slot off its list. It stays in the queue.
    pub fn remove_warm(&mut self, id: SlotId) {
        let slot = self.slot(id);
        let next = SlotId::from_raw(slot.next.load(Relaxed));
        let prev = SlotId::from_raw(slot.prev.load(Relaxed));
        if next != SlotId::NONE {
            self.slot(next).prev.store(prev.raw(), Relaxed);
        }
        if prev != SlotId::NONE {
            self.slot(prev).next.store(next.raw(), Relaxed);
        } else {
            let bin = slot.bin();
            let class = &mut self.classes[id.class()];
            if let Some(head) = class.bins.get_mut(bin) {
                *head = next.raw();
            }
            if next == SlotId::NONE {
                class.filled &= !(1 << bin);
            }
        }
        slot.unlink();
    }

    /// Puts a slot at the young end of the queue of warm memory; where it came
    /// there at the same time already it stays.
    pub fn enqueue(&mut self, id: SlotId, stamp: u32) {
        let slot = self.slot(id);
        if slot.is_queued() && slot.stamp.load(Relaxed) == stamp {
            return;
        }
        self.dequeue(id);
        slot.stamp.store(stamp, Relaxed);
        slot.set_queued(true);
        slot.younger.store(SlotId::NONE.raw(), Relaxed);
        slot.older.store(self.youngest, Relaxed);
        let previous = SlotId::from_raw(self.youngest);
        if previous == SlotId::NONE {
            self.oldest = id.raw();
        } else {
            self.slot(previous).younger.store(id.raw(), Relaxed);
        }
        self.youngest = id.raw();
    }

    /// Takes a slot out of the queue, if it is there.
    pub fn dequeue(&mut self, id: SlotId) {
        let slot = self.slot(id);
        // Written under the lock only: a swap would be a locked instruction for nothing.
        if !slot.is_queued() {
            return;
        }
        slot.set_queued(false);
        let younger = SlotId::from_raw(slot.younger.load(Relaxed));
        let older = SlotId::from_raw(slot.older.load(Relaxed));
        if younger == SlotId::NONE {
            self.youngest = older.raw();
        } else {
            self.slot(younger).older.store(older.raw(), Relaxed);
        }
        if older == SlotId::NONE {
            self.oldest = younger.raw();
        } else {
            self.slot(older).younger.store(younger.raw(), Relaxed);
        }
    }

    /// The slot that has been in the queue the longest, and when it came.
    pub fn oldest(&self) -> Option<(SlotId, u32)> {
        let id = SlotId::from_raw(self.oldest);
        (id != SlotId::NONE).then(|| (id, self.slot(id).stamp.load(Relaxed)))
    }
}

/// The bin of a slot with so many resident pages.
pub fn bin(pages: usize) -> usize {
    (pages.max(1).ilog2() as usize).min(BINS - 1)
}

/// Bytes as whole pages.
pub fn pages_of(bytes: usize) -> usize {
    bytes.div_ceil(PAGE_BYTES)
}
