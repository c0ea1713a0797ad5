//! The address space of a hosted allocator: its slice, handed out in ranges.
//!
//! What the allocator believes to be `mmap` and `munmap` ends here. A range
//! that is given back becomes a bare reservation at once, so that its memory
//! is the kernel's again while the addresses stay the slice's.

use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use spandrel_os::slices::Slice;
use spandrel_os::{slices, vm};
use spandrel_pages::{AllocatorId, MIB, PAGE_BYTES, TIB, align_up};
use spandrel_sync::Lock;

/// Most free ranges that are remembered. The kernel's limit on mappings
/// (65,530) is reached at half as many holes.
const RANGES: usize = 32 << 10;
/// Head of the slice, where the free ranges are kept.
const HEAD_BYTES: usize = RANGES * size_of::<Range>();
/// Ranges are placed on multiples of their size up to this: allocators ask for
/// aligned chunks, and would otherwise ask twice and trim.
const MOST_ALIGN: usize = 4 * MIB;

/// Below this offset in the slice huge pages are not advised.
const BASE_PAGES_BYTES: usize = 16 * MIB;

/// Lowest of the three address bits by which tcmalloc tells uses of memory apart.
const TAG_SHIFT: u32 = 42;

/// The tag of an address; see [`Space::tagged`].
pub fn tag_of(address: usize) -> u8 {
    (address >> TAG_SHIFT) as u8 & 7
}

/// A free range of the slice.
#[derive(Clone, Copy)]
#[repr(C)]
struct Range {
    from: usize,
    to: usize,
}

/// One allocator's address space.
pub struct Space {
    owner: AllocatorId,
    /// What the address bits from [`TAG_SHIFT`] are; none: anything.
    tag: Option<u8>,
    /// First address of the slice; 0 before there is one.
    base: AtomicUsize,
    inner: Lock<Inner>,
}

struct Inner {
    started: bool,
    base: usize,
    end: usize,
    /// Free ranges, ascending and never adjacent; lies in the slice's head.
    free: *mut Range,
    count: usize,
}

// SAFETY: `free` points to memory that only the holder of the lock uses.
unsafe impl Send for Inner {}

impl Inner {
    /// The free ranges.
    fn ranges(&self) -> &[Range] {
        if self.free.is_null() {
            return &[];
        }
        // SAFETY: the first `count` ranges are initialised, `count <= RANGES`.
        unsafe { core::slice::from_raw_parts(self.free, self.count) }
    }

    fn range_mut(&mut self, index: usize) -> Option<&mut Range> {
        // SAFETY: as above; the index is checked.
        (index < self.count).then(|| unsafe { &mut *self.free.add(index) })
    }

    fn start(&mut self, owner: AllocatorId, tag: Option<u8>) {
        self.started = true;
        let slice = match tag {
            None => slices::claim(owner, TIB, slices::GRANULE_BYTES),
            Some(tag) => slices::claim_among(owner, TIB, |n| tag_of(n * TIB) == tag),
        };
        let Some(slice) = slice else { return };
        // SAFETY: the head of a slice that was just claimed. Where the kernel has huge pages wherever one fits, a small program would have
        // some for the tables of an allocator.
        let opened = unsafe {
            let _ = vm::advise_small(slice.base as *mut u8, BASE_PAGES_BYTES.min(slice.len));
            vm::open(slice.base as *mut u8, HEAD_BYTES)
        };
        if !opened {
            return;
        }
        self.base = slice.base;
        self.end = slice.base + slice.len;
        self.free = slice.base as *mut Range;
        self.insert_at(0, Range { from: slice.base + HEAD_BYTES, to: self.end });
    }

    /// Bytes of what has been handed out that are resident.
    fn resident(&self) -> usize {
        let mut from = self.base + HEAD_BYTES;
        let mut sum = 0;
        for range in self.ranges() {
            let len = range.from.saturating_sub(from);
            sum += vm::resident(from as *mut u8, len).unwrap_or(0);
            from = range.to;
        }
        sum
    }

