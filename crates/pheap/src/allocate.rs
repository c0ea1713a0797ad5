//! Allocating, freeing and resizing objects of an open heap.
//!
//! A small object comes from the calling thread's cache, and returns there: neither takes a lock. Objects of other sizes come from their blocks.

use core::ptr::NonNull;
use core::sync::atomic::Ordering::*;

use spandrel_pmem::Medium;

use crate::class::{Class, SMALL_CLASSES};
use crate::error::Error;
use crate::header::Header;
use crate::heap::{FreeCallback, Heap};
use crate::layout::{BLOCK_BYTES, BlockId, GRANULE_BYTES, REGION_BLOCKS, first_block};
use crate::shared::Core;

impl<M: Medium> Heap<M> {
    /// Allocates an object of at least `bytes` bytes, aligned to 16, with arbitrary contents. After a failure the object is there if it is
    /// reachable.
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
        if !core.medium.is_atomic() {
            core.forget_canary(core.offset(object.as_ptr()));
        }
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

    /// As [`Heap::alloc`], with an alignment: a power of two up to 64 KiB.
    ///
    /// # Errors
    /// As for [`Heap::alloc`].
    pub fn alloc_aligned(&self, bytes: usize, align: usize) -> Result<NonNull<u8>, Error> {
        if !align.is_power_of_two() || align > BLOCK_BYTES {
            return Err(Error::Size(bytes));
        }
        if align <= GRANULE_BYTES {
            return self.alloc(bytes);
        }
        match Class::aligned(bytes, align) {
            Some(class) if class.index() < SMALL_CLASSES => self.alloc_small(class),
            Some(class) => self.alloc_medium(class),
            None => self.alloc_large(bytes.max(align)),
        }
    }

    /// As [`Heap::alloc`], with all bytes zero, also those beyond `bytes`: a collection without the object's type then finds no pointers
    /// that an earlier object has left.
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

    /// Frees an object. No durable pointer leads to it any more: after a failure the object may hold anything.
    ///
    /// # Errors
    /// [`Error::Foreign`]: the address is no object of this heap. [`Error::DoubleFree`]: the object is free already. The second free finds that,
    /// or the moment when the thread's cache is emptied.
    ///
    /// # Safety
    /// No thread uses the object any more.
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
        // SAFETY: `set_free_callback` has stored a function of this type.
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
        if core.medium.is_atomic() {
            return core.return_objects(class, &[object]);
        }
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
            || block < first_block(block.region())
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

    /// Whether an address lies in an object, of a heap whose mark bits are exact (a durable state's): a free object is none.
    pub fn is_in_object(&self, at: NonNull<u8>) -> bool {
        let core = self.core();
        core.object_of(core.offset(at.as_ptr())).is_some_and(|found| core.is_marked(&found))
    }

    /// Resizes an object to at least `bytes` bytes. Its contents are kept, up to the smaller of both sizes. The object stays where it is if it
    /// has room for `bytes` bytes and is at most twice as large. Otherwise the contents move to a new object, and the caller makes these durable.
    ///
    /// # Errors
    /// As for [`Heap::alloc`] and [`Heap::free`]; the object does not change then.
    ///
    /// # Safety
    /// No other thread uses the object, and after success no thread uses the old address.
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

    /// Sets a function that [`Heap::free`] calls instead of freeing. The function arranges a later [`Heap::safe_free`] of the object (section
    /// 10). `None`: [`Heap::free`] frees at once.
    ///
    /// # Safety
    /// The function may be called with any object and `data`, by any thread, as long as the heap is open.
    pub unsafe fn set_free_callback(&self, callback: Option<FreeCallback>, data: *mut u8) {
        let core = self.core();
        core.callback_data.store(data, Release);
        let callback = callback.map_or(core::ptr::null_mut(), |callback| callback as *mut ());
        core.callback.store(callback, Release);
    }
}
