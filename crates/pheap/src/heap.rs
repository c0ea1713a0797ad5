//! An open heap.

use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::*;

use spandrel_os::vm;
use spandrel_pages::PAGE_BYTES;
use spandrel_pmem::{Choice, Media, Medium};

use crate::class::{Class, SMALL_CLASSES};
use crate::collect::Collected;
use crate::error::Error;
use crate::header::Header;
use crate::layout::{BLOCK_BYTES, BlockId, LEAST_BYTES, REGION_BLOCKS, first_block};
use crate::progress::Watcher;
use crate::registry;
use crate::roots::RootType;
use crate::shared::Core;
use crate::sums::Sums;
use crate::superblock::{Identity, OLD_VERSION, Record, State, forget_asking};
use crate::transaction_log;
use crate::undo;

/// What [`Heap::free`] calls instead of freeing, with the object and what was given with it.
pub type FreeCallback = unsafe extern "C" fn(*mut u8, *mut u8);

/// A heap whose objects outlive the process. See the crate's documentation.
pub struct Heap<M: Medium = Media> {
    pub(crate) core: NonNull<Core<M>>,
}

// SAFETY: all that it shares is locked or atomic; caches are their threads'.
unsafe impl<M: Medium + Send> Send for Heap<M> {}
// SAFETY: as above.
unsafe impl<M: Medium + Send> Sync for Heap<M> {}

impl<M: Medium> fmt::Debug for Heap<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heap")
            .field("base", &self.base())
            .field("bytes", &self.bytes())
            .field("limit", &self.medium().limit())
            .field("fixed_base", &self.fixed_base())
            .field("needs_recovery", &self.core().needs_collection.load(Relaxed))
            .finish_non_exhaustive()
    }
}

/// What a heap was like when it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Opened {
    /// It was made just now, and holds nothing; see [`Options::open_or_create`](crate::Options::open_or_create).
    pub created: bool,
    /// It had been closed, or is new. If not, it was recovered, or has to be.
    pub was_clean: bool,
    /// What recovery has found.
    pub collected: Option<Collected>,
    /// Copies of the heap's identity that were damaged and are whole again: 0 to 2.
    pub mended: u64,
}

pub(crate) const fn core_bytes<M: Medium>() -> usize {
    size_of::<Core<M>>().next_multiple_of(PAGE_BYTES)
}

/// Makes a medium of zeroes a heap that is closed and empty. All that is not zero lies before [`FORMATTED_BYTES`].
///
/// # Errors
/// As for [`Heap::create`].
pub(crate) fn format(medium: &impl Medium, identity: Identity, layout: u64) -> Result<(), Error> {
    let bytes = medium.bytes() / BLOCK_BYTES * BLOCK_BYTES;
    if bytes < LEAST_BYTES {
        return Err(Error::Size(medium.bytes()));
    }
    if !matches!(Identity::read(medium), Err(Error::NotAHeap | Error::Unfinished)) {
        return Err(Error::NotAHeap);
    }
    let (state, bytes, sums) = (State::Clean, bytes as u64, Sums::default());
    let (sequence, generation, features, closed) = (0, 0, 0, 0);
    Record { sequence, state, bytes, generation, layout, features, closed, sums }.put(medium);
    identity.write(medium);
    Ok(medium.checkpoint()?)
}

/// Bytes of a new heap of which some are not zero.
pub(crate) const FORMATTED_BYTES: usize = first_block(0).start();

impl<M: Medium> Heap<M> {
    /// Makes a heap of a medium of zeroes.
    ///
    /// # Errors
    /// [`Error::Size`]: the medium is too small; [`Error::NotAHeap`]: it is not zero where the heap's identity is to stand.
    pub fn create(medium: M, uuid: [u64; 2], base: u64, layout: u64) -> Result<Self, Error> {
        format(&medium, Identity { uuid, base, medium: Choice::Auto }, layout)?;
        Self::open(medium, layout, Some(&[])).map(|(heap, _)| heap)
    }