    fn insert_at(&mut self, index: usize, range: Range) -> bool {
        if self.count >= RANGES || index > self.count {
            return false;
        }
        // SAFETY: there is room for one more range, and `index <= count`.
        unsafe {
            let at = self.free.add(index);
            ptr::copy(at, at.add(1), self.count - index);
            at.write(range);
        }
        self.count += 1;
        true
    }

    fn remove_at(&mut self, index: usize) {
        if index < self.count {
            // SAFETY: `index < count`.
            unsafe {
                let at = self.free.add(index);
                ptr::copy(at.add(1), at, self.count - index - 1);
            }
            self.count -= 1;
        }
    }

    /// Takes `len` bytes, lowest first: low addresses keep page tables dense.
    fn take(&mut self, len: usize) -> Option<usize> {
        let align = (1usize << len.ilog2()).clamp(PAGE_BYTES, MOST_ALIGN);
        let (index, at) = self.ranges().iter().enumerate().find_map(|(index, range)| {
            let at = align_up(range.from, align)?;
            (at.checked_add(len)? <= range.to).then_some((index, at))
        })?;
        self.carve(index, at, len).then_some(at)
    }

    /// Takes the `len` bytes from `at`, if they are free.
    fn take_at(&mut self, at: usize, len: usize) -> bool {
        let Some(end) = at.checked_add(len) else { return false };
        let index = self.ranges().partition_point(|range| range.to < end);
        self.ranges().get(index).is_some_and(|range| range.from <= at && end <= range.to)
            && self.carve(index, at, len)
    }

    /// Cuts `len` bytes from `at` out of a free range that contains them.
    fn carve(&mut self, index: usize, at: usize, len: usize) -> bool {
        let Some(range) = self.range_mut(index) else { return false };
        let (from, to) = (range.from, range.to);
        match (from == at, to == at + len) {
            (true, true) => self.remove_at(index),
            (true, false) => range.from = at + len,
            (false, true) => range.to = at,
            (false, false) => {
                range.to = at;
                if !self.insert_at(index + 1, Range { from: at + len, to }) {
                    if let Some(range) = self.range_mut(index) {
                        range.to = to;
                    }
                    return false;
                }
            }
        }
        true
    }

    /// Returns bytes to the free ranges. When there are too many ranges the
    /// addresses are lost; their memory is not.
    fn give(&mut self, from: usize, to: usize) {
        let index = self.ranges().partition_point(|range| range.to < from);
        let joins_below = self.ranges().get(index).is_some_and(|range| range.to == from);
        if joins_below {
            let above = self.ranges().get(index + 1).copied();
            let joins_above = above.is_some_and(|range| range.from == to);
            if let Some(range) = self.range_mut(index) {
                range.to = above.filter(|_| joins_above).map_or(to, |range| range.to);
            }
            if joins_above {
                self.remove_at(index + 1);
            }
            return;
        }
        match self.range_mut(index) {
            Some(range) if range.from == to => range.from = from,
            _ => {
                self.insert_at(index, Range { from, to });
            }
        }
    }
}

impl Space {
    /// Bytes of what the allocator has mapped that are resident. The kernel looks at each page of it.
    pub fn resident(&self) -> usize {
        if self.base.load(Relaxed) == 0 { 0 } else { self.inner.lock().resident() }
    }

    /// A space without a slice; it claims one at the first request.
    pub const fn new(owner: AllocatorId) -> Self {
        let inner = Inner { started: false, base: 0, end: 0, free: ptr::null_mut(), count: 0 };
        Space { owner, tag: None, base: AtomicUsize::new(0), inner: Lock::new(inner) }
    }

    /// As [`Space::new`]; all addresses have this tag.
    #[cfg_attr(not(feature = "tcmalloc"), allow(dead_code))]
    pub const fn tagged(owner: AllocatorId, tag: u8) -> Self {
        Space { tag: Some(tag), ..Space::new(owner) }
    }

    /// Claims the slice, if that has not been tried; whether there is one.
    pub fn prepare(&self) -> bool {
        let mut inner = self.inner.lock();
        if !inner.started {
            inner.start(self.owner, self.tag);
            self.base.store(inner.base, Relaxed);
        }
        inner.base != 0
    }

