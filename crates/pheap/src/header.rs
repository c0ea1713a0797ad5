//! Headers of blocks: what a block is, in one word, which a power failure leaves as it was or as it was to be. So a change of
//! it needs no undo log: one line is written back, one fence waited for.

use crate::class::Class;
use crate::layout::BlockId;

/// What a block is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Header {
    /// Free, or covered by a large object before it.
    Free,
    /// Objects of a class.
    Small(Class),
    /// The first block of an object that has this number of blocks. More than lie in a region: the object goes on in the next ones, in the place of
    /// their metadata as well.
    Large(u32),
    /// Set aside by a repair: its header was damaged, and what it was is not known. Nothing is allocated or freed there; a recovery that
    /// finds nothing which leads there makes it free.
    Lost,
}

const KIND_SMALL: u64 = 1;
const KIND_LARGE: u64 = 2;
const KIND_LOST: u64 = 3;
const KIND_MASK: u64 = 0xf;
const CLASS_SHIFT: u32 = 4;
const BLOCKS_SHIFT: u32 = 12;
const CHECK_SHIFT: u32 = 48;

/// 16 bits of what a word says and of where it stands, so that neither a flipped bit nor a line in a wrong place is taken for a header.
pub fn check(low: u64, block: BlockId) -> u64 {
    // SplitMix64's finisher.
    let mut mixed = low ^ u64::from(block.0).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed >> CHECK_SHIFT
}

impl Header {
    /// The word of a block's header. [`Header::Free`] is 0, as all of a fresh medium is.
    pub fn word(self, block: BlockId) -> u64 {
        let low = match self {
            Self::Free => return 0,
            Self::Small(class) => KIND_SMALL | u64::from(class.0) << CLASS_SHIFT,
            Self::Large(blocks) => KIND_LARGE | u64::from(blocks) << BLOCKS_SHIFT,
            Self::Lost => KIND_LOST,
        };
        low | check(low, block) << CHECK_SHIFT
    }

    /// What a word says; `None`: no header of that block.
    pub fn parse(word: u64, block: BlockId) -> Option<Self> {
        if word == 0 {
            return Some(Self::Free);
        }
        let low = word & ((1 << CHECK_SHIFT) - 1);
        if word >> CHECK_SHIFT != check(low, block) {
            return None;
        }
        match low & KIND_MASK {
            KIND_SMALL if low >> BLOCKS_SHIFT == 0 => {
                Class::from_number((low >> CLASS_SHIFT) as u8).map(Self::Small)
            }
            KIND_LARGE if low >> CLASS_SHIFT & 0xff == 0 => {
                let blocks = u32::try_from(low >> BLOCKS_SHIFT).ok()?;
                (blocks > 0).then_some(Self::Large(blocks))
            }
            KIND_LOST if low == KIND_LOST => Some(Self::Lost),
            _ => None,
        }
    }

    /// Whether a word that was found sound says that the block was set aside.
    #[inline]
    pub fn is_lost(word: u64) -> bool {
        word & KIND_MASK == KIND_LOST
    }

    /// The class of a word that was found sound when the heap was opened, if it is of small objects.
    #[inline]
    pub fn class(word: u64) -> Option<Class> {
        (word & KIND_MASK == KIND_SMALL).then_some(Class((word >> CLASS_SHIFT) as u8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::CLASSES;

    #[test]
    fn words_say_what_was_written_and_only_in_their_place() {
        let small = (0..CLASSES as u8).map(|class| Header::Small(Class(class)));
        let large = [1, 1014, 1_000_000, u32::MAX].map(Header::Large);
        for header in small.chain(large).chain([Header::Lost]) {
            let word = header.word(BlockId(77));
            assert_eq!(Header::parse(word, BlockId(77)), Some(header));
            assert_eq!(Header::parse(word, BlockId(78)), None);
            for bit in 0..64 {
                assert_eq!(Header::parse(word ^ 1 << bit, BlockId(77)), None, "{header:?} {bit}");
            }
        }
        assert_eq!(Header::parse(0, BlockId(5)), Some(Header::Free));
        assert_eq!(Header::class(Header::Small(Class(7)).word(BlockId(1))), Some(Class(7)));
        assert_eq!(Header::class(Header::Large(7).word(BlockId(1))), None);
    }
}