    /// Opens a heap. One that was not closed is recovered: what cannot be reached from the roots, of which `types` says the
    /// types, becomes free.
    ///
    /// Without `types` a heap that was not closed is left without (section 10.1, `MAK_start_off`): nothing can be allocated before
    /// [`Heap::collect`].
    ///
    /// # Errors
    /// It is none, or a damaged one, or another's; see [`Error`]. The medium may hold a heap that was begun to be recovered.
    pub fn open(
        medium: M,
        layout: u64,
        types: Option<&[RootType<'_>]>,
    ) -> Result<(Self, Opened), Error> {
        // A number and room first: a heap that is refused for want of them is as it was.
        let number = registry::register()?;
        let place = Self::place().inspect_err(|_| registry::unregister(number, || ()))?;
        let prepared = Self::prepare(medium, layout).inspect_err(|_| {
            registry::unregister(number, || ());
            // SAFETY: reserved above, and used by no other code.
            unsafe { vm::release(place.as_ptr().cast(), core_bytes::<M>()) };
        });
        let (core, was_clean, mended) = prepared?;
        core.number.store(number, Release);
        core.gate.register(number);
        // SAFETY: mapped for it.
        unsafe { place.write(core) };
        let mut heap = Self { core: place };
        let collected = match types {
            Some(types) if !was_clean => Some(heap.collect(types)?),
            _ => None,
        };
        Ok((heap, Opened { created: false, was_clean, collected, mended }))
    }

    /// Looks at what a medium says of itself, and says there that the heap is open. Whether it had been closed, and how many
    /// copies of its identity had to be mended.
    fn prepare(medium: M, layout: u64) -> Result<(Core<M>, bool, u64), Error> {
        let (identity, version) = Identity::find(&medium)?;
        let mut record = Record::read(&medium)?;
        if layout != 0 && record.layout != 0 && layout != record.layout {
            return Err(Error::Layout { heap: record.layout, given: layout });
        }
        let base = medium.base().as_ptr() as u64;
        if identity.base != 0 && identity.base != base {
            return Err(Error::BaseTaken(identity.base));
        }
        let was_clean = record.state == State::Clean;
        let canary = spandrel_os::clock::nanos().wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ base;
        let core = Core::new(medium, identity, record, canary)?;
        if version == OLD_VERSION {
            record = core.upgrade(record)?;
        } else if was_clean {
            core.verify_closed(&record)?;
            undo::forget(&core.medium, record.sums.undo);
            transaction_log::forget_closed(&core.medium);
        }
        forget_asking(&core.medium);
        // Damage would meet the next opening otherwise, without a second copy.
        let mended = identity.mend(&core.medium);
        record.state = State::Dirty;
        record.bytes = (core.medium.bytes() / BLOCK_BYTES * BLOCK_BYTES) as u64;
        // A damaged record may have the last number.
        record.generation = record.generation.wrapping_add(1);
        // Durable before anything changes.
        record.put(&core.medium);
        *core.record.lock() = record;
        core.medium.checkpoint()?;
        if !was_clean {
            undo::replay(&core.medium, undo::Format::Checked)?;
            transaction_log::replay(&core.medium)?;
            core.needs_collection.store(true, Release);
        }
        Ok((core, was_clean, mended))
    }

    /// Room for the core, which stays where it is: caches know its address.
    fn place() -> Result<NonNull<Core<M>>, Error> {
        let at = vm::reserve(core_bytes::<M>()).ok_or(Error::NoMemory)?;
        // SAFETY: reserved above, and used by no other code.
        unsafe {
            if vm::open(at.as_ptr(), core_bytes::<M>()) {
                return Ok(at.cast());
            }
            vm::release(at.as_ptr(), core_bytes::<M>());
        }
        Err(Error::NoMemory)
    }

    /// The heap that is placed there.
    pub(crate) fn of(core: NonNull<Core<M>>) -> Self {
        Self { core }
    }

    /// The address that the heap is always mapped at; `None`: any.
    pub fn fixed_base(&self) -> Option<u64> {
        Some(self.core().identity.base).filter(|base| *base != 0)
    }

    #[inline]
    pub(crate) fn core(&self) -> &Core<M> {
        // SAFETY: placed there, until the heap is dropped.
        unsafe { self.core.as_ref() }
    }

    /// The medium that it lies on.
    #[inline]
    pub fn medium(&self) -> &M {
        &self.core().medium
    }

    /// Where it begins, in this process.
    #[inline]
    pub fn base(&self) -> NonNull<u8> {
        self.core().at(0)
    }

    /// Bytes of the heap, free ones included.
    pub fn bytes(&self) -> usize {
        self.core().bytes()
    }

    /// Allocates an object of at least `bytes` bytes, aligned to 16; what it holds is anything. It is there after a failure if it can be
    /// reached then.
    ///
    /// # Errors
    /// [`Error::is_full`], [`Error::Size`], [`Error::Forked`], and [`Error::NeedsRecovery`] before [`Heap::collect`].
    #[inline]
    pub fn alloc(&self, bytes: usize) -> Result<NonNull<u8>, Error> {
        match Class::of(bytes) {
            Some(class) if class.index() < SMALL_CLASSES => self.alloc_small(class),
            Some(class) => self.alloc_medium(class),
            None => self.alloc_large(bytes),
        }
    }

    #[inline]
    fn alloc_small(&self, class: Class) -> Result<NonNull<u8>, Error> {
        let core = self.core();
        if let Some(object) = core.cache().and_then(|cache| cache.pop(class)) {
            core.forget_canary(core.offset(object.as_ptr()));
            return Ok(object);
        }
        self.alloc_slowly(class)
    }

    #[cold]
    #[inline(never)]
    fn alloc_slowly(&self, class: Class) -> Result<NonNull<u8>, Error> {
        let core = self.core();
        core.check_collected()?;
        let object = core.refill(class)?;
        core.forget_canary(core.offset(object.as_ptr()));
        Ok(object)
    }

    #[cold]
    fn alloc_medium(&self, class: Class) -> Result<NonNull<u8>, Error> {
        let core = self.core();
        core.check_process()?;
        core.check_collected()?;
        let mut object = [core.at(0)];
        let group = core.cache().map_or(0, |cache| cache.group());
        core.take_objects(class, group, &mut object)?;
        Ok(object[0])
    }

    #[cold]
    fn alloc_large(&self, bytes: usize) -> Result<NonNull<u8>, Error> {
        let core = self.core();
        core.check_process()?;
        core.check_collected()?;
        let count = bytes.div_ceil(BLOCK_BYTES);
        if count > u32::MAX as usize / 2 {
            return Err(Error::Size(bytes));
        }
        let _large = core.large.lock();
        let block = core.take_blocks(count)?;
        let covered = Core::<M>::covered(block, count);
        core.set_header(block, Header::Large(covered as u32));
        Ok(core.at(block.start()))
    }

    /// The same with an alignment, a power of two of 64 KiB at most.
    ///
    /// # Errors
    /// As for [`Heap::alloc`].
    pub fn alloc_aligned(&self, bytes: usize, align: usize) -> Result<NonNull<u8>, Error> {
        if !align.is_power_of_two() || align > BLOCK_BYTES {
            return Err(Error::Size(bytes));
        }
        if align <= crate::layout::GRANULE_BYTES {
            return self.alloc(bytes);
        }
        match Class::aligned(bytes, align) {
            Some(class) if class.index() < SMALL_CLASSES => self.alloc_small(class),
            Some(class) => self.alloc_medium(class),
            None => self.alloc_large(bytes.max(align)),
        }
    }

    /// The same, and all bytes of it are zero, those beyond `bytes` as well: a collection that does not know its type then finds
    /// no pointers there that the object before has left.
    ///
    /// # Errors
    /// As for [`Heap::alloc`].
    pub fn alloc_zeroed(&self, bytes: usize) -> Result<NonNull<u8>, Error> {
        let object = self.alloc(bytes)?;
        self.fill(object, self.core().usable(object)?);
        Ok(object)
    }

    fn fill(&self, object: NonNull<u8>, bytes: usize) {
        static ZEROES: [u8; 4096] = [0; 4096];
        let at = self.core().offset(object.as_ptr());
        for from in (0..bytes).step_by(ZEROES.len()) {
            let part = (bytes - from).min(ZEROES.len());
            // SAFETY: the object was just allocated, and its caller has not got it yet.
            unsafe { self.core().medium.store(at + from, &ZEROES[..part]) };
        }
    }

    /// Frees an object. What led to it must durably do so no more: after a failure it may hold anything.
    ///
    /// # Errors
    /// [`Error::Foreign`]: it is no object of this heap; [`Error::DoubleFree`]: it is free, as far as the heap knows: one that is freed twice
    /// is found the second time, or when the thread's cache is emptied.
    ///
    /// # Safety
    /// No thread uses it any more.
    #[inline]
    pub unsafe fn free(&self, object: NonNull<u8>) -> Result<(), Error> {
        if self.core().callback.load(Relaxed).is_null() {
            // SAFETY: promised by the caller.
            return unsafe { self.safe_free(object) };
        }
        self.hand_over(object)
    }

    #[cold]
    fn hand_over(&self, object: NonNull<u8>) -> Result<(), Error> {
        let core = self.core();
        core.check_process()?;
        let callback = core.callback.load(Acquire);
        core.usable(object)?;
        // SAFETY: what was set is such a function.
        unsafe {
            let callback: FreeCallback = core::mem::transmute(callback);
            callback(object.as_ptr(), core.callback_data.load(Acquire));
        }
        Ok(())
    }

    /// Frees an object at once, also if there is a callback (`MAK_safe_free`).
    ///
    /// # Errors
    /// As for [`Heap::free`].
    ///
    /// # Safety
    /// As for [`Heap::free`].
    #[inline]
    pub unsafe fn safe_free(&self, object: NonNull<u8>) -> Result<(), Error> {
        let core = self.core();
        let at = core.offset(object.as_ptr());
        match core.small_at(at) {
            Some(_) if core.has_canary(at) => Err(Error::DoubleFree(object.as_ptr() as usize)),
            Some(class) if core.cache().is_some_and(|cache| cache.push(class, object)) => {
                core.set_canary(at);
                Ok(())
            }
            Some(class) => self.overflow(class, object),
            None => self.free_slowly(object),
        }
    }

    #[cold]
    fn overflow(&self, class: Class, object: NonNull<u8>) -> Result<(), Error> {
        let core = self.core();
        core.check_process()?;
        core.check_collected()?;
        core.set_canary(core.offset(object.as_ptr()));
        core.overflow(class, object)
    }

    #[cold]
    #[inline(never)]
    fn free_slowly(&self, object: NonNull<u8>) -> Result<(), Error> {
        let core = self.core();
        core.check_process()?;
        core.check_collected()?;
        let foreign = Error::Foreign(object.as_ptr() as usize);
        let at = core.offset(object.as_ptr());
        let block = BlockId::of(at);
        if at >= core.bytes()
            || core.is_continued(block.region())
            || block < crate::layout::first_block(block.region())
        {
            return Err(foreign);
        }
        // No header of a region changes before the region's sums were compared.
        core.scan_to(block.region())?;
        match core.header(block)? {
            Header::Small(class) => {
                let in_block = at - block.start();
                let number = class.object_at(in_block);
                if number * class.bytes() != in_block || number >= class.objects() {
                    return Err(foreign);
                }
                core.return_objects(class, &[object])
            }
            Header::Large(_) if at != block.start() => Err(foreign),
            Header::Large(count) => {
                let _large = core.large.lock();
                let count = count as usize;
                let is_whole = block.in_region() + count > REGION_BLOCKS;
                if is_whole {
                    // Blocks of regions that are free before they were looked at would change their sums unseen.
                    core.scan_to(block.plus(count - 1).region())?;
                    core.clear_regions(block, count);
                }
                core.set_header(block, Header::Free);
                if is_whole {
                    core.return_regions(block, count);
                } else {
                    core.return_blocks(block, count);
                }
                Ok(())
            }
            // What was set aside stays there until a recovery finds that nothing leads there.
            Header::Lost => Ok(()),
            // Within a large object, or free.
            Header::Free => match core.object_of(at) {
                Some(_) => Err(foreign),
                None => Err(Error::DoubleFree(object.as_ptr() as usize)),
            },
        }
    }

    /// Bytes that an object has room for.
    ///
    /// # Errors
    /// [`Error::Foreign`].
    pub fn usable_bytes(&self, object: NonNull<u8>) -> Result<usize, Error> {
        self.core().usable(object)
    }

    /// Has an object of at least `bytes` bytes that begins with what the object held: the same one if it has room, and is
    /// not more than twice as large.
    ///
    /// # Errors
    /// As for [`Heap::alloc`] and [`Heap::free`]; the object is as it was.
    ///
    /// # Safety
    /// No other thread uses it; it is the new object's, which was not written back, unless this fails.
    pub unsafe fn realloc(&self, object: NonNull<u8>, bytes: usize) -> Result<NonNull<u8>, Error> {
        let core = self.core();
        core.check_process()?;
        let has = core.usable(object)?;
        if bytes <= has && bytes * 2 >= has {
            return Ok(object);
        }
        core.check_process()?;
        if bytes > has && has >= BLOCK_BYTES && core.grow_large(object, bytes) {
            return Ok(object);
        }
        let new = self.alloc(bytes)?;
        let (at, kept) = (core.offset(new.as_ptr()), has.min(bytes));
        // SAFETY: both objects have `kept` bytes; the new one is this call's alone, and the caller keeps the old one's bytes unchanged.
        unsafe {
            core.medium.store(at, core::slice::from_raw_parts(object.as_ptr(), kept));
            if let Err(why) = self.free(object) {
                // It was free already: the new object is freed.
                self.safe_free(new)?;
                return Err(why);
            }
        }
        Ok(new)
    }

    /// From now on [`Heap::free`] hands objects to a function instead, which has [`Heap::safe_free`] called for them
    /// when that is safe (section 10); `None`: no more.
    ///
    /// # Safety
    /// The function may be called with any object and `data`, by any thread, as long as the heap is open.
    pub unsafe fn set_free_callback(&self, callback: Option<FreeCallback>, data: *mut u8) {
        let core = self.core();
        core.callback_data.store(data, Release);
        let callback = callback.map_or(core::ptr::null_mut(), |callback| callback as *mut ());
        core.callback.store(callback, Release);
    }

    /// Frees all that cannot be reached from the roots (section 9.2), of which `types` says the types; of others each word is
    /// looked at. The program must not keep pointers to objects other than in the heap: a collection does not see them.
    ///
    /// # Errors
    /// A root has another type, or there is no memory. The heap is as it was then, and has to be recovered if it had to be.
    pub fn collect(&mut self, types: &[RootType<'_>]) -> Result<Collected, Error> {
        self.collect_watched(types, None)
    }

    /// The same, with its progress reported to `watcher`.
    ///
    /// # Errors
    /// As for [`Heap::collect`].
    pub fn collect_watched(
        &mut self,
        types: &[RootType<'_>],
        watcher: Option<Watcher<'_>>,
    ) -> Result<Collected, Error> {
        let core = self.core();
        core.check_process()?;
        registry::with(|| core.drain_all());
        let steps = 2 * (core.bytes() / BLOCK_BYTES) as u64;
        let collected = core.progress.watch(watcher, steps, || core.collect(types))?;
        core.needs_collection.store(false, Release);
        Ok(collected)
    }
}
