//! Collection: what cannot be reached becomes free (sections 9.2 and 11.4).
//!
//! First all is marked, in transient memory; then each block's mark bits become what was found, and blocks without any mark are free. The second may
//! be cut off anywhere: what it has not done yet is done by the next recovery, which begins anew.

use core::sync::atomic::{AtomicUsize, Ordering::*};

use spandrel_pmem::Medium;
use spandrel_sync::Lock;

use crate::blocks::Info;
use crate::class::Class;
use crate::error::Error;
use crate::header::Header;
use crate::layout::{BITS_WORDS, BlockId, REGION_BLOCKS};
use crate::mark::{Marks, Purpose, Worker};
use crate::objects::valid;
use crate::partial::Partial;
use crate::roots::RootType;
use crate::shared::Core;
use crate::sums::{marks_sum_at, mix};
use crate::superblock::{ROOT_COUNT, ROOTS};
use crate::trace::Target;
use crate::workers::{self, Items, MOST};

/// A heap that is smaller is marked by one thread: another takes longer to begin.
const ALONE_BYTES: usize = 16 << 20;

/// What a collection has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Collected {
    /// Objects that can be reached.
    pub live: u64,
    /// Bytes of these.
    pub live_bytes: u64,
    /// Blocks that became free.
    pub freed_blocks: u64,
    /// Objects in blocks that stay, and blocks of large objects, that became free: by their mark bits.
    pub freed: u64,
    /// Pointers that led nowhere, and were cleared.
    pub cleared: u64,
}

impl<M: Medium> Core<M> {
    /// Marks from all roots.
    ///
    /// # Errors
    /// There is no memory for it, or a root is of another type than was said.
    pub fn mark(&self, types: &[RootType], purpose: Purpose) -> Result<(Marks, Collected), Error> {
        let count = self.bytes() / crate::layout::BLOCK_BYTES;
        // To follow pointers relies on headers.
        self.each_block(count, |_, _| Ok(()))?;
        let marks = Marks::new(count)?;
        let mut roots = [None; ROOT_COUNT];
        for (index, root) in roots.iter_mut().enumerate() {
            *root = self.root_target(index, types)?;
        }
        let threads = if self.bytes() < ALONE_BYTES { 1 } else { workers::processors().min(MOST) };
        let (pool, next) = (Items::new(threads), AtomicUsize::new(0));
        let all = Lock::new((Collected::default(), None));
        let work = || {
            let mut worker = Worker::new(self, &marks, &pool, purpose);
            // Root by root, so that a thread whose lists end soon takes more of them.
            loop {
                let index = next.fetch_add(1, Relaxed);
                let Some(to) = roots.get(index) else { break };
                worker.root(ROOTS + index * 8, *to);
            }
            worker.run();
            let mut all = all.lock();
            all.0.live += worker.marked;
            all.0.live_bytes += worker.marked_bytes;
            all.0.cleared += worker.cleared;
            all.1 = all.1.or(worker.failed);
        };
        workers::run(threads, &work, || pool.is_missing());
        let (collected, failed) = *all.lock();
        match failed {
            Some(why) => Err(why),
            None => Ok((marks, collected)),
        }
    }

    /// Makes mark bits and headers what was found. No pointer leads to an object that was not.
    ///
    /// # Errors
    /// A header is none.
    pub fn sweep(&self, marks: &Marks, collected: &mut Collected) -> Result<(), Error> {
        let mut blocks = self.blocks.lock();
        self.forget_blocks(&mut blocks);
        for partial in &self.partial {
            *partial.lock() = Partial::new();
        }
        self.empties.store(0, Relaxed);
        let marked = blocks.count as u64;
        self.progress.reach(marked);
        // From here on sums say nothing, whatever cuts this off.
        let generation = self.record.lock().generation;
        for region in self.own_regions() {
            self.set_stamp(region, generation);
        }
        self.medium.fence();
        let mut kept = None;
        self.each_block(blocks.count, |block, header| {
            if block.0.is_multiple_of(REGION_BLOCKS as u32 / 4) {
                self.progress.reach(marked + u64::from(block.0));
            }
            match header {
                Header::Free => self.set_marks(block, None, marks),
                Header::Small(class) => self.sweep_small(block, class, marks, collected),
                Header::Large(count) => self.sweep_large(block, count as usize, marks, collected),
                Header::Lost => {
                    let is_behind = kept == Some(block);
                    if self.sweep_lost(block, is_behind, marks, collected) {
                        kept = Some(block.plus(1));
                    }
                }
            }
            Ok(())
        })?;
        self.sum_all();
        // A thread that gets a block which became free now finds that durable.
        self.fence();
        self.forget_blocks(&mut blocks);
        Ok(())
    }

