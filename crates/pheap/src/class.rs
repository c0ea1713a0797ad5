//! Sizes of small and medium objects. They are part of the format: a block's header has the class's number.

use crate::layout::{BLOCK_BYTES, GRANULE_BYTES};

/// Sizes of all classes in bytes. Up to 128 B each multiple of a granule, then four to a doubling, from 1 KiB on the largest
/// sizes of which some number fits a block.
pub const SIZES: [u16; CLASSES] = [
    16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024,
    1248, 1552, 1808, 2048, 2512, 3120, 3632, 4096, 5040, 5952, 6544, 7280, 8192, 9360, 10912,
    13104, 16384, 21840, 32768,
];
/// How many classes there are.
pub const CLASSES: usize = 39;
/// The largest object that is not a row of blocks.
pub const LARGEST: usize = 32768;
/// Classes of small objects, which threads keep free ones of (section 5.7): up to 2 KiB, where the paper has 400 B in blocks of 4 KiB. Above them are
/// medium ones.
pub const SMALL_CLASSES: usize = 24;

/// A class by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Class(pub u8);

/// The class of each number of granules.
static OF_GRANULES: [u8; LARGEST / GRANULE_BYTES + 1] = {
    let mut table = [0; LARGEST / GRANULE_BYTES + 1];
    let (mut granules, mut class) = (0, 0);
    while granules < table.len() {
        if granules * GRANULE_BYTES > SIZES[class] as usize {
            class += 1;
        }
        table[granules] = class as u8;
        granules += 1;
    }
    table
};

/// 2^32 by each size, rounded up: what an offset in a block is multiplied with to get the object's number.
static INVERSES: [u32; CLASSES] = {
    let mut inverses = [0; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        inverses[class] = (1u64 << 32).div_ceil(SIZES[class] as u64) as u32;
        class += 1;
    }
    inverses
};

/// Objects of a block.
static OBJECTS: [u16; CLASSES] = {
    let mut objects = [0; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        objects[class] = (BLOCK_BYTES / SIZES[class] as usize) as u16;
        class += 1;
    }
    objects
};

/// Where small objects of a class begin: at multiples of what `inverse` is the inverse of, below `end`.
#[derive(Clone, Copy)]
struct Starts {
    inverse: u32,
    end: u32,
}

/// For each number that [`Class::tag`] may give; nowhere if it stands for no class.
static STARTS: [Starts; 256] = {
    let mut starts = [Starts { inverse: 0, end: 0 }; 256];
    let mut class = 0;
    while class < SMALL_CLASSES {
        let end = OBJECTS[class] as u32 * SIZES[class] as u32;
        starts[class + 1] = Starts { inverse: INVERSES[class], end };
        class += 1;
    }
    starts
};

impl Class {
    /// What stands for a class of small objects where 0 stands for none, and for all others.
    pub fn tag(self) -> u8 {
        if (self.0 as usize) < SMALL_CLASSES { self.0 + 1 } else { 0 }
    }

    /// The class that a tag stands for, if one of its objects begins at an offset in a block.
    #[inline]
    pub fn that_begins(tag: u8, in_block: usize) -> Option<Self> {
        let Starts { inverse, end } = STARTS[tag as usize];
        // The lower half is below the inverse for multiples alone (Lemire, Kaser, Kurz: Faster remainder by direct computation, 2019).
        let product = in_block as u64 * u64::from(inverse);
        (in_block < end as usize && (product as u32) < inverse).then(|| Self(tag.wrapping_sub(1)))
    }

    /// The class of objects of `bytes`, at most [`LARGEST`].
    #[inline]
    pub fn of(bytes: usize) -> Option<Self> {
        OF_GRANULES.get(bytes.div_ceil(GRANULE_BYTES)).map(|class| Self(*class))
    }

    /// The class with that number, if there is one.
    #[inline]
    pub fn from_number(number: u8) -> Option<Self> {
        ((number as usize) < CLASSES).then_some(Self(number))
    }

    /// The smallest class of at least `bytes` whose objects all begin at a multiple of `align`, a power of two.
    pub fn aligned(bytes: usize, align: usize) -> Option<Self> {
        let first = Self::of(bytes)?;
        (first.0..CLASSES as u8).map(Self).find(|class| class.bytes().is_multiple_of(align))
    }

    /// Its index.
    #[inline]
    pub fn index(self) -> usize {
        // The bound tells the compiler that no check is needed behind it.
        (self.0 as usize).min(CLASSES - 1)
    }

    /// Bytes of an object.
    #[inline]
    pub fn bytes(self) -> usize {
        SIZES[self.index()] as usize
    }

    /// Objects of a block.
    #[inline]
    pub fn objects(self) -> usize {
        OBJECTS[self.index()] as usize
    }

    /// The number of the object that an offset in a block lies in, which may be one more than there are.
    #[inline]
    pub fn object_at(self, in_block: usize) -> usize {
        ((in_block as u64 * INVERSES[self.index()] as u64) >> 32) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_rise_and_waste_little() {
        assert!(SIZES.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(SIZES.iter().all(|size| (*size as usize).is_multiple_of(GRANULE_BYTES)));
        for bytes in 1..=LARGEST {
            let class = Class::of(bytes).unwrap();
            assert!(
                class.bytes() >= bytes && (class.0 == 0 || SIZES[class.index() - 1] < bytes as u16)
            );
            // A third at most, from 1 KiB to 16 KiB a quarter.
            let waste = (class.bytes() - bytes) * 100 / class.bytes();
            assert!(bytes < 64 || waste <= 33, "{bytes}: {waste} %");
            assert!(!(129..=16384).contains(&bytes) || waste <= 25, "{bytes}: {waste} %");
        }
        assert_eq!(Class::of(LARGEST + 1), None);
        for class in (0..CLASSES as u8).map(Class) {
            let unused = BLOCK_BYTES - class.objects() * class.bytes();
            assert!(unused * 100 <= BLOCK_BYTES * 2, "{class:?}: {unused}");
        }
    }

    #[test]
    fn objects_are_found_by_multiplication() {
        let none = [0].into_iter().chain(SMALL_CLASSES as u8 + 1..=255);
        assert!(none.into_iter().all(|tag| Class::that_begins(tag, 0).is_none()));
        for class in (0..CLASSES as u8).map(Class) {
            for at in 0..BLOCK_BYTES {
                let number = at / class.bytes();
                assert_eq!(class.object_at(at), number, "{class:?} at {at}");
                let begins = (class.0 as usize) < SMALL_CLASSES
                    && at % class.bytes() == 0
                    && number < class.objects();
                let found = Class::that_begins(class.tag(), at);
                assert_eq!(found, begins.then_some(class), "{class:?} at {at}");
            }
        }
    }

    #[test]
    fn aligned_classes_are_multiples() {
        for align in [16, 64, 4096, 32768] {
            let class = Class::aligned(24, align).unwrap();
            assert!(class.bytes().is_multiple_of(align), "{align}: {class:?}");
        }
        assert_eq!(Class::aligned(32, 65536), None);
    }
}
