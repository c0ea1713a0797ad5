//! A heap of format version 1 becomes one of this version when it is opened.
//!
//! Version 1 has the same headers, mark bits, roots and names, and neither sums nor a second copy of the identity; all of these
//! lie where version 1 has zeroes that it never reads. So whatever is written before the identity line leaves a heap of version 1, and an
//! upgrade that a failure cuts off begins anew.

use spandrel_pmem::Medium;

use crate::error::Error;
use crate::layout::{BLOCK_BYTES, blocks_of};
use crate::shared::Core;
use crate::sums::marks_sum_at;
use crate::superblock::{Record, State};
use crate::undo::{self, Format};

impl<M: Medium> Core<M> {
    /// Writes what this version has beside version 1. The record of the upgraded heap.
    ///
    /// # Errors
    /// [`Error::Damaged`]: a header or the undo log is not what version 1 has written. The heap is one of version 1 then.
    pub fn upgrade(&self, mut record: Record) -> Result<Record, Error> {
        if record.state == State::Dirty {
            undo::replay(&self.medium, Format::Old)?;
        }
        let count = self.bytes() / BLOCK_BYTES;
        // All of them, before anything is written.
        self.each_block(count, |_, _| Ok(()))?;
        undo::wipe(&self.medium);
        // Also of blocks below a large object, which an upgrade that was cut off has left something in.
        for block in
            self.own_regions().flat_map(blocks_of).filter(|block| (block.0 as usize) < count)
        {
            let (at, sum) = (marks_sum_at(block), self.sum_marks_of(block));
            if self.load(at) != sum {
                self.store(at, sum);
                self.medium.write_back(at, 8);
            }
        }
        self.sum_all();
        self.medium.fence();
        record.closed = record.generation;
        record.sums = self.sums(record.bytes);
        record.put(&self.medium);
        self.identity.write(&self.medium);
        self.medium.checkpoint()?;
        Ok(record)
    }
}