    /// Whether a range lies in the slice.
    pub fn contains(&self, at: usize, len: usize) -> bool {
        let inner = self.inner.lock();
        at >= inner.base && at.checked_add(len).is_some_and(|end| end <= inner.end)
    }

    /// Maps `len` bytes, zero and accessible, or merely reserved. Null: the
    /// slice is full or could not be had. There are no hints: what an allocator
    /// likes in a whole address space does not apply in a slice.
    pub fn map(&self, len: usize, accessible: bool) -> *mut u8 {
        let Some(len) = align_up(len, PAGE_BYTES).filter(|len| *len > 0) else {
            return ptr::null_mut();
        };
        if !self.prepare() {
            return ptr::null_mut();
        }
        let mut inner = self.inner.lock();
        let Some(at) = inner.take(len) else { return ptr::null_mut() };
        // The range is this call's alone: the system call needs no lock.
        drop(inner);
        let at = at as *mut u8;
        // SAFETY: the range was free in a slice of ours: a bare reservation.
        if accessible && !unsafe { vm::open(at, len) } {
            self.inner.lock().give(at as usize, at as usize + len);
            return ptr::null_mut();
        }
        at
    }

    /// Maps the `len` bytes from `at`, as [`Space::map`]; false: they are not
    /// all free, or not in the slice.
    #[cfg_attr(not(feature = "tcmalloc"), allow(dead_code))]
    pub fn map_at(&self, at: usize, len: usize, accessible: bool) -> bool {
        let Some(len) = align_up(len, PAGE_BYTES).filter(|len| *len > 0) else { return false };
        if !at.is_multiple_of(PAGE_BYTES) || !self.prepare() || !self.inner.lock().take_at(at, len)
        {
            return false;
        }
        // SAFETY: as in `map`.
        if accessible && !unsafe { vm::open(at as *mut u8, len) } {
            self.inner.lock().give(at, at + len);
            return false;
        }
        true
    }

    /// The address from which huge pages are welcome.
    pub fn huge_from(&self) -> usize {
        self.base.load(Relaxed) + BASE_PAGES_BYTES
    }

    /// Takes back a range; false: it is not the slice's, or the kernel refused.
    ///
    /// # Safety
    /// The range is no longer in use.
    pub unsafe fn unmap(&self, at: *mut u8, len: usize) -> bool {
        let Some(len) = align_up(len, PAGE_BYTES) else { return false };
        let from = at as usize;
        if len == 0 || slices::owner(from) != self.owner {
            return false;
        }
        // SAFETY: passed on from the caller; the range lies in our slice.
        if !unsafe { vm::close(at, len) } {
            return false;
        }
        let small = self.huge_from().saturating_sub(from).min(len);
        if small > 0 {
            // What is closed is mapped anew, without advice.
            // SAFETY: as above.
            let _ = unsafe { vm::advise_small(at, small) };
        }
        self.inner.lock().give(from, from + len);
        true
    }

    /// Gives all free ranges back, reservation and all, but for `keep` bytes: the allocator finds no more.
    pub fn give_back_reserve(&self, keep: usize) {
        let mut inner = self.inner.lock();
        let slice = Slice { base: inner.base, len: inner.end.saturating_sub(inner.base) };
        let mut kept = 0;
        for index in 0..inner.count {
            let Some(range) = inner.range_mut(index) else { break };
            let keeps = keep.saturating_sub(kept).min(range.to - range.from);
            let (from, to) = (range.from + keeps, range.to);
            (range.to, kept) = (from, kept + keeps);
            // SAFETY: it was free, and is no range of the slice's any more.
            unsafe { slice.give_back(from, to) };
        }
        while let Some(index) = inner.ranges().iter().position(|range| range.from == range.to) {
            inner.remove_at(index);
        }
    }

    /// Takes the lock before a `fork`.
    pub fn fork_prepare(&self) {
        self.inner.acquire();
    }

