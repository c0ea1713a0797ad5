//! Where things lie in a heap: offsets from its first byte, and nothing that is looked up.
//!
//! A heap is a row of regions of 64 MiB. A region begins with the headers of its blocks (the paper's header space, section
//! 5.1), then has their mark bits, then blocks of 64 KiB. Makalu's header map is not needed: where the header of an address
//! is follows from the address (Ralloc, ISMM '20, does it so).

/// The unit of allocation (section 2.3): every object has a multiple of it.
pub const GRANULE_BYTES: usize = 16;
/// Objects of one block are of one size. The paper has 4 KiB; 64 KiB as in Ralloc: one header written back for 16 times as
/// many objects.
pub const BLOCK_BYTES: usize = 64 << 10;
/// Blocks of a region, those of its metadata included.
pub const REGION_BLOCKS: usize = 1024;
/// Bytes of a region.
pub const REGION_BYTES: usize = REGION_BLOCKS * BLOCK_BYTES;
/// A header is a line, so that it becomes durable as a whole.
pub const HEADER_BYTES: usize = 64;
/// Bytes for the mark bits of a block: a bit for each granule that may be an object.
pub const BITS_BYTES: usize = BLOCK_BYTES / GRANULE_BYTES / 8;
/// Words of these.
pub const BITS_WORDS: usize = BITS_BYTES / 8;

/// Blocks of a region that hold headers, and those that hold mark bits.
pub const HEADER_BLOCKS: usize = REGION_BLOCKS * HEADER_BYTES / BLOCK_BYTES;
/// The first block of mark bits, in a region.
pub const BITS_BLOCK: usize = HEADER_BLOCKS;
/// The first block behind a region's metadata.
pub const FIRST_BLOCK: usize = BITS_BLOCK + REGION_BLOCKS * BITS_BYTES / BLOCK_BYTES;
/// The superblock lies in the first region, before its objects.
pub const SUPERBLOCK_BLOCK: usize = FIRST_BLOCK;
/// Where the superblock lies.
pub const SUPERBLOCK: usize = SUPERBLOCK_BLOCK * BLOCK_BYTES;
/// What no heap is smaller than: its metadata and a block.
pub const LEAST_BYTES: usize = SUPERBLOCK + 2 * BLOCK_BYTES;

/// The longest object that lies in one region.
pub const REGION_OBJECT_BLOCKS: usize = REGION_BLOCKS - FIRST_BLOCK - 1;

/// A block's number in its heap.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct BlockId(pub u32);

impl BlockId {
    /// The block that an offset lies in.
    #[inline]
    pub const fn of(at: usize) -> Self {
        Self((at / BLOCK_BYTES) as u32)
    }

    /// Where it begins.
    #[inline]
    pub const fn start(self) -> usize {
        self.0 as usize * BLOCK_BYTES
    }

    /// Its region's number.
    #[inline]
    pub const fn region(self) -> usize {
        self.0 as usize / REGION_BLOCKS
    }

    /// Its number in its region.
    #[inline]
    pub const fn in_region(self) -> usize {
        self.0 as usize % REGION_BLOCKS
    }

    /// Where its header lies.
    #[inline]
    pub const fn header(self) -> usize {
        self.region() * REGION_BYTES + self.in_region() * HEADER_BYTES
    }

    /// Where its mark bits lie.
    #[inline]
    pub const fn bits(self) -> usize {
        self.region() * REGION_BYTES + BITS_BLOCK * BLOCK_BYTES + self.in_region() * BITS_BYTES
    }

    /// The block that lies `count` behind it.
    #[inline]
    pub const fn plus(self, count: usize) -> Self {
        Self(self.0 + count as u32)
    }
}

/// The first block of a region that objects may lie in.
#[inline]
pub const fn first_block(region: usize) -> BlockId {
    let first = if region == 0 { SUPERBLOCK_BLOCK + 1 } else { FIRST_BLOCK };
    BlockId((region * REGION_BLOCKS + first) as u32)
}

/// All blocks of a region that have a header, whether the heap reaches them or not.
pub fn blocks_of(region: usize) -> impl Iterator<Item = BlockId> {
    let end = ((region + 1) * REGION_BLOCKS) as u32;
    (first_block(region).0..end).map(BlockId)
}

const _: () = assert!(HEADER_BLOCKS == 1 && FIRST_BLOCK == 9);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_in_a_region_does_not_overlap() {
        for region in [0usize, 1, 77] {
            let start = region * REGION_BYTES;
            let last = BlockId(((region + 1) * REGION_BLOCKS - 1) as u32);
            assert_eq!(last.header() + HEADER_BYTES, start + BLOCK_BYTES);
            assert_eq!(last.bits() + BITS_BYTES, start + FIRST_BLOCK * BLOCK_BYTES);
            assert_eq!((last.region(), last.in_region()), (region, REGION_BLOCKS - 1));
            assert_eq!(BlockId::of(last.start() + BLOCK_BYTES - 1), last);
            assert!(first_block(region).start() >= start + FIRST_BLOCK * BLOCK_BYTES);
        }
        assert_eq!(first_block(0).start(), SUPERBLOCK + BLOCK_BYTES);
    }
}
