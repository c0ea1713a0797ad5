//! The core of an open heap: the state that all its parts share.

use core::ptr::{self, NonNull};
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::*,
};

use spandrel_pmem::Medium;
use spandrel_sync::{CachePadded, Lock};

use crate::blocks::{Blocks, Info};
use crate::cache::Cache;
use crate::class::{CLASSES, Class};
use crate::error::Error;
use crate::gate::Gate;
use crate::header::Header;
use crate::layout::{BLOCK_BYTES, BlockId, REGION_BYTES};
use crate::lazy::Lazy;
use crate::memory::Table;
use crate::partial::Partial;
use crate::progress::Progress;
use crate::superblock::{Identity, Record};
use crate::transaction::Transactions;

/// Counters of work since the heap was opened.
#[derive(Default)]
pub struct Counters {
    /// Lines written back.
    pub flushes: AtomicU64,
    /// Fences.
    pub fences: AtomicU64,
    /// Blocks that got a header.
    pub fresh_blocks: AtomicU64,
    /// Blocks that became free again.
    pub returned_blocks: AtomicU64,
    /// Caches that were filled.
    pub refills: AtomicU64,
}

/// See the head of this file.
pub struct Core<M: Medium> {
    base: *mut u8,
    bytes: AtomicUsize,
    /// The gate of operations and checkpoints, with the process that opened the heap.
    pub gate: Gate,
    /// The number of the heap in [`crate::registry`].
    pub number: AtomicUsize,
    pub identity: Identity,
    pub record: Lock<Record>,
    pub lazy: Lazy,
    pub infos: Table<Info>,
    /// For each scanned block the tag of the class of its small objects ([`Class::tag`]): a free reads nothing of the heap but the object.
    pub tags: Table<AtomicU8>,
    /// For each region whether an object of the region before continues in it.
    pub continues: Table<AtomicU8>,
    /// For each scanned region the two sums that its line gets when the heap is closed; see [`crate::sums`].
    pub region_sums: Table<AtomicU64>,
    /// The first damage that was found since the heap was opened. A heap with damage is not closed.
    pub damage: Lock<Option<Error>>,
    pub blocks: Lock<Blocks>,
    /// The number of scanned regions: all before this one. It changes under the lock of the blocks.
    pub scanned: AtomicUsize,
    /// For each class the scanned blocks with free objects that are not in the class's list yet; under the same lock.
    pub found: [AtomicU32; CLASSES],
    pub partial: [CachePadded<Lock<Partial>>; CLASSES],
    /// The number of blocks without objects in all of these lists.
    pub empties: CachePadded<AtomicUsize>,
    /// Roots and their names.
    pub roots: Lock<()>,
    /// Transactions over several operations.
    pub transactions: Transactions,
    /// Headers of large objects, and the blocks that they cover. Acquired before the lock of the blocks.
    pub large: Lock<()>,
    /// A free object in a cache begins with this word mixed with its offset.
    pub canary: u64,
    pub counters: CachePadded<Counters>,
    /// The progress of a collection or of a check.
    pub progress: Progress,
    /// Threads that end pass it to give their caches back. It is shut while the heap stands still: then their caches stay as they are.
    pub ends: spandrel_sync::Gate<1>,
    /// A thread has ended meanwhile, and its cache has objects.
    pub has_orphans: AtomicBool,
    /// Caches of threads, and those of threads that have ended.
    pub caches: Lock<Caches>,
    /// Handles of collections that were opened.
    pub handles: AtomicU64,
    /// The heap was not closed, and no collection has marked its reachable objects yet.
    pub needs_collection: AtomicBool,
    /// Headers and mark bits are exact though the heap was not closed, on a medium that is not atomic itself; see [`Core::is_exact`].
    pub is_replica: AtomicBool,
    /// The callback of [`crate::Heap::free`]; see [`crate::Heap::set_free_callback`].
    pub callback: AtomicPtr<()>,
    pub callback_data: AtomicPtr<u8>,
    /// The last field is dropped last: while the kernel unmaps the medium, the memory of other fields could not be released.
    pub medium: M,
}

/// All caches of a heap: a list.
pub struct Caches {
    pub first: *mut Cache,
}

