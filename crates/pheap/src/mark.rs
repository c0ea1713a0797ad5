//! Marking: the objects that are reachable from the roots (section 9.2).
//!
//! The types of typed objects name their pointers. Of an object without a type every word is a candidate. An object is marked when it is first
//! found, and then waits on a stack. Its first line is prefetched meanwhile, so that several cache misses overlap. An array is followed piece
//! by piece: so a stack holds at most the objects that were found, and a piece of each array among them. Where pointers to an array name
//! different numbers of its values, all of the longest is followed.
//!
//! Marks are bits in transient memory. The heap's own mark bits change only after all marks are set.

use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
use core::sync::atomic::{AtomicU64, Ordering::*};

use spandrel_pmem::Medium;

use crate::error::Error;
use crate::header::Header;
use crate::layout::{BITS_WORDS, BLOCK_BYTES, BlockId, GRANULE_BYTES};
use crate::longer::Longer;
use crate::memory::Table;
use crate::pointer::offset_of;
use crate::shared::Core;
use crate::stack::Stack;
use crate::trace::{Mark, Target, Tracer};
use crate::workers::{Items, SHARED};

/// Objects that are being fetched at once; half of them one right after the other. To mark is a locked instruction, which waits for all
/// before it to be done, also for translations of addresses that are to be fetched: where they alternate these come one at a time, and are
/// half of all time.
const FETCHED: usize = 64;
/// From this number of waiting items on half of them are left to a thread that has none.
const SHARED_FROM: usize = 8;
/// Values of an array, or words of an object without a type, that are looked at in one go.
const PIECE: usize = 256;
/// A worker reports its progress after this number of items, which take some milliseconds.
const REPORT_ITEMS: u32 = 1 << 16;
const WORD_BITS: usize = 64;

/// An object, or a part of an array, that waits.
#[derive(Clone, Copy)]
pub struct Item {
    at: usize,
    to: Target,
}

/// Where a reachable object lies.
#[derive(Clone, Copy)]
pub struct Found {
    pub block: BlockId,
    /// Its number in the block.
    pub number: usize,
    /// Where it begins.
    pub start: usize,
    pub bytes: usize,
}

/// The marks of a heap during a collection or a check.
pub struct Marks {
    words: Table<AtomicU64>,
    longer: Longer,
}

impl Marks {
    pub fn new(blocks: usize) -> Result<Self, Error> {
        let words = Table::reserve(blocks * BITS_WORDS)?;
        words.ensure(blocks * BITS_WORDS)?;
        words.populate();
        Ok(Self { words, longer: Longer::new() })
    }

    /// The marks of a block.
    pub fn word(&self, block: BlockId, word: usize) -> u64 {
        let index = block.0 as usize * BITS_WORDS + word;
        self.words.all().get(index).map_or(0, |word| word.load(Relaxed))
    }

    /// Sets one. Whether it was not set before.
    fn set(&self, found: &Found) -> bool {
        let index = found.block.0 as usize * BITS_WORDS + found.number / WORD_BITS;
        let bit = 1 << (found.number % WORD_BITS);
        self.words.all().get(index).is_some_and(|word| {
            // What was noted of the object before it was marked is seen with the mark.
            word.load(Acquire) & bit == 0 && word.fetch_or(bit, AcqRel) & bit == 0
        })
    }
}

impl<M: Medium> Core<M> {
    /// The object that an offset lies in, if there is one by the headers.
    #[inline]
    pub fn object_of(&self, at: usize) -> Option<Found> {
        if at >= self.bytes() {
            return None;
        }
        let mut block = BlockId::of(at);
        let mut region = block.region();
        while self.is_continued(region) {
            region -= 1;
            block = crate::layout::first_block(region);
        }
        if block < crate::layout::first_block(region) {
            return None;
        }
        let word = self.load(block.header());
        if let Some(class) = Header::class(word) {
            let number = class.object_at(at - block.start());
            let start = block.start() + number * class.bytes();
            return (number < class.objects()).then_some(Found {
                block,
                number,
                start,
                bytes: class.bytes(),
            });
        }
        match Header::parse(word, block)? {
            Header::Large(count) => self.in_large(block, count, at),
            Header::Lost => Some(self.in_lost(block, at)),
            _ => self.large_before(block, at),
        }
    }

