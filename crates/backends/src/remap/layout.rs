//! How the slice of the `remap` backend is divided into slots.
//!
//! Every object has a slot of its own: address space with room to grow. Slots
//! come in classes of fixed capacity, each class in a region of its own, so
//! that an address names its slot by two shifts.
//!
//! ```text
//! region      0            1        2         3          4 5        6 7
//! capacity    128 KiB      2 MiB    32 MiB    512 MiB    8 GiB      128 GiB
//! (of 8 TiB)  1 TiB        1 TiB    1 TiB     1 TiB      2 TiB      2 TiB
//! ```
//!
//! Region 0 begins with the slot records of all classes. A smaller slice has
//! the same regions in proportion, with fewer slots in each.

use core::ops::Range;

use spandrel_pages::{GIB, KIB, MIB, PAGE_BYTES, TIB, align_up};

use super::slot::Slot;

/// Address space wanted; a power of two.
pub const WANTED_BYTES: usize = 8 * TIB;
/// Least address space that makes sense: it holds slots of the three smaller classes.
pub const LEAST_BYTES: usize = 256 * MIB;
/// Number of slot classes.
pub const CLASSES: usize = 6;
/// Bytes of address space in a slot of each class. Sixteenfold steps: an object
/// that doubles is moved once in four doublings, always by page tables.
pub const CAPACITY: [usize; CLASSES] =
    [128 * KIB, 2 * MIB, 32 * MIB, 512 * MIB, 8 * GIB, 128 * GIB];
/// Bytes from a slot's first page to its end, at least.
pub const ROOM: [usize; CLASSES] = {
    let mut room = CAPACITY;
    room[SHIFTED] -= (SHIFTS - 1) * PAGE_BYTES;
    room
};
/// The class whose slots begin at different pages. Its objects are too small for huge pages, and each of its slots has a page
/// table of its own: if all began with the table's first entry, a program that walks through many objects at once would find their
/// entries, and the translations of their pages, in the few sets of each cache that belong to one place.
const SHIFTED: usize = 1;
/// Different first pages: of 8 pages the entries are one line, and caches of translations have 128 or 256 sets.
const SHIFTS: usize = 128;
/// Pages that a slot's first page is behind its neighbour's: odd, and the golden ratio of all, so that those of a row lie far apart.
const SHIFT_STEP: usize = 79;
/// An object aligned to this or less keeps its alignment when it outgrows its slot.
pub const ALIGN_KEPT_BYTES: usize = PAGE_BYTES;
/// A new object gets a slot of at least this many times its size.
const ROOM_FACTOR: usize = 4;

const REGIONS: usize = 8;
const CLASS_OF_REGION: [usize; REGIONS] = [0, 1, 2, 3, 4, 4, 5, 5];

/// Names a slot: class and index within the class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotId(u32);

impl SlotId {
    const INDEX_BITS: u32 = 28;
    /// No slot.
    pub const NONE: Self = SlotId(u32::MAX);

    /// The slot of a class with an index below 2^28.
    pub const fn new(class: usize, index: u32) -> Self {
        SlotId((class as u32) << Self::INDEX_BITS | index)
    }

    /// The slot's class.
    pub const fn class(self) -> usize {
        (self.0 >> Self::INDEX_BITS) as usize
    }

    /// The slot's index within its class.
    pub const fn index(self) -> u32 {
        self.0 & ((1 << Self::INDEX_BITS) - 1)
    }

    /// As a link.
    pub const fn raw(self) -> u32 {
        self.0
    }

    /// From a link.
    pub const fn from_raw(raw: u32) -> Self {
        SlotId(raw)
    }
}

/// The smallest class whose slots leave an object of `size` bytes room to grow;
/// beyond the largest such class, the smallest in which it fits at all.
#[inline]
pub fn class_for(size: usize) -> Option<usize> {
    let roomy = size.saturating_mul(ROOM_FACTOR);
    CAPACITY.iter().position(|capacity| roomy <= *capacity).or_else(|| tight_class_for(size))
}

/// The smallest class in which an object of `size` bytes fits.
pub fn tight_class_for(size: usize) -> Option<usize> {
    ROOM.iter().position(|room| size <= *room)
}

/// Whether a slot has room for huge pages, which it begins with.
pub const fn has_huge(id: SlotId) -> bool {
    id.class() > SHIFTED
}