// SAFETY: the pointers lead to caches of the heap, which the lock guards.
unsafe impl Send for Caches {}
// SAFETY: each field is atomic, under a lock, constant, or of one thread.
unsafe impl<M: Medium + Send> Send for Core<M> {}
// SAFETY: as above.
unsafe impl<M: Medium> Sync for Core<M> {}

impl<M: Medium> Core<M> {
    /// The core of a heap on a medium. No block is scanned yet.
    pub fn new(medium: M, identity: Identity, record: Record, canary: u64) -> Result<Self, Error> {
        let base = medium.base().as_ptr();
        let most = medium.limit() / BLOCK_BYTES;
        let mut blocks = Blocks::new(most)?;
        blocks.count = medium.bytes() / BLOCK_BYTES;
        let core = Self {
            base,
            bytes: AtomicUsize::new(blocks.count * BLOCK_BYTES),
            gate: Gate::new()?,
            number: AtomicUsize::new(usize::MAX),
            identity,
            record: Lock::new(record),
            // SAFETY: numbers.
            lazy: unsafe { core::mem::zeroed() },
            infos: Table::reserve(most)?,
            tags: Table::reserve(most)?,
            continues: Table::reserve(most.div_ceil(REGION_BYTES / BLOCK_BYTES))?,
            region_sums: Table::reserve(2 * most.div_ceil(REGION_BYTES / BLOCK_BYTES))?,
            damage: Lock::new(None),
            blocks: Lock::new(blocks),
            scanned: AtomicUsize::new(0),
            found: [const { AtomicU32::new(0) }; CLASSES],
            partial: [const { CachePadded::new(Lock::new(Partial::new())) }; CLASSES],
            empties: CachePadded::new(AtomicUsize::new(0)),
            roots: Lock::new(()),
            transactions: Transactions::new(),
            large: Lock::new(()),
            canary,
            counters: CachePadded::default(),
            progress: Progress::new(),
            ends: spandrel_sync::Gate::new(),
            has_orphans: AtomicBool::new(false),
            caches: Lock::new(Caches { first: ptr::null_mut() }),
            handles: AtomicU64::new(0),
            needs_collection: AtomicBool::new(false),
            is_replica: AtomicBool::new(false),
            callback: AtomicPtr::new(ptr::null_mut()),
            callback_data: AtomicPtr::new(ptr::null_mut()),
            medium,
        };
        if !core.medium.has_lines() {
            core.lazy.turn_off();
        }
        let blocks = core.blocks.lock();
        core.ensure_tables(&blocks, blocks.count)?;
        core.note_continued(blocks.count);
        drop(blocks);
        Ok(core)
    }

    /// The address of the heap.
    #[inline]
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Bytes of the heap.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    pub fn note_bytes(&self, bytes: usize) {
        self.bytes.store(bytes, Release);
    }

    /// The address of an offset within the heap.
    #[inline]
    pub fn at(&self, offset: usize) -> NonNull<u8> {
        // SAFETY: within the medium; what is mapped does not begin at null.
        unsafe { NonNull::new_unchecked(self.base.add(offset)) }
    }

    /// The offset of an address. An address outside of the heap has an offset of at least the heap's length.
    #[inline]
    pub fn offset(&self, at: *const u8) -> usize {
        (at as usize).wrapping_sub(self.base as usize)
    }

    /// A word of metadata.
    #[inline]
    pub fn load(&self, at: usize) -> u64 {
        debug_assert!(at + 8 <= self.bytes());
        // SAFETY: within the medium, aligned; metadata is written as words.
        unsafe { (*self.base.add(at).cast::<AtomicU64>()).load(Relaxed) }
    }

    /// Stores a word of metadata.
    #[inline]
    pub fn store(&self, at: usize, word: u64) {
        // SAFETY: within the medium; the callers hold the lock that it is under.
        unsafe { self.medium.store_word(at, word) };
    }

    /// The header of a block.
    #[inline]
    pub fn header(&self, block: BlockId) -> Result<Header, Error> {
        let damaged = Error::Damaged { at: block.header() as u64, what: "the header of a block" };
        Header::parse(self.load(block.header()), block).ok_or(damaged)
    }

    /// Stores a header, and waits until it is durable.
    pub fn set_header(&self, block: BlockId, header: Header) {
        self.store_header(block, header);
        self.write_back(block.header(), 8);
        self.fence();
    }

