//! Size classes: which sizes objects have, and how many share a span.
//!
//! To 128 B every multiple of 16, then eight classes to an octave, up to
//! 256 KiB. Larger objects are spans of their own.
//!
//! If all objects of 8 KiB began with a page, the same place of each would fall into the same few lines of a cache, and a
//! program that walks through many of them at once would find none again. So above 2 KiB, where nothing more precise is
//! required, objects begin at different lines. Where objects are whole pages a request is served from behind the beginning
//! of one, as far as it leaves room. Else the first one of a span begins at any line of what the span has left over.
//!
//! Of objects so small that a cache line holds several each size has a class for each *home*. A
//! cache has a home, by its processor or thread, and serves requests from the classes of that home
//! alone, whatever else is given back to it: or two threads that were handed neighbours would each
//! go on with them, and their processors pass the line to and fro (passive false sharing). The
//! classes of one size differ in their lowest bits only, so that a cache has the class of its own
//! home in the same place as every other cache has its.

use core::iter::successors;

use crate::stack::Stack;
use spandrel_pages::{GOLDEN, HEAP_PAGE_BYTES, KIB, LINE_BYTES, MIN_ALIGN, PAGE_BYTES, spread};

/// Largest size that has a class.
pub const SMALL_MAX: usize = 256 * KIB;
/// Homes of small objects.
pub const HOMES: usize = 8;
/// The first class of those that have homes: 16, 32 and 48 bytes.
pub const HOMED: usize = 96;
/// Above all classes; number 0 means none, and some below [`HOMED`] are not in use.
pub const CLASSES: usize = HOMED + 3 * HOMES;
/// Above all classes without homes.
const PLAIN_END: usize = 1 + 5 + 11 * 8;
/// Sizes to here are looked up in a table of one byte per 16 bytes.
pub const TABLE_MAX: usize = 1024;
/// At most this part of a span may be left over behind its last object.
const TAIL_PART: usize = 16;
/// Larger objects begin at different lines.
const LINED_FROM: usize = 2 * KIB;
/// The least bytes left over at the end of a span whose first object begins at different lines.
const LINED_TAIL: usize = 4 * LINE_BYTES;
/// At most this part, where nothing would be left over otherwise.
const LINED_TAIL_PART: usize = 24;
/// Pages in a span at most.
const SPAN_PAGES_MAX: usize = 32;
/// Shift of the reciprocals.
const RECIPROCAL_BITS: u32 = 36;
/// How finely spans are told apart by how full they are.
pub const FULLNESSES: usize = 8;
const FULLNESS_BITS: u32 = 16;

/// One size class.
#[derive(Clone, Copy)]
pub struct Class {
    /// Bytes of each object.
    pub size: u32,
    /// Heap pages of a span.
    pub pages: u16,
    /// Objects in a span.
    pub objects: u16,
    /// Lines that the first object of a span may begin at.
    lines: u16,
    /// 2^36 / size, rounded up: offsets in a span become indices by a multiplication.
    reciprocal: u64,
    /// [`FULLNESSES`] to one object more than all, scaled: a span's fullness by a multiplication.
    fullness: u32,
}

/// All classes by number; number 0 has no objects.
pub static CLASS: [Class; CLASSES] = classes();
static BY_SIZE: [u8; TABLE_MAX / MIN_ALIGN + 1] = by_size();
/// As [`BY_SIZE`], in bytes of stacks.
static STACK_BY_SIZE: [u16; TABLE_MAX / MIN_ALIGN + 1] = {
    let mut table = [0; TABLE_MAX / MIN_ALIGN + 1];
    let mut at = 0;
    while at < table.len() {
        table[at] = (computed(at * MIN_ALIGN) * size_of::<Stack>()) as u16;
        at += 1;
    }
    table
};
/// The bits of an address that tell where its object begins, by the class of its page: all, or all but those of the lines that are left out before a
/// request; none where the page has no small objects. An address that no request has is none where an object begins.
static BEGIN_MASK: [usize; 1 << u8::BITS] = begin_masks();

/// The class for `size`, of home 0 where it has homes; `None`: it is more than [`SMALL_MAX`].
#[inline(always)]
pub fn class_of(size: usize) -> Option<usize> {
    if size <= TABLE_MAX {
        return Some(BY_SIZE[size.div_ceil(MIN_ALIGN)] as usize);
    }
    seldom();
    if size <= SMALL_MAX { Some(computed(size)) } else { None }
}

/// As [`class_of`], for sizes of more than [`TABLE_MAX`]; `None`: it is less, or more than [`SMALL_MAX`].
#[inline(always)]
pub fn class_of_larger(size: usize) -> Option<usize> {
    (TABLE_MAX + 1..=SMALL_MAX).contains(&size).then(|| computed(size))
}

