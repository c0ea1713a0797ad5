//! Blocks of a class that have free objects (the reclaim lists of section 5.8).
//!
//! A list for each of a few groups of threads: a thread takes objects of blocks that its group had before, so that two threads that
//! allocate and free at the same time do not take each other's cache lines all the time.
//!
//! A block without any object stays in a list of its own until a block is needed and there is none but of the heap's growth. So a class whose
//! objects come and go waits for no fence; `paper` says to give such a block back at once (section 7.2).

use core::sync::atomic::Ordering::*;

use spandrel_pmem::Medium;

use crate::blocks::Info;
use crate::class::CLASSES;
use crate::header::Header;
use crate::layout::BlockId;
use crate::shared::Core;

/// Groups of threads.
pub const GROUPS: usize = 8;

/// Which list a block is in.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Listed {
    /// It has no free object, or is none of objects of a class.
    #[default]
    Nowhere,
    /// Some of its objects are free.
    Used,
    /// All are.
    Empty,
}

/// The blocks of a class with free objects; under the class's lock.
pub struct Partial {
    /// The first of each group; 0: none.
    used: [u32; GROUPS],
    empty: [u32; GROUPS],
}

impl Partial {
    pub const fn new() -> Self {
        Self { used: [0; GROUPS], empty: [0; GROUPS] }
    }

    fn head(&mut self, info: &Info) -> Option<&mut u32> {
        let heads = match info.listed {
            Listed::Nowhere => return None,
            Listed::Used => &mut self.used,
            Listed::Empty => &mut self.empty,
        };
        heads.get_mut(info.group as usize)
    }

    /// The block that a thread of a group takes objects from: one that it had before, or another one.
    fn first(&self, group: usize) -> Option<BlockId> {
        let others = self.used.iter().chain(&self.empty);
        let own = [self.used.get(group), self.empty.get(group)].into_iter().flatten();
        own.chain(others).find(|block| **block != 0).map(|block| BlockId(*block))
    }
}

impl<M: Medium> Core<M> {
    /// A block with free objects for a thread of a group, to which it belongs from now on.
    pub fn first_with_room(&self, partial: &mut Partial, group: usize) -> Option<BlockId> {
        let block = partial.first(group)?;
        // SAFETY: the class's lock is held.
        let info = unsafe { &mut *self.info(block) };
        if info.group as usize != group {
            self.unlist(block, info, partial);
            info.group = group as u8;
            self.list(block, info, partial);
        }
        Some(block)
    }

    /// Puts a block into the list where it belongs, of which it was in none: it has a free object.
    pub fn list(&self, block: BlockId, info: &mut Info, partial: &mut Partial) {
        info.listed = if info.live == 0 { Listed::Empty } else { Listed::Used };
        if info.listed == Listed::Empty {
            self.empties.fetch_add(1, Relaxed);
        }
        let Some(head) = partial.head(info) else { return };
        (info.before, info.after) = (0, *head);
        *head = block.0;
        if info.after != 0 {
            // SAFETY: another block of the class, whose lock is held.
            unsafe { (*self.info(BlockId(info.after))).before = block.0 };
        }
    }

    /// Takes it out of its list.
    pub fn unlist(&self, block: BlockId, info: &mut Info, partial: &mut Partial) {
        if info.listed == Listed::Empty {
            self.empties.fetch_sub(1, Relaxed);
        }
        if let Some(head) = partial.head(info)
            && *head == block.0
        {
            *head = info.after;
        }
        // SAFETY: other blocks of the class, whose lock is held.
        unsafe {
            if info.after != 0 {
                (*self.info(BlockId(info.after))).before = info.before;
            }
            if info.before != 0 {
                (*self.info(BlockId(info.before))).after = info.after;
            }
        }
        (info.before, info.after, info.listed) = (0, 0, Listed::Nowhere);
    }

    /// Makes blocks without objects free ones, of all classes whose lock is free. Whether there were any.
    pub fn free_empties(&self) -> bool {
        if self.empties.load(Relaxed) == 0 {
            return false;
        }
        let mut is_any = false;
        for class in 0..CLASSES {
            let Some(mut partial) = self.partial[class].try_lock() else { continue };
            let mut count = 0;
            for block in partial.empty {
                count += self.each_from(block, |block| {
                    self.set_tag(block, 0);
                    self.store_header(block, Header::Free);
                    self.write_back(block.header(), 8);
                });
            }
            if count == 0 {
                continue;
            }
            // A thread that gets one of them finds that durable.
            self.fence();
            for head in core::mem::replace(&mut partial.empty, [0; GROUPS]) {
                self.each_from(head, |block| {
                    // SAFETY: the class's lock is held.
                    unsafe { *self.info(block) = Info::default() };
                    self.return_blocks(block, 1);
                });
            }
            self.empties.fetch_sub(count, Relaxed);
            self.counters.returned_blocks.fetch_add(count as u64, Relaxed);
            is_any = true;
        }
        is_any
    }

    /// Calls `see` with each block of a list. How many there are.
    fn each_from(&self, first: u32, mut see: impl FnMut(BlockId)) -> usize {
        let (mut next, mut count) = (first, 0);
        while next != 0 {
            let block = BlockId(next);
            // SAFETY: the lock of the list's class is held.
            next = unsafe { (*self.info(block)).after };
            see(block);
            count += 1;
        }
        count
    }
}
