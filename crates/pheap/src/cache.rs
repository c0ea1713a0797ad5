//! Free objects that threads keep for themselves (section 5.7): to take one of them, or to give one back, changes nothing that
//! is persistent but the object itself.
//!
//! The paper's lists go through the objects; these are stacks beside the heap, so that an object is not touched before
//! it is used. A stack that is full returns the older half to the blocks (section 7.1), one that is empty is
//! filled from one block (section 6.1).
//!
//! On an atomic medium no thread has a cache: mark bits say exactly what is allocated, so that nothing need be collected after a failure.
//!
//! In the child of a fork all caches are empty: their memory is wiped. So a child comes the slow way, on which it is refused.

use core::cell::Cell;
use core::ptr::{self, NonNull};
use core::sync::atomic::{Ordering::*, fence};

use spandrel_os::vm;
use spandrel_pages::PAGE_BYTES;
use spandrel_pmem::Medium;

use crate::class::{Class, SIZES, SMALL_CLASSES};
use crate::error::Error;
use crate::partial::GROUPS;
use crate::registry;
use crate::shared::Core;

/// Bytes of free objects of a class that a thread keeps at most (the paper: two blocks, section 7.1; here a block), and how many at least
/// and at most.
const KEPT_BYTES: usize = 64 << 10;
const KEPT_LEAST: usize = 16;
const KEPT_MOST: usize = 1024;

const fn room(class: usize) -> usize {
    let room = KEPT_BYTES / SIZES[class] as usize;
    match room {
        ..KEPT_LEAST => KEPT_LEAST,
        KEPT_MOST.. => KEPT_MOST,
        room => room,
    }
}

/// All that the bins of a cache hold at most.
const ROOM: usize = {
    let (mut all, mut class) = (0, 0);
    while class < SMALL_CLASSES {
        all += room(class);
        class += 1;
    }
    all
};

/// A stack of free objects of one class.
#[repr(C)]
struct Bin {
    len: Cell<u32>,
    room: u32,
    objects: *mut NonNull<u8>,
}

/// More than there are small classes, so that no bound need be checked.
const BINS: usize = SMALL_CLASSES.next_power_of_two();

/// A thread's free objects of one heap.
#[repr(C)]
pub struct Cache {
    bins: [Bin; BINS],
    /// The heap, and how to give all objects back to it.
    pub core: *const (),
    pub drain: Option<unsafe fn(*const (), &Cache)>,
    /// Where the thread that it belongs to looks for it; null: no thread has it. Under the lock of the heap's caches.
    place: Cell<*mut *mut Cache>,
    /// The next one of the heap's.
    next: *mut Cache,
    /// How many there were before it.
    number: usize,
}

const CACHE_BYTES: usize =
    (size_of::<Cache>() + ROOM * size_of::<NonNull<u8>>()).next_multiple_of(PAGE_BYTES);

impl Cache {
    /// Takes an object, if there is one.
    #[inline]
    pub fn pop(&self, class: Class) -> Option<NonNull<u8>> {
        let bin = self.bin(class);
        let top = bin.len.get().checked_sub(1)?;
        bin.len.set(top);
        // SAFETY: fewer than are there.
        Some(unsafe { *bin.objects.add(top as usize) })
    }

    /// Adds an object, if there is room.
    #[inline]
    pub fn push(&self, class: Class, object: NonNull<u8>) -> bool {
        let bin = self.bin(class);
        let len = bin.len.get();
        if len >= bin.room {
            return false;
        }
        // SAFETY: there is room for one more.
        unsafe { *bin.objects.add(len as usize) = object };
        bin.len.set(len + 1);
        true
    }

    /// Whose blocks its objects are taken from: see [`crate::partial`].
    pub fn group(&self) -> usize {
        self.number % GROUPS
    }

    #[inline]
    fn bin(&self, class: Class) -> &Bin {
        // The caller has a class of small objects; the compiler need not know.
        &self.bins[class.0 as usize % BINS]
    }
}

impl<M: Medium> Core<M> {
    /// The calling thread's cache, if it has one.
    #[inline]
    pub fn cache(&self) -> Option<&Cache> {
        let place = registry::place(self.number.load(Relaxed))?;
        // SAFETY: a place holds null or the thread's own cache, which is mapped as long as the heap is open.
        unsafe { (*place.as_ptr()).as_ref() }
    }