    fn sweep_small(&self, block: BlockId, class: Class, marks: &Marks, collected: &mut Collected) {
        let before = count_marks(|word| self.load(block.bits() + word * 8));
        let live = count_marks(|word| marks.word(block, word) & valid(class, word));
        collected.freed += before.saturating_sub(live);
        self.set_marks(block, Some(class), marks);
        if live == 0 {
            collected.freed_blocks += 1;
            self.free_header(block);
        }
    }

    fn sweep_large(&self, block: BlockId, count: usize, marks: &Marks, collected: &mut Collected) {
        // What it covers may have been blocks with objects, whose mark bits were not written back when they were freed.
        let end = (block.region() + 1) * REGION_BLOCKS;
        for covered in (block.0..(block.plus(count).0).min(end as u32)).map(BlockId) {
            self.set_marks(covered, None, marks);
        }
        if marks.word(block, 0) == 0 {
            (collected.freed, collected.freed_blocks) =
                (collected.freed + 1, collected.freed_blocks + count as u64);
            if block.in_region() + count > REGION_BLOCKS {
                self.clear_regions(block, count);
            }
            self.free_header(block);
        }
    }

    /// A block that was set aside is free when nothing leads there any more, and not to one right before it: what begins there may go on
    /// here. Whether it stays.
    fn sweep_lost(
        &self,
        block: BlockId,
        is_behind: bool,
        marks: &Marks,
        collected: &mut Collected,
    ) -> bool {
        self.set_marks(block, None, marks);
        let stays = is_behind || (0..BITS_WORDS).any(|word| marks.word(block, word) != 0);
        if !stays {
            collected.freed_blocks += 1;
            self.free_header(block);
        }
        stays
    }

    /// Says that a block is free; durable after a fence.
    fn free_header(&self, block: BlockId) {
        self.store_header(block, Header::Free);
        self.write_back(block.header(), 8);
    }

    /// Makes a block's mark bits those that were found, or none if it has no objects of a class.
    fn set_marks(&self, block: BlockId, class: Option<Class>, marks: &Marks) {
        let mut sum = 0;
        for word in 0..BITS_WORDS {
            let at = block.bits() + word * 8;
            let found = class.map_or(0, |class| marks.word(block, word) & valid(class, word));
            if self.load(at) != found {
                self.store(at, found);
                self.lazy.touch(&self.medium, at);
            }
            sum ^= mix(at, found);
        }
        let at = marks_sum_at(block);
        if self.load(at) != sum {
            self.store(at, sum);
            self.lazy.touch(&self.medium, at);
        }
    }

    /// Marks, and makes free what was not reached. No other thread has the heap, and no cache has free objects of it.
    ///
    /// # Errors
    /// As for [`Core::mark`] and [`Core::sweep`].
    pub fn collect(&self, types: &[RootType]) -> Result<Collected, Error> {
        // Recovery relies on headers, whatever else it makes anew.
        self.verify_headers().map_err(|why| self.note_damage(why))?;
        let (marks, mut collected) = self.mark(types, Purpose::Collect)?;
        self.sweep(&marks, &mut collected)?;
        Ok(collected)
    }

    /// [`RootType`]'s target for a root; `None`: its type is not known.
    fn root_target(&self, index: usize, types: &[RootType]) -> Result<Option<Target>, Error> {
        let Some(name) = self.root_name(index) else {
            return Ok(types.iter().find(|root| root.is_index(index)).map(|root| root.target));
        };
        let Some(root) = types.iter().find(|root| root.name == name.text()) else {
            return Ok(None);
        };
        if root.layout != name.layout {
            return Err(Error::RootType { heap: name.layout, given: root.layout });
        }
        Ok(Some(root.target))
    }
}

/// The marks of a block, of which `word` has each word.
fn count_marks(word: impl Fn(usize) -> u64) -> u64 {
    (0..BITS_WORDS).map(|number| u64::from(word(number).count_ones())).sum()
}

const _: () = assert!(size_of::<Info>() <= 16);