    fn in_large(&self, block: BlockId, count: u32, at: usize) -> Option<Found> {
        let (start, bytes) = (block.start(), count as usize * BLOCK_BYTES);
        let end = start + bytes;
        // The header of a heap that was not closed may have any length until a collection has compared it.
        (at < end && end <= self.bytes()).then_some(Found { block, number: 0, start, bytes })
    }

    /// What may begin at a granule of a block that was set aside: the sizes of objects there are not known, so that it may be as long as
    /// blocks that were set aside follow.
    fn in_lost(&self, block: BlockId, at: usize) -> Found {
        let last = (block.region() + 1) * crate::layout::REGION_BLOCKS;
        let last = last.min(self.bytes() / BLOCK_BYTES) as u32;
        let is_lost = |next: &u32| matches!(self.header(BlockId(*next)), Ok(Header::Lost));
        let count = (block.0..last).take_while(is_lost).count();
        let start = at & !(GRANULE_BYTES - 1);
        let bytes = block.start() + count * BLOCK_BYTES - start;
        Found { block, number: (start - block.start()) / GRANULE_BYTES, start, bytes }
    }

    /// Whether a block was set aside.
    fn is_lost(&self, block: BlockId) -> bool {
        Header::is_lost(self.load(block.header()))
    }

    /// The large object that covers a block which says that it is free.
    fn large_before(&self, block: BlockId, at: usize) -> Option<Found> {
        let first = crate::layout::first_block(block.region());
        let before = (first.0..block.0).rev().map(BlockId);
        for block in before {
            match Header::parse(self.load(block.header()), block)? {
                Header::Free => {}
                Header::Small(_) | Header::Lost => return None,
                Header::Large(count) => return self.in_large(block, count, at),
            }
        }
        None
    }

    /// Whether a heap's own mark bit says that an object is allocated.
    pub fn is_marked(&self, found: &Found) -> bool {
        let is_small = Header::class(self.load(found.block.header())).is_some();
        let word = self.load(found.block.bits() + found.number / WORD_BITS * 8);
        !is_small || word >> (found.number % WORD_BITS) & 1 == 1
    }

    /// The offset that a word of an object without a type may mean.
    #[inline]
    pub fn meant(&self, word: u64) -> Option<usize> {
        if let Some(offset) = offset_of(word) {
            return Some(offset);
        }
        let offset = (word as usize).wrapping_sub(self.base() as usize);
        (self.identity.base != 0 && offset < self.bytes()).then_some(offset)
    }
}

/// How to mark.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To free the rest: pointers of typed objects that lead nowhere are cleared.
    Collect,
    /// To see what is there, of a heap whose mark bits say nothing.
    Look,
    /// To see what is there, of a heap whose mark bits are right: a word of an object without a type that leads to what is free is
    /// not taken for a pointer. It is what an earlier object left there.
    LookAtAllocated,
}

/// One of the threads that mark.
pub struct Worker<'a, M: Medium> {
    core: &'a Core<M>,
    marks: &'a Marks,
    pool: &'a Items,
    stack: Stack<Item>,
    ring: [Option<Item>; FETCHED],
    head: usize,
    in_ring: usize,
    /// Pointers that led nowhere and were cleared.
    pub cleared: u64,
    pub marked: u64,
    pub marked_bytes: u64,
    looked: u32,
    /// Blocks of what was marked that the progress has counted.
    reported: u64,
    purpose: Purpose,
    pub failed: Option<Error>,
}

