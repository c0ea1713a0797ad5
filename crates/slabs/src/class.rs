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
}

/// All classes by number; number 0 has no objects.
pub static CLASS: [Class; CLASSES] = classes();
static BY_SIZE: [u8; TABLE_MAX / MIN_ALIGN + 1] = by_size();

/// The class of a number above 0 for `size`, which is at most [`SMALL_MAX`].
#[inline(always)]
pub fn class_of(size: usize) -> usize {
    if size <= TABLE_MAX {
        return BY_SIZE[size.div_ceil(MIN_ALIGN)] as usize;
    }
    computed(size)
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

    /// Where an object begins in its span.
    #[inline(always)]
    pub fn offset_of(&self, index: usize) -> usize {
        index * self.size as usize
    }
}

/// Bytes of an object of each class; 1 for number 0.
pub const fn sizes() -> [usize; CLASSES] {
    let mut sizes = [1; CLASSES];
    let mut class = 1;
    while class < CLASSES {
        sizes[class] = size_of_class(class);
        class += 1;
    }
    sizes
}

const fn size_of_class(class: usize) -> usize {
    if class <= 8 {
        return class * 16;
    }
    let (octave, step) = ((class - 9) / 8 + 7, (class - 9) % 8 + 1);
    (1 << octave) + step * (1 << (octave - 3))
}

const fn classes() -> [Class; CLASSES] {
    let mut all = [Class { size: 0, pages: 0, objects: 0, reciprocal: 0 }; CLASSES];
    let mut class = 1;
    while class < CLASSES {
        let size = size_of_class(class);
        let pages = pages_for(size);
        all[class] = Class {
            size: size as u32,
            pages: pages as u16,
            objects: (pages * HEAP_PAGE_BYTES / size) as u16,
            reciprocal: (1 << RECIPROCAL_BITS) / size as u64 + 1,
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
            let class = class_of(size);
            assert!((1..CLASSES).contains(&class));
            assert!(CLASS[class].size as usize >= size);
            assert!(class == 1 || (CLASS[class - 1].size as usize) < size, "{size}");
        }
        assert_eq!(class_of(SMALL_MAX), CLASSES - 1);
        assert_eq!(CLASS[CLASSES - 1].size as usize, SMALL_MAX);
    }

    #[test]
    fn waste_is_bounded() {
        for size in 129..=SMALL_MAX {
            let class = CLASS[class_of(size)];
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
    fn offsets_become_indices() {
        for class in &CLASS[1..] {
            for offset in 0..class.pages as usize * HEAP_PAGE_BYTES {
                assert_eq!(class.index_of(offset), offset / class.size as usize);
            }
        }
    }
}