/// Where a cache's stacks have the class for `size`, in bytes from the first stack.
///
/// # Safety
/// `size` is at most [`TABLE_MAX`].
#[inline(always)]
pub unsafe fn stack_of(size: usize) -> usize {
    // SAFETY: promised by the caller.
    unsafe { core::hint::assert_unchecked(size <= TABLE_MAX) };
    STACK_BY_SIZE[size.div_ceil(MIN_ALIGN)].into()
}

/// The smallest class for `size` whose objects are all aligned to `align`, a power of two.
pub fn class_aligned(align: usize, size: usize) -> Option<usize> {
    if align > HEAP_PAGE_BYTES {
        return None;
    }
    let larger = |class: &usize| class_of(CLASS[*class].size as usize + 1);
    successors(class_of(size), larger).find(|class| CLASS[*class].is_aligned(align))
}

/// Where the object begins that was given out as `object`.
#[inline(always)]
pub fn begin_of(class: usize, object: usize) -> usize {
    object & BEGIN_MASK[class]
}

/// What is given out of an object of a class for a request of `size` bytes that need not be aligned to more than a line.
#[inline(always)]
pub fn given_out(class: usize, object: usize, size: usize) -> usize {
    // Whole pages mostly leave nothing, which is quickly told.
    let has_room = size > LINED_FROM && !size.is_multiple_of(PAGE_BYTES);
    if !has_room {
        return object;
    }
    // Lines up to a power of two that are left out, without a branch: the caller waits for the address.
    let room =
        (CLASS[class].size as usize).wrapping_sub(size).wrapping_add(LINE_BYTES) | LINE_BYTES;
    let up_to = (1 << (room.leading_zeros() ^ (usize::BITS - 1))) - LINE_BYTES;
    // A fraction that is far from its neighbours': see `spread`. Its highest bits are the page's.
    let fraction =
        ((object / PAGE_BYTES) as u32).wrapping_mul(GOLDEN) >> (u32::BITS - PAGE_BYTES.ilog2());
    object + (fraction as usize & up_to & !BEGIN_MASK[class])
}

/// Keeps what follows out of the way of the other branch.
#[cold]
pub fn seldom() {}

/// The class by arithmetic; `size` is at most [`SMALL_MAX`].
#[inline(always)]
const fn computed(size: usize) -> usize {
    let last = if size == 0 { 0 } else { size - 1 };
    if size <= 48 {
        return HOMED + last / 16 * HOMES;
    }
    if size <= 128 {
        return last / 16 - 2;
    }
    // Not `ilog2`: the processor finds the highest bit's number, and would turn it round twice.
    let octave = (last.leading_zeros() ^ (usize::BITS - 1)) as usize;
    // The highest bit of four counts the last octave.
    (octave - 7) * 8 + (last >> (octave - 3)) - 2
}

/// The home of a processor's cache, or of a thread's by another number.
#[inline]
pub const fn home_of(number: usize) -> usize {
    number % HOMES
}

/// Processors share what lies between their caches and the page heap by the number of their home.
pub const SHARDS: usize = 4;

/// The shard of a home, for a cache's.
#[inline]
pub const fn shard_of(home: usize) -> usize {
    home % SHARDS
}

/// Where a cache of some home has the objects of a class, and the class of what is there: what
/// is at [`class_of`] is of that home.
#[inline(always)]
pub const fn seen_from(home: usize, class: usize) -> usize {
    if class < HOMED { class } else { class ^ home }
}

impl Class {
    /// The object that begins at `offset`, counted from the first object of its span and within it;
    /// `None`: there is none.
    ///
    /// What a multiplication by the reciprocal leaves behind the point is less than the
    /// reciprocal itself where an object begins, and not anywhere else.
    #[inline(always)]
    pub fn beginning_at(&self, offset: usize) -> Option<usize> {
        let product = offset as u64 * self.reciprocal;
        let index = (product >> RECIPROCAL_BITS) as usize;
        let behind = product & ((1 << RECIPROCAL_BITS) - 1);
        (behind < self.reciprocal && index < self.objects as usize).then_some(index)
    }

    /// How full a span with `used` objects in use is, below [`FULLNESSES`].
    #[inline(always)]
    pub fn fullness_of(&self, used: usize) -> usize {
        (used * self.fullness as usize) >> FULLNESS_BITS
    }

    /// Where an object begins, counted from the first object of its span.
    #[inline(always)]
    pub fn offset_of(&self, index: usize) -> usize {
        index * self.size as usize
    }