    /// The calling thread's cache, made if there is none.
    ///
    /// # Errors
    /// [`Error::Forked`], and [`Error::NoMemory`].
    #[cold]
    fn make_cache(&self) -> Result<&Cache, Error> {
        self.check_process()?;
        let place = registry::make_place(self.number.load(Relaxed))?;
        // SAFETY: the thread's own.
        if let Some(cache) = unsafe { (*place.as_ptr()).as_ref() } {
            return Ok(cache);
        }
        let mut caches = self.caches.lock();
        let mut orphan = caches.first;
        // SAFETY: caches of this heap, which stay mapped as long as it is open; a thread that ends lets go of its own under
        // this lock.
        unsafe {
            while orphan.as_ref().is_some_and(|cache| !cache.place.get().is_null()) {
                orphan = (*orphan).next;
            }
        }
        let cache = match NonNull::new(orphan) {
            Some(orphan) => orphan,
            None => {
                let made = self.new_cache(caches.first)?;
                caches.first = made.as_ptr();
                made
            }
        };
        // SAFETY: under the caches' lock, and its `place` is null: no thread has the cache.
        unsafe {
            cache.as_ref().place.set(place.as_ptr());
            *place.as_ptr() = cache.as_ptr();
            Ok(cache.as_ref())
        }
    }

    fn new_cache(&self, next: *mut Cache) -> Result<NonNull<Cache>, Error> {
        let at = vm::map_wiped_on_fork(CACHE_BYTES).ok_or(Error::NoMemory)?;
        let cache = at.cast::<Cache>();
        // SAFETY: just mapped, zero, and large enough for the cache and its stacks behind it.
        unsafe {
            let mut objects = at.as_ptr().add(size_of::<Cache>()).cast::<NonNull<u8>>();
            for (class, bin) in (*cache.as_ptr()).bins.iter_mut().take(SMALL_CLASSES).enumerate() {
                *bin = Bin { len: Cell::new(0), room: room(class) as u32, objects };
                objects = objects.add(room(class));
            }
            let cache = &mut *cache.as_ptr();
            cache.core = ptr::from_ref(self).cast();
            cache.drain = Some(drain::<M>);
            cache.next = next;
            cache.number = next.as_ref().map_or(0, |next| next.number + 1);
        }
        Ok(cache)
    }

    /// An object of a class of which the thread has none: half a stack is taken from a block.
    #[cold]
    #[inline(never)]
    pub fn refill(&self, class: Class) -> Result<NonNull<u8>, Error> {
        if self.medium.is_atomic() {
            self.check_process()?;
            let mut object = [self.at(0)];
            self.take_objects(class, 0, &mut object)?;
            return Ok(object[0]);
        }
        let cache = match self.cache() {
            Some(cache) if cache.drain.is_some() => cache,
            // Wiped in a child, or not made yet. One that a thread has left may have objects.
            _ => {
                let cache = self.make_cache()?;
                if let Some(object) = cache.pop(class) {
                    return Ok(object);
                }
                cache
            }
        };
        let bin = cache.bin(class);
        if bin.room == 0 {
            return Err(Error::Forked);
        }
        self.counters.refills.fetch_add(1, Relaxed);
        let most = bin.room as usize / 2;
        // SAFETY: the stack is empty and has room for twice as many.
        let room = unsafe { core::slice::from_raw_parts_mut(bin.objects, most) };
        let count = self.take_objects(class, cache.group(), room)?;
        // The first is the next to be taken.
        room[..count].reverse();
        bin.len.set(count as u32);
        cache.pop(class).ok_or(Error::Full)
    }

    /// Adds an object to a stack that is full: the older half is returned to its blocks.
    ///
    /// # Errors
    /// [`Error::DoubleFree`]: one of those was free already; all others were returned.
    #[cold]
    #[inline(never)]
    pub fn overflow(&self, class: Class, object: NonNull<u8>) -> Result<(), Error> {
        let cache = match self.cache() {
            Some(cache) if cache.drain.is_some() => cache,
            _ => self.make_cache()?,
        };
        let mut outcome = Ok(());
        if !cache.push(class, object) {
            let bin = cache.bin(class);
            if bin.room == 0 {
                return Err(Error::Forked);
            }
            let len = bin.len.get() as usize;
            let half = len / 2;
            // SAFETY: the bin's first `len` objects are set.
            let all = unsafe { core::slice::from_raw_parts_mut(bin.objects, len) };
            outcome = self.return_objects(class, &all[..half]);
            all.copy_within(half.., 0);
            bin.len.set((len - half) as u32);
            cache.push(class, object);
        }
        outcome
    }

