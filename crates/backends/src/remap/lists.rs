//! Lists of empty slots and the queue of warm memory; all under one lock.

use core::sync::atomic::Ordering::Relaxed;

use spandrel_os::slices::{GRANULE_BYTES, Slice};
use spandrel_os::vm;
use spandrel_pages::{KIB, PAGE_BYTES, align_down, align_up};

use super::STRICT;
use super::accounts::Accounts;
use super::layout::{CAPACITY, CLASSES, Layout, ROOM, SlotId};
use super::slot::{COLD, HELD, Slot, WARM};

/// Warm slots are kept apart by the power of two of their resident pages, ...
const OCTAVES: usize = 26;
/// ... and by this number of equal parts of it.
const PARTS: usize = 4;
/// Lists of warm slots of a class.
pub const BINS: usize = OCTAVES * PARTS;
/// Lists between that of an object and those of slots that are too good for it: these have sixteen times its pages.
const MUCH_MORE: usize = 4 * PARTS;
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
    filled: u128,
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
    /// Cold slots that are open and were opened one by one. Each is a mapping apart, and so is what lies behind.
    open_apart: usize,
    youngest: u32,
    oldest: u32,
}

/// Closes a range. It is mapped anew, without the slice's advice, and gets that again.
///
/// # Safety
/// As for [`vm::close`].
unsafe fn close_small(at: *mut u8, len: usize) -> bool {
    // SAFETY: passed on from the caller.
    unsafe {
        let closed = len == 0 || vm::close(at, len);
        let _ = len == 0 || vm::advise_small(at, len);
        closed
    }
}