    /// Where the first object begins in the span of this number.
    #[inline(always)]
    pub fn begin(&self, span: usize) -> usize {
        spread(span, self.lines.into()) * LINE_BYTES
    }

    /// Whether all objects are aligned to a power of two.
    fn is_aligned(&self, align: usize) -> bool {
        let lines = if self.lines > 1 { LINE_BYTES } else { 0 };
        (self.size as usize | lines) & (align - 1) == 0
    }
}

/// How many objects of each class a cache keeps: `bytes` of them, within
/// bounds; none for number 0.
pub const fn kept(bytes: usize, least: usize, most: usize) -> [usize; CLASSES] {
    let mut kept = [0; CLASSES];
    let mut class = 1;
    while class < CLASSES {
        if let Some(fit) = bytes.checked_div(size_of_class(class)) {
            kept[class] = if fit > most {
                most
            } else if fit < least {
                least
            } else {
                fit
            };
        }
        class += 1;
    }
    kept
}

/// The sum over all classes.
pub const fn sum(of: &[usize; CLASSES]) -> usize {
    let (mut sum, mut class) = (0, 0);
    while class < CLASSES {
        sum += of[class];
        class += 1;
    }
    sum
}

/// Bytes of an object; 0 for a number that is not in use.
const fn size_of_class(class: usize) -> usize {
    match class {
        0 | PLAIN_END..HOMED => 0,
        HOMED.. => ((class - HOMED) / HOMES + 1) * 16,
        1..=5 => (class + 3) * 16,
        _ => {
            let (octave, step) = ((class - 6) / 8 + 7, (class - 6) % 8 + 1);
            (1 << octave) + step * (1 << (octave - 3))
        }
    }
}

const fn classes() -> [Class; CLASSES] {
    let none = Class { size: 0, pages: 0, objects: 0, lines: 0, reciprocal: 0, fullness: 0 };
    let mut all = [none; CLASSES];
    let mut class = 1;
    while class < CLASSES {
        let size = size_of_class(class);
        if size == 0 {
            class += 1;
            continue;
        }
        let pages = pages_for(size);
        let objects = pages * HEAP_PAGE_BYTES / size;
        all[class] = Class {
            size: size as u32,
            pages: pages as u16,
            objects: objects as u16,
            lines: if is_lined(size) {
                ((pages * HEAP_PAGE_BYTES - objects * size) / LINE_BYTES + 1) as u16
            } else {
                1
            },
            reciprocal: (1 << RECIPROCAL_BITS) / size as u64 + 1,
            fullness: ((FULLNESSES << FULLNESS_BITS) / (objects + 1)) as u32,
        };
        class += 1;
    }
    all
}

/// Whether spans of objects of this size begin at any line of what they have left over.
const fn is_lined(size: usize) -> bool {
    size > LINED_FROM && !size.is_multiple_of(PAGE_BYTES)
}

/// As [`begin_of`], by what is known of a page; 0: it has no small objects.
#[inline(always)]
pub fn begin_if_small(class: u8, object: usize) -> usize {
    object & BEGIN_MASK[class as usize]
}

const fn begin_masks() -> [usize; 1 << u8::BITS] {
    let mut masks = [0; 1 << u8::BITS];
    let mut class = 1;
    while class < CLASSES {
        let size = size_of_class(class);
        // Numbers that are not in use come from no page.
        masks[class] = usize::MAX;
        if size > 0 && size.is_multiple_of(PAGE_BYTES) {
            // As far as a request can be smaller than its class: an eighth of the octave.
            let step = 1 << ((size - 1).ilog2() - 3);
            let room = if step < PAGE_BYTES { step } else { PAGE_BYTES };
            masks[class] = !(room - LINE_BYTES);
        }
        class += 1;
    }
    masks
}

/// The fewest pages with little left over; enough for some lines, where the first object is to begin at any of them.
const fn pages_for(size: usize) -> usize {
    let pages = pages_with_tail(size, 0, TAIL_PART);
    let tail = pages * HEAP_PAGE_BYTES % size;
    if is_lined(size) && tail < LINED_TAIL {
        pages_with_tail(size, LINED_TAIL, LINED_TAIL_PART)
    } else {
        pages
    }
}

/// The fewest pages that leave `least` bytes or more behind the last object, and no more than one part in `part` of the span.
const fn pages_with_tail(size: usize, least: usize, part: usize) -> usize {
    let mut pages = size.div_ceil(HEAP_PAGE_BYTES);
    while pages < SPAN_PAGES_MAX {
        let bytes = pages * HEAP_PAGE_BYTES;
        if (bytes % size) * part <= bytes && bytes % size >= least {
            return pages;
        }
        pages += 1;
    }
    pages
}