    /// Returns all objects of a cache to their blocks. An object that was freed twice is skipped: no caller is left to get the error.
    fn drain_cache(&self, cache: &Cache) {
        for (class, bin) in cache.bins.iter().enumerate() {
            let len = bin.len.take() as usize;
            if len > 0 {
                // SAFETY: the bin's first `len` objects are set.
                let all = unsafe { core::slice::from_raw_parts(bin.objects, len) };
                let _ = self.return_objects(Class(class as u8), all);
            }
        }
    }

    /// Returns all objects of all caches. No other thread uses the heap meanwhile.
    pub fn drain_all(&self) {
        let caches = self.caches.lock();
        let mut next = caches.first;
        while let Some(cache) = NonNull::new(next) {
            // SAFETY: the list has this heap's caches, which are mapped; no other thread uses the heap.
            let cache = unsafe { cache.as_ref() };
            self.drain_cache(cache);
            next = cache.next;
        }
    }

    /// Returns the objects of threads that have ended while the heap stood still. While it stands still again they wait.
    pub fn drain_orphans(&self) {
        // Either the thread that has ended finds the gate open, or the one that has opened it finds the mark.
        fence(SeqCst);
        if !self.has_orphans.load(Relaxed) || !self.ends.try_enter(0) {
            return;
        }
        let caches = self.caches.lock();
        self.has_orphans.store(false, Relaxed);
        let mut next = caches.first;
        while let Some(cache) = NonNull::new(next) {
            // SAFETY: the list has this heap's caches, which are mapped; one without a place is no thread's as long as the list is locked.
            let cache = unsafe { cache.as_ref() };
            if cache.place.get().is_null() {
                self.drain_cache(cache);
            }
            next = cache.next;
        }
        drop(caches);
        self.ends.leave(0);
    }

    /// Objects in caches of threads that have ended.
    #[cfg(test)]
    pub fn orphaned(&self) -> u32 {
        let caches = self.caches.lock();
        let (mut next, mut count) = (caches.first, 0);
        while let Some(cache) = NonNull::new(next) {
            // SAFETY: as above.
            let cache = unsafe { cache.as_ref() };
            if cache.place.get().is_null() {
                count += cache.bins.iter().map(|bin| bin.len.get()).sum::<u32>();
            }
            next = cache.next;
        }
        count
    }

    /// Takes all caches from their threads, under the registry's lock: the end of a thread does not touch the heap any more. No other thread
    /// uses the heap.
    pub fn take_caches_from_threads(&self) {
        let caches = self.caches.lock();
        let mut next = caches.first;
        while let Some(cache) = NonNull::new(next) {
            // SAFETY: the list has this heap's caches, which are mapped; a place is that of a thread that has not ended, as a thread that ends
            // takes its cache's place away under the same locks.
            unsafe {
                let cache = cache.as_ref();
                if let Some(place) = cache.place.replace(ptr::null_mut()).as_mut() {
                    *place = ptr::null_mut();
                }
                next = cache.next;
            }
        }
    }

    /// Releases all caches, in the process that opened the heap. No thread has one of them any more.
    pub fn drop_caches(&self) {
        let mut caches = self.caches.lock();
        let mut next = core::mem::replace(&mut caches.first, ptr::null_mut());
        while let Some(cache) = NonNull::new(next) {
            // SAFETY: the list has this heap's caches, which are mapped, and no thread has a pointer to one.
            unsafe {
                next = cache.as_ref().next;
                vm::release(cache.as_ptr().cast(), CACHE_BYTES);
            }
        }
    }
}

/// [`Cache::drain`] for one kind of medium: the thread ends, and another thread may have the cache, with the objects that it has still.
///
/// # Safety
/// The heap is open, and the calling thread has the cache.
unsafe fn drain<M: Medium>(core: *const (), cache: &Cache) {
    // SAFETY: promised by the caller.
    let core = unsafe { &*core.cast::<Core<M>>() };
    // A heap that stands still waits for a disk, or for another process: the end of a thread, and all that waits for that, does not.
    let is_ours = core.check_process().is_ok();
    let is_drained = is_ours && core.ends.try_enter(0);
    if is_drained {
        core.drain_cache(cache);
        core.ends.leave(0);
    }
    let caches = core.caches.lock();
    cache.place.set(ptr::null_mut());
    if is_ours && !is_drained {
        core.has_orphans.store(true, Relaxed);
    }
    drop(caches);
    if is_ours && !is_drained {
        // The heap may have gone on in between.
        core.drain_orphans();
    }
}