    /// Gives the lock back after a `fork`.
    ///
    /// # Safety
    /// The calling thread called [`Space::fork_prepare`] before the fork.
    pub unsafe fn fork_done(&self) {
        // SAFETY: passed on from the caller.
        unsafe { self.inner.release() }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn unmap(space: &Space, from: usize, to: usize) -> bool {
        // SAFETY: the tests give back ranges that they own and do not use.
        unsafe { space.unmap(from as *mut u8, to - from) }
    }

    #[test]
    fn what_is_unmapped_is_zero_when_mapped_again() {
        let space = Space::new(AllocatorId::Tcmalloc);
        let at = space.map(3 * MIB, true);
        // SAFETY: the range was just mapped with this length.
        unsafe { at.write_bytes(7, 3 * MIB) };
        assert!(unmap(&space, at as usize, at as usize + 3 * MIB));
        let again = space.map(3 * MIB, true);
        assert_eq!(again, at, "lowest first");
        // SAFETY: within the range just mapped.
        assert!((0..3 * MIB).step_by(512).all(|i| unsafe { again.add(i).read() } == 0));
    }

    #[test]
    fn the_slice_contains_what_it_handed_out_and_nothing_else() {
        let space = Space::new(AllocatorId::Tcmalloc);
        let at = space.map(MIB, false) as usize;
        assert!(space.contains(at, MIB));
        assert!(!space.contains(0x1000, MIB));
        assert!(!space.contains(at, usize::MAX));
    }

    #[test]
    fn what_is_not_the_slices_is_not_unmapped() {
        let space = Space::new(AllocatorId::Tcmalloc);
        let mut local = [0u8; 1];
        let at = local.as_mut_ptr() as usize;
        assert!(!unmap(&space, at, at + PAGE_BYTES));
        assert!(space.map(usize::MAX, false).is_null());
        assert!(space.map(2 * TIB, false).is_null());
    }

    #[test]
    fn a_tagged_space_maps_where_it_is_asked_to() {
        let space = Space::tagged(AllocatorId::Tcmalloc, 3);
        let first = space.map(MIB, false) as usize;
        assert_eq!(tag_of(first), 3);
        let at = first + 64 * MIB;
        assert!(space.map_at(at, 3 * MIB, true));
        // SAFETY: the range was just mapped with this length.
        unsafe { (at as *mut u8).write_bytes(7, 3 * MIB) };
        assert!(!space.map_at(at + 2 * MIB, 2 * MIB, false), "not all of it is free");
        assert!(!space.map_at(at - MIB, 2 * MIB, false), "nor here");
        assert!(!space.map_at(at + 1, MIB, false), "not a page");
        assert!(!space.map_at(first + TIB, MIB, false), "not in the slice");
        assert!(!space.map_at(usize::MAX & !0xfff, MIB, false), "not an address");
        assert!(unmap(&space, at, at + MIB));
        assert!(space.map_at(at, MIB, false));
        assert!(unmap(&space, at, at + 3 * MIB) && unmap(&space, first, first + MIB));
        assert_eq!(space.inner.lock().count, 1, "everything joins again");
    }

    /// One for all cases: each space claims a tebibyte.
    static SPACE: Space = Space::new(AllocatorId::Tcmalloc);

    proptest! {
        #[test]
        fn ranges_never_overlap_and_come_back_whole(
            steps in prop::collection::vec((any::<bool>(), 1usize..600, any::<usize>()), 1..80),
        ) {
            let mut live: Vec<(usize, usize)> = Vec::new();
            for (map, pages, pick) in steps {
                if map || live.is_empty() {
                    let len = pages * PAGE_BYTES;
                    let at = SPACE.map(len, false) as usize;
                    prop_assert!(at != 0);
                    prop_assert!(live.iter().all(|(from, to)| at + len <= *from || at >= *to));
                    live.push((at, at + len));
                } else {
                    let (from, to) = live.swap_remove(pick % live.len());
                    // Allocators also give back parts of what they were given.
                    let middle = from + (to - from) / 2 / PAGE_BYTES * PAGE_BYTES;
                    if middle > from {
                        prop_assert!(unmap(&SPACE, from, middle));
                    }
                    prop_assert!(unmap(&SPACE, middle, to));
                }
            }
            for (from, to) in live {
                prop_assert!(unmap(&SPACE, from, to));
            }
            prop_assert_eq!(SPACE.inner.lock().count, 1, "everything joins again");
        }
    }
}