/// Whether objects of this alignment may begin in slots of a class.
pub const fn can_align(class: usize, align: usize) -> bool {
    align <= PAGE_BYTES || (class != SHIFTED && align <= CAPACITY[class])
}

/// As [`class_for`], for an object with this alignment: a small one has a small slot, as long as slots of that class are so aligned.
#[inline]
pub fn class_aligned(size: usize, align: usize) -> Option<usize> {
    (class_for(size)?..CLASSES).find(|class| can_align(*class, align))
}

/// What finding a slot needs to know of a region.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Home {
    /// First slot of the region's class.
    slots: usize,
    /// First record of the class.
    records: usize,
    /// Number of slots of the class.
    count: u32,
    class: u8,
    /// log2 of the bytes of a slot.
    slot_bits: u8,
    /// Different first pages, less one.
    shifts: u8,
}

impl Home {
    const NONE: Self = Home { slots: 0, records: 0, count: 0, class: 0, slot_bits: 0, shifts: 0 };
}

/// Where each class lies; fixed when the backend starts.
///
/// What finds a slot of the smaller classes is one line of the cache: between two
/// reallocations a program may write as much as its cache holds.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Layout {
    /// First address of the slice.
    base: usize,
    /// log2 of the bytes of a region.
    region_bits: u32,
    homes: [Home; REGIONS],
    /// First slot of each class.
    slots: [usize; CLASSES],
    /// First record of each class.
    records: [usize; CLASSES],
    /// Number of slots of each class.
    counts: [u32; CLASSES],
}

impl Layout {
    /// Nothing: no address belongs to it.
    pub const EMPTY: Self = Layout {
        base: 0,
        region_bits: 0,
        homes: [Home::NONE; REGIONS],
        slots: [0; CLASSES],
        records: [0; CLASSES],
        counts: [0; CLASSES],
    };

    /// Divides the `len` bytes from `base`; `len` is a power of two of at least
    /// [`LEAST_BYTES`].
    pub fn new(base: usize, len: usize) -> Self {
        let region = len / REGIONS;
        let mut layout = Layout { base, region_bits: region.trailing_zeros(), ..Self::EMPTY };
        for (class, capacity) in CAPACITY.into_iter().enumerate() {
            let regions = CLASS_OF_REGION.iter().filter(|c| **c == class).count();
            let first = CLASS_OF_REGION.iter().position(|c| *c == class).unwrap_or(0);
            layout.slots[class] = base + first * region;
            layout.counts[class] = (regions * region / capacity) as u32;
        }
        let mut at = base;
        for class in 0..CLASSES {
            layout.records[class] = at;
            let bytes = layout.counts[class] as usize * size_of::<Slot>();
            // Records of each class begin on a page of their own, so that each
            // class opens its records independently.
            at = align_up(at + bytes, 64 * KIB).unwrap_or(usize::MAX);
        }
        let taken = align_up(at - base, CAPACITY[0]).unwrap_or(region).min(region);
        layout.slots[0] += taken;
        layout.counts[0] -= (taken / CAPACITY[0]) as u32;
        layout.homes = CLASS_OF_REGION.map(|class| Home {
            slots: layout.slots[class],
            records: layout.records[class],
            count: layout.counts[class],
            class: class as u8,
            slot_bits: CAPACITY[class].trailing_zeros() as u8,
            shifts: shifts(class) as u8,
        });
        layout
    }

    /// Number of slots of a class.
    pub fn count(&self, class: usize) -> u32 {
        self.counts[class]
    }

    /// Address of a slot's first page.
    pub fn address(&self, id: SlotId) -> usize {
        self.start(id) + shift(id.index() as usize, shifts(id.class()))
    }

    /// First address of a slot.
    pub fn start(&self, id: SlotId) -> usize {
        self.slots[id.class()] + id.index() as usize * CAPACITY[id.class()]
    }

    /// Address of the record of a slot.
    pub fn record(&self, id: SlotId) -> usize {
        self.records[id.class()] + id.index() as usize * size_of::<Slot>()
    }

    /// The slot that an address lies in; `None`: it lies in none.
    pub fn slot_around(&self, address: usize) -> Option<SlotId> {
        let home = self.homes.get(address.wrapping_sub(self.base) >> self.region_bits)?;
        let index = address.checked_sub(home.slots)? >> home.slot_bits;
        (index < home.count as usize).then(|| SlotId::new(home.class as usize, index as u32))
    }