const fn by_size() -> [u8; TABLE_MAX / MIN_ALIGN + 1] {
    let mut table = [0; TABLE_MAX / MIN_ALIGN + 1];
    let mut at = 0;
    while at < table.len() {
        table[at] = computed(at * MIN_ALIGN) as u8;
        at += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    fn in_use() -> impl Iterator<Item = Class> {
        CLASS.into_iter().filter(|class| class.size > 0)
    }

    #[test]
    fn every_size_has_the_smallest_class_that_holds_it() {
        for size in 0..=SMALL_MAX {
            let class = CLASS[class_of(size).unwrap()];
            assert!(class.size as usize >= size);
            assert!(in_use().all(|other| (other.size as usize) < size || other.size >= class.size));
        }
        assert_eq!(class_of(SMALL_MAX + 1), None);
        assert_eq!(in_use().map(|class| class.size as usize).max(), Some(SMALL_MAX));
    }

    #[test]
    fn aligned_objects_are_and_fit() {
        for align in (0..=13).map(|bits| 1 << bits) {
            for size in (1..=SMALL_MAX).step_by(61) {
                let class = &CLASS[class_aligned(align, size).expect("there is one")];
                assert!(class.size as usize >= size);
                assert!((class.size as usize) < 2 * size.next_multiple_of(align.max(MIN_ALIGN)));
                for (span, index) in [(1, 0), (2, 0), (1, class.objects as usize - 1)] {
                    assert!((class.begin(span) + class.offset_of(index)).is_multiple_of(align));
                }
            }
        }
    }

    #[test]
    fn requests_begin_at_different_lines_of_objects_that_hold_them() {
        for size in [2200, 2500, 3000, 5000, 6000, 7000, 14_000, 40_000, 100_000, 160_000] {
            let number = class_of(size).unwrap();
            let class = &CLASS[number];
            let objects: usize = class.objects.into();
            let mut lines = [0; 64];
            for object in 0..1000 {
                let (span, index) = (object / objects, object % objects);
                let page = span * usize::from(class.pages);
                let at = page * HEAP_PAGE_BYTES + class.begin(page) + class.offset_of(index);
                let given = given_out(number, at, size);
                assert!(given + size <= at + class.size as usize && begin_of(number, given) == at);
                assert!(
                    at + class.size as usize <= (page + class.pages as usize) * HEAP_PAGE_BYTES
                );
                lines[given / LINE_BYTES % 64] += 1;
            }
            let most = lines.iter().max().unwrap();
            assert!(*most <= 250, "{most} of 1000 objects of {size} bytes: {lines:?}");
        }
    }

    #[test]
    fn a_cache_has_each_class_in_a_place_of_its_own() {
        for home in 0..HOMES {
            let mut places: Vec<_> = (0..CLASSES).map(|class| seen_from(home, class)).collect();
            for (class, place) in places.iter().enumerate() {
                assert_eq!(seen_from(home, *place), class);
                assert_eq!(CLASS[*place].size, CLASS[class].size);
            }
            places.sort();
            assert!(places.into_iter().eq(0..CLASSES));
        }
        let classes: Vec<_> =
            (0..HOMES).map(|home| seen_from(home, class_of(8).unwrap())).collect();
        assert!(classes.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn waste_is_bounded() {
        for size in 129..=SMALL_MAX {
            let class = CLASS[class_of(size).unwrap()];
            assert!((class.size as usize - size) * 8 <= size, "{size} in {}", class.size);
        }
        for class in in_use() {
            let bytes = class.pages as usize * HEAP_PAGE_BYTES;
            let used = class.objects as usize * class.size as usize;
            assert!((bytes - used) * TAIL_PART <= bytes, "{}", class.size);
            assert!(class.objects > 0 && (class.size as usize).is_multiple_of(MIN_ALIGN));
            assert!(class.objects as usize <= class.pages as usize * 512);
        }
    }

    #[test]
    fn fullness_grows_from_least_to_most() {
        for class in in_use() {
            let fullness = |used| class.fullness_of(used);
            assert_eq!(fullness(0), 0);
            for used in 0..class.objects as usize {
                assert!(fullness(used) <= fullness(used + 1) && fullness(used + 1) < FULLNESSES);
            }
        }
    }

    #[test]
    fn offsets_become_indices() {
        for class in in_use() {
            for offset in 0..class.pages as usize * HEAP_PAGE_BYTES {
                let (index, size) = (offset / class.size as usize, class.size as usize);
                let begins = offset % size == 0 && index < class.objects as usize;
                assert_eq!(class.beginning_at(offset), begins.then_some(index), "{offset} {size}");
            }
        }
    }
}