impl<'a, M: Medium> Worker<'a, M> {
    pub fn new(core: &'a Core<M>, marks: &'a Marks, pool: &'a Items, purpose: Purpose) -> Self {
        Self {
            core,
            marks,
            pool,
            stack: Stack::new(),
            ring: [None; FETCHED],
            head: 0,
            in_ring: 0,
            cleared: 0,
            marked: 0,
            marked_bytes: 0,
            looked: 0,
            reported: 0,
            purpose,
            failed: None,
        }
    }

    /// The word at that offset is a root, of some type or of none.
    pub fn root(&mut self, at: usize, to: Option<Target>) {
        let word = self.core.load(at);
        match to {
            Some(to) => self.pointer(self.core.at(at).as_ptr().cast(), to),
            None => self.candidate(word),
        }
    }

    /// Follows all that was met, and what others have left over.
    pub fn run(&mut self) {
        loop {
            while let Some(item) = self.next() {
                self.look_at(item);
                self.looked = self.looked.wrapping_add(1);
                if self.looked.is_multiple_of(REPORT_ITEMS) {
                    let blocks = self.marked_bytes / BLOCK_BYTES as u64;
                    self.core.progress.add(blocks - core::mem::replace(&mut self.reported, blocks));
                }
                if self.stack.height() > SHARED_FROM && self.pool.is_wanted() {
                    self.share();
                }
            }
            let Some(taken) = self.pool.take() else { return };
            taken.into_iter().flatten().for_each(|item| self.push(item));
        }
    }

    /// Leaves some of what waits to threads that have nothing.
    fn share(&mut self) {
        let count = (self.stack.height() / 2).min(SHARED);
        let mut items = [const { None }; SHARED];
        items.iter_mut().take(count).for_each(|item| *item = self.stack.pop());
        if let Err(items) = self.pool.leave(items) {
            items.into_iter().rev().flatten().for_each(|item| self.push(item));
        }
    }

    fn push(&mut self, item: Item) {
        if let Err(why) = self.stack.push(item) {
            self.failed = Some(why);
        }
    }

    /// The next item, of which the first line was fetched while others were looked at.
    fn next(&mut self) -> Option<Item> {
        let most = if self.in_ring <= FETCHED / 2 { FETCHED } else { 0 };
        while self.in_ring < most
            && let Some(item) = self.stack.pop()
        {
            // SAFETY: to fetch changes nothing.
            unsafe { _mm_prefetch(self.core.at(item.at).as_ptr().cast(), _MM_HINT_T0) };
            self.ring[(self.head + self.in_ring) % FETCHED] = Some(item);
            self.in_ring += 1;
        }
        self.in_ring = self.in_ring.checked_sub(1)?;
        let item = self.ring[self.head].take();
        self.head = (self.head + 1) % FETCHED;
        item
    }

    /// Looks at a piece of what an item names, and leaves the rest for later.
    fn look_at(&mut self, item: Item) {
        let Item { at, to } = item;
        let now = to.count.min(PIECE);
        if to.count > now {
            let rest = Target { count: to.count - now, ..to };
            self.push(Item { at: at + now * to.bytes, to: rest });
        }
        match to.trace {
            Some(trace) => {
                for number in 0..now {
                    let value = self.core.at(at + number * to.bytes).as_ptr();
                    // SAFETY: within an object that is large enough.
                    unsafe { trace(value, &mut Tracer(self)) };
                }
            }
            None => (0..now).for_each(|number| self.candidate(self.core.load(at + number * 8))),
        }
    }

    /// A word that may be a pointer.
    #[inline]
    fn candidate(&mut self, word: u64) {
        if let Some(at) = self.core.meant(word)
            && let Some(found) = self.core.object_of(at)
            && (self.purpose != Purpose::LookAtAllocated || self.core.is_marked(&found))
        {
            if self.core.is_lost(found.block) {
                return self.blocks_set_aside(found.block);
            }
            if self.mark(&found) || self.takes_words(&found) {
                let to = Target { trace: None, bytes: 8, count: found.bytes / 8 };
                self.push(Item { at: found.start, to });
            }
        }
    }

