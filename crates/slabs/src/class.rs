//! Size classes: which sizes objects have, and how many share a span.
//!
//! To 128 B every multiple of 16, then eight classes to an octave, up to
//! 256 KiB. Larger objects are spans of their own.

use spandrel_pages::{HEAP_PAGE_BYTES, KIB, MIN_ALIGN};

/// Largest size that has a class.
pub const SMALL_MAX: usize = 256 * KIB;
/// Classes and the number 0, which means none.
pub const CLASSES: usize = 1 + 8 + 11 * 8;
/// Sizes to here are looked up in a table of one byte per 16 bytes.
const TABLE_MAX: usize = 1024;
/// At most this part of a span may be left over behind its last object.
const TAIL_PART: usize = 16;
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
    /// 2^36 / size, rounded up: offsets in a span become indices by a multiplication.
    reciprocal: u64,
    /// [`FULLNESSES`] to one object more than all, scaled: a span's fullness by a multiplication.
    fullness: u32,
}

/// All classes by number; number 0 has no objects.
pub static CLASS: [Class; CLASSES] = classes();
static BY_SIZE: [u8; TABLE_MAX / MIN_ALIGN + 1] = by_size();

/// The class for `size`; `None`: it is more than [`SMALL_MAX`].
#[inline(always)]
pub fn class_of(size: usize) -> Option<usize> {
    if size <= TABLE_MAX {
        return Some(BY_SIZE[size.div_ceil(MIN_ALIGN)] as usize);
    }
    if size <= SMALL_MAX { Some(computed(size)) } else { None }
}

/// The class by arithmetic; `size` is at most [`SMALL_MAX`].
const fn computed(size: usize) -> usize {
    if size <= 16 {
        return 1;
    }
    let last = size - 1;
    if size <= 128 {
        return last / 16 + 1;
    }
    let octave = last.ilog2() as usize;
    9 + (octave - 7) * 8 + ((last >> (octave - 3)) & 7)
}

impl Class {
    /// The object in which `offset`, counted from the start of its span, lies.
    #[inline(always)]
    pub fn index_of(&self, offset: usize) -> usize {
        ((offset as u64 * self.reciprocal) >> RECIPROCAL_BITS) as usize
    }

    /// How full a span with so many objects in use is, below [`FULLNESSES`].
    #[inline(always)]
    pub fn fullness_of(&self, used: usize) -> usize {
        (used * self.fullness as usize) >> FULLNESS_BITS
    }

    /// Where an object begins in its span.
    #[inline(always)]
    pub fn offset_of(&self, index: usize) -> usize {
        index * self.size as usize
    }
}

/// How many objects of each class a cache keeps: so many bytes of them, within
/// bounds; none for number 0.
pub const fn kept(bytes: usize, least: usize, most: usize) -> [usize; CLASSES] {
    let mut kept = [0; CLASSES];
    let mut class = 1;
    while class < CLASSES {
        let fit = bytes / size_of_class(class);
        kept[class] = if fit > most {
            most
        } else if fit < least {
            least
        } else {
            fit
        };
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

const fn size_of_class(class: usize) -> usize {
    if class <= 8 {
        return class * 16;
    }
    let (octave, step) = ((class - 9) / 8 + 7, (class - 9) % 8 + 1);
    (1 << octave) + step * (1 << (octave - 3))
}

const fn classes() -> [Class; CLASSES] {
    let mut all = [Class { size: 0, pages: 0, objects: 0, reciprocal: 0, fullness: 0 }; CLASSES];
    let mut class = 1;
    while class < CLASSES {
        let size = size_of_class(class);
        let pages = pages_for(size);
        let objects = pages * HEAP_PAGE_BYTES / size;
        all[class] = Class {
            size: size as u32,
            pages: pages as u16,
            objects: objects as u16,
            reciprocal: (1 << RECIPROCAL_BITS) / size as u64 + 1,
            fullness: ((FULLNESSES << FULLNESS_BITS) / (objects + 1)) as u32,
        };
        class += 1;
    }
    all
}

/// The fewest pages with little left over.
const fn pages_for(size: usize) -> usize {
    let mut pages = size.div_ceil(HEAP_PAGE_BYTES);
    while pages < SPAN_PAGES_MAX {
        let bytes = pages * HEAP_PAGE_BYTES;
        if (bytes % size) * TAIL_PART <= bytes {
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
    use super::*;

    #[test]
    fn every_size_has_the_smallest_class_that_holds_it() {
        for size in 0..=SMALL_MAX {
            let class = class_of(size).unwrap();
            assert!((1..CLASSES).contains(&class));
            assert!(CLASS[class].size as usize >= size);
            assert!(class == 1 || (CLASS[class - 1].size as usize) < size, "{size}");
        }
        assert_eq!(class_of(SMALL_MAX), Some(CLASSES - 1));
        assert_eq!(class_of(SMALL_MAX + 1), None);
        assert_eq!(CLASS[CLASSES - 1].size as usize, SMALL_MAX);
    }

    #[test]
    fn waste_is_bounded() {
        for size in 129..=SMALL_MAX {
            let class = CLASS[class_of(size).unwrap()];
            assert!((class.size as usize - size) * 8 <= size, "{size} in {}", class.size);
        }
        for class in &CLASS[1..] {
            let bytes = class.pages as usize * HEAP_PAGE_BYTES;
            let used = class.objects as usize * class.size as usize;
            assert!((bytes - used) * TAIL_PART <= bytes, "{}", class.size);
            assert!(class.objects > 0 && (class.size as usize).is_multiple_of(MIN_ALIGN));
            assert!(class.objects as usize <= class.pages as usize * 512);
        }
    }

    #[test]
    fn fullness_grows_from_least_to_most() {
        for class in &CLASS[1..] {
            let fullness = |used| class.fullness_of(used);
            assert_eq!(fullness(0), 0);
            for used in 0..class.objects as usize {
                assert!(fullness(used) <= fullness(used + 1) && fullness(used + 1) < FULLNESSES);
            }
        }
    }

    #[test]
    fn offsets_become_indices() {
        for class in &CLASS[1..] {
            for offset in 0..class.pages as usize * HEAP_PAGE_BYTES {
                assert_eq!(class.index_of(offset), offset / class.size as usize);
            }
        }
    }
}