/// Whether a slot is open that was opened by itself.
fn is_open_apart(id: SlotId, slot: &Slot) -> bool {
    BATCH[id.class()] == 0 && slot.opened.load(Relaxed) > 0
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
    /// A new object of this number of pages: a warm slot near the size
    /// ([`Lists::take_near`]), else an empty one.
    Near(usize),
    /// As [`Want::Near`], but only a warm slot that has the pages.
    Fitting(usize),
    /// An object that grows: only a warm slot with at least this number of pages.
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
        open_apart: 0,
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
                .warm(class, fitting_bin(pages), BINS)
                .or_else(|| self.cold_or_new(class))
                .or_else(|| self.warm(class, 0, BINS))?,
            Want::Fitting(_) => return None,
            Want::Warm(pages) => self.warm(class, fitting_bin(pages), BINS)?,
            Want::Cold => self.cold_or_new(class).or_else(|| self.warm(class, 0, BINS))?,
        };
        self.slot(id).set_state(HELD);
        Some(id)
    }

    /// Takes the warm slot nearest to a new object of this number of pages, of `class` or the two above it, in state [`HELD`]:
    /// the smallest one that has the pages and no more than twice as many; else the largest one that has more than half of
    /// them; else the smallest larger one, but none that has [`MUCH_MORE`]. (What is spare behind an object serves no other: a larger object would
    /// take as much anew.)
    pub fn take_near(&mut self, class: usize, pages: usize) -> Option<SlotId> {
        let fitting = fitting_bin(pages);
        let least = bin(pages).saturating_sub(PARTS - 1);
        let found = self
            .smallest(class, fitting, fitting + PARTS)
            .or_else(|| self.largest(class, least, fitting))
            .or_else(|| self.smallest(class, fitting, fitting + MUCH_MORE));
        self.take_found(found)
    }

    /// As [`Lists::take_near`], but only a slot that has the pages and no more than half as many beyond.
    pub fn take_fitting(&mut self, class: usize, pages: usize) -> Option<SlotId> {
        let fitting = fitting_bin(pages);
        let found = self.smallest(class, fitting, fitting + PARTS / 2);
        self.take_found(found)
    }

    /// The first bin that is not empty from `from` up to, not including, `to`, of `class` and the two above it, and its class.
    fn smallest(&self, class: usize, from: usize, to: usize) -> Option<(usize, usize)> {
        let of = |class| (self.filled_within(class, from, to).trailing_zeros() as usize, class);
        near(class).map(of).min().filter(|(bin, _)| *bin < to)
    }

    /// As [`Lists::smallest`], the last one.
    fn largest(&self, class: usize, from: usize, to: usize) -> Option<(usize, usize)> {
        let of = |class| {
            let bin = self.filled_within(class, from, to).checked_ilog2()?;
            Some((bin as usize, class))
        };
        near(class).filter_map(of).max_by_key(|(bin, _)| *bin)
    }

    fn take_found(&mut self, found: Option<(usize, usize)>) -> Option<SlotId> {
        let (bin, class) = found?;
        let id = self.warm(class, bin, bin + 1)?;
        self.slot(id).set_state(HELD);
        Some(id)
    }

    /// Bits of the bins from `from` up to, not including, `to` that are not empty.
    fn filled_within(&self, class: usize, from: usize, to: usize) -> u128 {
        let below = |bin: usize| 1u128.checked_shl(bin as u32).map_or(u128::MAX, |bit| bit - 1);
        self.classes[class].filled & below(to) & !below(from)
    }

    /// Takes a warm slot off the first list that has one, from bin `from` up to, not including, `to`.
    fn warm(&mut self, class: usize, from: usize, to: usize) -> Option<SlotId> {
        let bin = self.filled_within(class, from, to).trailing_zeros() as usize;
        let id = SlotId::from_raw(*self.classes[class].bins.get(bin)?);
        self.remove_warm(id);
        Some(id)
    }

    fn cold_or_new(&mut self, class: usize) -> Option<SlotId> {
        let head = SlotId::from_raw(self.classes[class].cold);
        if head != SlotId::NONE {
            let slot = self.slot(head);
            self.classes[class].cold = slot.next.load(Relaxed);
            slot.unlink();
            self.open_apart -= usize::from(is_open_apart(head, slot));
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

    /// Closes slots that hold nothing, and what lies between others, and opens slots as far as they are used from now on. `most`: slots of each kind at most,
    /// as each is a mapping apart from then on.
    pub fn close_empty(&mut self, most: usize) {
        self.strict = true;
        let mut left = most;
        for (number, capacity) in CAPACITY.into_iter().enumerate() {
            let class = self.classes[number];
            let id = |index| SlotId::new(number, index);
            let many = class.opened.saturating_sub(class.frontier) as usize;
            let first = self.layout.start(id(class.frontier)) as *mut u8;
            // SAFETY: slots from the frontier on hold nothing, and the lock is held.
            if many > 0 && unsafe { close_small(first, many * capacity) } {
                self.classes[number].opened = class.frontier;
            }
            // Slots were opened whole up to there: also before their first page and behind their room. Where room was given back for good, that may be another's by now.
            let whole = class.opened.min(class.frontier).min(most as u32);
            let whole = if super::reserve::has_ended() { 0 } else { whole };
            let mut from = self.layout.start(id(0));
            for index in 0..whole {
                let at = self.layout.address(id(index));
                // SAFETY: no slot reaches there.
                unsafe { close_small(from as *mut u8, at.saturating_sub(from)) };
                from = at + ROOM[number];
            }
            let end = self.layout.start(id(whole));
            if whole > 0 {
                // SAFETY: as above.
                unsafe { close_small(from as *mut u8, end.saturating_sub(from)) };
            }
            let mut next = SlotId::from_raw(class.cold);
            while next != SlotId::NONE && left > 0 {
                let slot = self.slot(next);
                let at = self.layout.address(next) as *mut u8;
                let pages = slot.opened.load(Relaxed) as usize;
                // SAFETY: slots on the list hold nothing, and the lock is held.
                if pages > 0 && unsafe { close_small(at, pages * PAGE_BYTES) } {
                    self.open_apart -= usize::from(is_open_apart(next, slot));
                    slot.opened.store(0, Relaxed);
                }
                next = SlotId::from_raw(slot.next.load(Relaxed));
                left -= 1;
            }
        }
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
                self.open_apart -= usize::from(is_open_apart(next, slot));
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

    /// Cold slots that are open and were opened one by one.
    pub fn open_apart(&self) -> usize {
        self.open_apart
    }

    /// Closes at most `most` of these; how many.
    pub fn close_apart(&mut self, most: usize) -> usize {
        let mut closed = 0;
        for class in (0..CLASSES).filter(|class| BATCH[*class] == 0) {
            let mut next = SlotId::from_raw(self.classes[class].cold);
            while next != SlotId::NONE && closed < most {
                let slot = self.slot(next);
                let pages = slot.opened.load(Relaxed) as usize;
                let at = self.layout.address(next) as *mut u8;
                // SAFETY: slots on the list hold nothing, and the lock is held.
                if pages > 0 && slot.splits() == 0 && unsafe { close_small(at, pages * PAGE_BYTES) }
                {
                    slot.opened.store(0, Relaxed);
                    self.open_apart -= 1;
                    closed += 1;
                }
                next = SlotId::from_raw(slot.next.load(Relaxed));
            }
        }
        closed
    }

    /// Puts an empty slot without resident pages on its class's list.
    pub fn put_cold(&mut self, id: SlotId) {
        let slot = self.slot(id);
        self.open_apart += usize::from(is_open_apart(id, slot));
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

/// The classes that a new object may take a warm slot of.
fn near(class: usize) -> core::ops::Range<usize> {
    class..CLASSES.min(class + 3)
}

/// The bin of a slot with this number of resident pages.
pub fn bin(pages: usize) -> usize {
    let pages = pages.max(1);
    let octave = pages.ilog2() as usize;
    let part = ((pages * PARTS) >> octave) % PARTS;
    (octave * PARTS + part).min(BINS - 1)
}

/// The first bin of which each slot has this number of pages.
fn fitting_bin(pages: usize) -> usize {
    pages.checked_sub(1).filter(|fewer| *fewer > 0).map_or(0, |fewer| bin(fewer) + 1).min(BINS - 1)
}

/// Bytes as whole pages.
pub fn pages_of(bytes: usize) -> usize {
    bytes.div_ceil(PAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_in_order_and_a_fitting_one_has_the_pages() {
        let sizes = || (1..5000).chain((13..25).flat_map(|bits| [(1 << bits) - 1, 1 << bits]));
        assert!(sizes().map(bin).is_sorted());
        assert!(bin(usize::MAX / PARTS) < BINS && bin(CAPACITY[CLASSES - 1] / PAGE_BYTES) < BINS);
        for pages in 1..600 {
            let fits = |slot: usize| bin(slot) >= fitting_bin(pages);
            assert!((1..pages).all(|slot| !fits(slot)), "{pages}");
            assert!((pages + pages / PARTS + 1..4 * pages).all(fits), "{pages}");
        }
    }
}