    /// The addresses of all records.
    pub fn records(&self) -> Range<usize> {
        let last = CLASSES - 1;
        let end = self.record(SlotId::new(last, self.counts[last]));
        self.base..align_up(end, PAGE_BYTES).unwrap_or(end)
    }

    /// The slot that an address lies in, the address of its record, and the bytes from the slot's first page to the address
    /// (wrapped, where it lies before that); `None` for all other addresses.
    #[inline(always)]
    pub fn slot_at(&self, address: usize) -> Option<(SlotId, usize, usize)> {
        let region = address.wrapping_sub(self.base) >> self.region_bits;
        let home = self.homes.get(region)?;
        let offset = address.wrapping_sub(home.slots);
        let index = offset >> home.slot_bits;
        (index < home.count as usize).then(|| {
            let id = SlotId::new(home.class as usize, index as u32);
            let first = (index << home.slot_bits) + shift(index, home.shifts.into());
            (id, home.records + index * size_of::<Slot>(), offset.wrapping_sub(first))
        })
    }
}

/// Bytes from a slot's start to its first page.
#[inline(always)]
const fn shift(index: usize, shifts: usize) -> usize {
    ((index * SHIFT_STEP) & shifts) * PAGE_BYTES
}

/// Different first pages of the slots of a class, less one.
const fn shifts(class: usize) -> usize {
    if class == SHIFTED { SHIFTS - 1 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_its_slot_in_slices_of_every_size() {
        let mut len = LEAST_BYTES;
        while len <= WANTED_BYTES {
            let layout = Layout::new(1 << 44, len);
            let mut end_of_previous = layout.records[CLASSES - 1];
            for (class, capacity) in CAPACITY.into_iter().enumerate() {
                let count = layout.count(class);
                for index in [0, 1, count / 2, count.saturating_sub(1)] {
                    if index >= count {
                        continue;
                    }
                    let id = SlotId::new(class, index);
                    let at = layout.address(id);
                    let start = layout.start(id);
                    assert!(start >= end_of_previous && start + capacity <= (1 << 44) + len);
                    assert!(at >= start && at + ROOM[class] <= start + capacity);
                    let aligned = if can_align(class, capacity) { capacity } else { PAGE_BYTES };
                    assert!(at.is_multiple_of(aligned.min(len / REGIONS)));
                    let record = layout.record(id);
                    assert_eq!(layout.slot_at(at), Some((id, record, 0)));
                    assert_eq!(layout.slot_at(at + 16), Some((id, record, 16)));
                    assert_eq!(layout.slot_around(start + capacity - 1), Some(id));
                    assert!(layout.records().contains(&record));
                    let is_before = |(other, _, within)| other != id || within > capacity;
                    assert!(layout.slot_at(at - 1).is_none_or(is_before));
                    assert!(layout.record(id) + size_of::<Slot>() <= layout.slots[0]);
                }
                if count > 0 {
                    end_of_previous = layout.start(SlotId::new(class, count - 1)) + capacity;
                }
            }
            assert_eq!(layout.slot_at(1 << 44), None, "records lie there");
            assert_eq!(layout.slot_around(1 << 44), None);
            assert_eq!(layout.slot_at((1 << 44) + len), None);
            assert_eq!(layout.slot_at((1 << 44) - CAPACITY[0]), None);
            assert!(layout.count(0) >= 64 && layout.count(1) >= 16 && layout.count(2) >= 1);
            len *= 2;
        }
    }

    #[test]
    fn new_objects_have_room() {
        assert_eq!(class_for(1), Some(0));
        assert_eq!(class_for(128 * KIB), Some(1));
        assert_eq!(class_for(8 * MIB), Some(2));
        assert_eq!(class_for(8 * MIB + 1), Some(3));
        assert_eq!(class_for(512 * KIB), Some(1));
        assert_eq!(class_aligned(512 * KIB, PAGE_BYTES), Some(1));
        assert_eq!(class_aligned(512 * KIB, 2 * PAGE_BYTES), Some(2));
        assert_eq!(class_aligned(PAGE_BYTES, 128 * KIB), Some(0));
        assert_eq!(class_aligned(PAGE_BYTES, 256 * KIB), Some(2));
        assert_eq!(class_aligned(1, 256 * GIB), None);
        assert_eq!(tight_class_for(2 * MIB), Some(2));
        assert_eq!(class_for(100 * GIB), Some(5));
        assert_eq!(class_for(129 * GIB), None);
        assert_eq!(class_for(usize::MAX), None);
    }
}