    /// Records damage: the heap is not closed then, and the next opening recovers it.
    pub fn note_damage(&self, why: Error) -> Error {
        self.damage.lock().get_or_insert(why);
        why
    }

    /// The transient state of a block.
    #[inline]
    pub fn info(&self, block: BlockId) -> *mut Info {
        // A block of the heap has its place.
        self.infos.pointer(block.0 as usize).unwrap_or(ptr::null_mut())
    }

    /// Whether an object of the region before continues in this one.
    #[inline]
    pub fn is_continued(&self, region: usize) -> bool {
        self.continues.all().get(region).is_some_and(|continued| continued.load(Relaxed) != 0)
    }

    pub fn set_continues(&self, region: usize, continues: bool) {
        if let Some(place) = self.continues.all().get(region) {
            place.store(continues.into(), Release);
        }
    }

    /// Writes lines back, and counts them.
    pub fn write_back(&self, at: usize, len: usize) {
        self.counters.flushes.fetch_add(spandrel_pmem::lines(at, len).len() as u64, Relaxed);
        self.medium.write_back(at, len);
    }

    /// Fences, and counts the fence.
    pub fn fence(&self) {
        self.counters.fences.fetch_add(1, Relaxed);
        self.medium.fence();
    }

    /// Refuses an operation that needs a collection first.
    pub fn check_collected(&self) -> Result<(), Error> {
        if self.needs_collection.load(Relaxed) { Err(Error::NeedsRecovery) } else { Ok(()) }
    }

    /// Whether headers and mark bits are those of a moment between two operations, also of a heap that was not closed: its medium is atomic, or
    /// the file is the replica of such a medium.
    pub fn is_exact(&self) -> bool {
        self.medium.is_atomic() || self.is_replica.load(Relaxed)
    }

    /// The class of the small object that begins at an offset; `None` also for blocks that are not scanned.
    #[inline]
    pub fn small_at(&self, at: usize) -> Option<Class> {
        let tag = self.tags.all().get(at / BLOCK_BYTES)?.load(Relaxed);
        Class::that_begins(tag, at % BLOCK_BYTES)
    }

    /// Sets the tag of a block: a class, or 0 for no small objects.
    pub fn set_tag(&self, block: BlockId, tag: u8) {
        if let Some(place) = self.tags.all().get(block.0 as usize) {
            place.store(tag, Relaxed);
        }
    }

    /// The first word of a free object in a cache.
    #[inline]
    fn canary_of(&self, at: usize) -> u64 {
        self.canary ^ at as u64
    }

    /// Whether the first word of an object marks it as free.
    #[inline]
    pub fn has_canary(&self, at: usize) -> bool {
        self.load(at) == self.canary_of(at)
    }

    /// Marks an object as free by its first word.
    #[inline]
    pub fn set_canary(&self, at: usize) {
        self.store(at, self.canary_of(at));
    }

    /// Removes the mark of a free object.
    #[inline]
    pub fn forget_canary(&self, at: usize) {
        self.store(at, 0);
    }

    /// The number of bytes that an object has room for.
    pub fn usable(&self, object: NonNull<u8>) -> Result<usize, Error> {
        let at = self.offset(object.as_ptr());
        let found = self.object_of(at).filter(|found| found.start == at);
        found.map(|found| found.bytes).ok_or(Error::Foreign(object.as_ptr() as usize))
    }

    /// Makes a large object longer in place, if the blocks behind it are free.
    pub fn grow_large(&self, object: NonNull<u8>, bytes: usize) -> bool {
        let _large = self.large.lock();
        let block = BlockId::of(self.offset(object.as_ptr()));
        let Ok(Header::Large(has)) = self.header(block) else { return false };
        let (has, needs) = (has as usize, bytes.div_ceil(BLOCK_BYTES));
        if block.in_region() + needs > REGION_BYTES / BLOCK_BYTES
            || !self.take_blocks_at(block.plus(has), needs - has)
        {
            return false;
        }
        self.set_header(block, Header::Large(needs as u32));
        true
    }

    /// Refuses changes by a child of the process that opened the heap, and those of a heap that was opened to be read only, at the cost of one
    /// load.
    #[inline]
    pub fn check_process(&self) -> Result<(), Error> {
        self.gate.origin().check()
    }
}