    /// A word may lead into a block that was set aside: all words of the block may be pointers, and of those that follow and were set aside
    /// as well, as what begins there may go on in them. Each of them once.
    #[cold]
    fn blocks_set_aside(&mut self, first: BlockId) {
        let mut block = first;
        // A granule that only the shortest objects begin at stands for all of a block.
        let number = BLOCK_BYTES / GRANULE_BYTES - 1;
        while block.start() < self.core.bytes() && self.core.is_lost(block) {
            let start = block.start();
            if !self.mark(&Found { block, number, start, bytes: BLOCK_BYTES }) {
                return;
            }
            self.push(Item {
                at: start,
                to: Target { trace: None, bytes: 8, count: BLOCK_BYTES / 8 },
            });
            block = block.plus(1);
            if block.in_region() == 0 {
                return;
            }
        }
    }

    /// Whether a pointer that said that there is no value led to an object that was marked before, and nothing else did.
    #[inline]
    fn takes_words(&mut self, found: &Found) -> bool {
        self.marks.longer.takes_words(found.start).unwrap_or_else(|why| {
            self.failed = Some(why);
            false
        })
    }

    /// Marks an object. Returns how many of the values that a pointer names need not be followed: the pointer that led there first may have
    /// named fewer, or none.
    #[inline]
    fn followed(&mut self, found: &Found, to: Target) -> usize {
        let longer = &self.marks.longer;
        if to.trace.is_none() {
            self.mark(found);
            return to.count;
        }
        let noted = if to.count == 0 { longer.is_empty(found.start) } else { Ok(()) };
        let is_new = self.mark(found);
        let followed = noted
            .and_then(|()| if is_new { Ok(0) } else { longer.followed(found.start, to.count) });
        followed.unwrap_or_else(|why| {
            self.failed = Some(why);
            to.count
        })
    }

    fn mark(&mut self, found: &Found) -> bool {
        let is_new = self.marks.set(found);
        self.marked += u64::from(is_new);
        self.marked_bytes += if is_new { found.bytes as u64 } else { 0 };
        is_new
    }
}

impl<M: Medium> Mark for Worker<'_, M> {
    fn pointer(&mut self, place: *const u64, to: Target) {
        // SAFETY: a pointer in an object that is followed, aligned as its type is.
        let word = unsafe { place.read_volatile() };
        if word == 0 {
            return;
        }
        let found = self.core.meant(word).and_then(|at| {
            let found = self.core.object_of(at)?;
            (at == found.start && to.bytes <= found.bytes).then_some(found)
        });
        let Some(found) = found else {
            self.cleared += 1;
            if self.purpose == Purpose::Collect {
                let at = self.core.offset(place.cast());
                // SAFETY: of the heap. Another thread that looks at the same value stores the same, if it does.
                unsafe { self.core.medium.store_word(at, 0) };
                self.core.medium.write_back(at, 8);
            }
            return;
        };
        let count = to.count.min(found.bytes / to.bytes.max(1));
        let followed = self.followed(&found, Target { count, ..to });
        if followed < count {
            let to = Target { count: count - followed, ..to };
            self.push(Item { at: found.start + followed * to.bytes, to });
        }
    }

    fn behind(&mut self, at: *const u8, skipped: usize, what: Target) {
        let at = self.core.offset(at);
        let Some(found) = self.core.object_of(at).filter(|_| what.trace.is_some()) else { return };
        let fit = (found.start + found.bytes - at) / what.bytes.max(1);
        let count = what.count.min(fit.saturating_sub(skipped));
        if count > 0 {
            self.push(Item { at: at + skipped * what.bytes, to: Target { count, ..what } });
        }
    }

    fn words(&mut self, at: *const u8, bytes: usize) {
        let from = self.core.offset(at).next_multiple_of(8);
        let to = (self.core.offset(at) + bytes).min(self.core.bytes()) & !7;
        (from..to).step_by(8).for_each(|at| self.candidate(self.core.load(at)));
    }
}
