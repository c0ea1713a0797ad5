//! Which heaps are open in this process, and where each thread finds its words for each of them: a number for each heap, and a row
//! for each thread, which has a cache, a depth (see [`crate::gate`]) and a transaction for each number.

use core::cell::Cell;
use core::ffi::c_void;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

use spandrel_os::vm;
use spandrel_pages::PAGE_BYTES;
use spandrel_sync::{Lock, Once, ThreadSlot, thread_slot};

use crate::cache::Cache;
use crate::error::Error;

/// Heaps that may be open at once in a process.
pub const MOST: usize = 64;

/// Which numbers are in use. Held while a heap is closed and while a thread ends, so that they do not meet.
static NUMBERS: Lock<[bool; MOST]> = Lock::new([false; MOST]);

/// Heaps of files with a base of their own: the base, and where the heap is. Written under [`NUMBERS`].
static FIXED: [(AtomicU64, AtomicPtr<()>); MOST] =
    [const { (AtomicU64::new(0), AtomicPtr::new(ptr::null_mut())) }; MOST];

/// The heap of that number is to be found by its base.
pub fn bind(number: usize, base: u64, core: *mut ()) {
    let _numbers = NUMBERS.lock();
    if let Some((place, heap)) = FIXED.get(number) {
        heap.store(core, Relaxed);
        place.store(base, Release);
    }
}

/// Where the heap of that base is, if it is open.
pub fn bound(base: u64) -> Option<NonNull<()>> {
    let found = FIXED.iter().find(|(place, _)| base != 0 && place.load(Acquire) == base)?;
    NonNull::new(found.1.load(Relaxed))
}

/// A child of a fork finds the numbers unlocked: the fork waits for the thread that has them, and the child can open heaps of its own.
fn hold_across_forks() {
    static MADE: Once = Once::new();
    extern "C" fn before() {
        NUMBERS.acquire();
    }
    extern "C" fn after() {
        // SAFETY: acquired by `before`, in the same thread or in the one that this is the child's copy of.
        unsafe { NUMBERS.release() };
    }
    MADE.run(|| {
        // SAFETY: the functions may run at any fork: they take a lock under which no thread forks.
        unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) };
    });
}

/// Refuses one heap too many before anything is done to its file. Another thread may take the last number in between: [`register`] refuses then.
pub fn check_free() -> Result<(), Error> {
    hold_across_forks();
    let is_full = NUMBERS.lock().iter().all(|is_used| *is_used);
    if is_full { Err(Error::TooManyHeaps(MOST)) } else { Ok(()) }
}

/// A number for a heap.
pub fn register() -> Result<usize, Error> {
    hold_across_forks();
    let mut numbers = NUMBERS.lock();
    let free = numbers.iter().position(|is_used| !is_used).ok_or(Error::TooManyHeaps(MOST))?;
    numbers[free] = true;
    Ok(free)
}

/// No thread ends while `work` is done.
pub fn with(work: impl FnOnce()) {
    let _numbers = NUMBERS.lock();
    work();
}

/// Ends a heap: `work` releases its caches, and no thread ends meanwhile.
pub fn unregister(number: usize, work: impl FnOnce()) {
    let mut numbers = NUMBERS.lock();
    if let Some((place, _)) = FIXED.get(number) {
        place.store(0, Release);
    }
    work();
    if let Some(place) = numbers.get_mut(number) {
        *place = false;
    }
}

/// A thread's words for all heaps: a page of the thread's own, zero at first.
#[repr(C)]
struct Words {
    caches: [Cell<*mut Cache>; MOST],
    transactions: [Cell<*mut ()>; MOST],
    depths: [Cell<u32>; MOST],
}

const _: () = assert!(size_of::<Words>() <= PAGE_BYTES);

/// The calling thread's words for one heap.
#[derive(Clone, Copy)]
pub struct Row {
    words: NonNull<Words>,
    number: usize,
}

impl Row {
    #[inline]
    fn words(&self) -> &Words {
        // SAFETY: mapped until the thread ends; the type is neither `Send` nor `Sync`.
        unsafe { self.words.as_ref() }
    }

    /// How many operations of the heap the thread is inside, one within the other.
    #[inline]
    pub fn depth(&self) -> &Cell<u32> {
        &self.words().depths[self.number % MOST]
    }

    /// The transaction of the heap that the thread is in; null: none.
    #[inline]
    pub fn transaction(&self) -> &Cell<*mut ()> {
        &self.words().transactions[self.number % MOST]
    }

    /// A number that differs between threads: of the row's page.
    #[inline]
    pub fn shard(&self) -> usize {
        self.words.as_ptr() as usize / PAGE_BYTES
    }
}

/// The calling thread's words for a heap; `None`: it has none for any heap yet, or the heap has no number.
#[inline]
pub fn row(number: usize) -> Option<Row> {
    let words = NonNull::new(ThreadSlot::current_heaps().cast::<Words>())?;
    (number < MOST).then_some(Row { words, number })
}

/// The same, made if they are not there.
///
/// # Errors
/// [`Error::Full`]: there is no memory for them.
pub fn make_row(number: usize) -> Result<Row, Error> {
    if row(number).is_none() {
        make_place(number)?;
    }
    row(number).ok_or(Error::Full)
}

/// Where the calling thread's cache of a heap is, or null; `None`: it has had no cache of any heap yet.
#[inline]
pub fn place(number: usize) -> Option<NonNull<*mut Cache>> {
    let row = NonNull::new(ThreadSlot::current_heaps().cast::<*mut Cache>())?;
    // SAFETY: a row begins with a place for each number; an unregistered heap has none.
    (number < MOST).then(|| unsafe { row.add(number) })
}

/// The same, made if it is not there.
#[cold]
pub fn make_place(number: usize) -> Result<NonNull<*mut Cache>, Error> {
    let slot = thread_slot();
    if slot.heaps.get().is_null() {
        let row = vm::reserve(PAGE_BYTES).ok_or(Error::NoMemory)?;
        // SAFETY: just reserved.
        if !unsafe { vm::open(row.as_ptr(), PAGE_BYTES) } {
            return Err(Error::NoMemory);
        }
        slot.heaps.set(row.as_ptr().cast());
        hear_of_end(row.as_ptr().cast());
    }
    place(number).ok_or(Error::NoMemory)
}

/// Has [`ended`] called when the thread ends.
fn hear_of_end(row: *mut c_void) {
    static MADE: Once = Once::new();
    static KEY: AtomicU32 = AtomicU32::new(u32::MAX);
    MADE.run(|| {
        let mut key = 0;
        // SAFETY: the function takes what was set.
        if unsafe { libc::pthread_key_create(&raw mut key, Some(ended)) } == 0 {
            KEY.store(key, Release);
        }
    });
    let key = KEY.load(Acquire);
    if key != u32::MAX {
        // SAFETY: a key that was made. If it fails the thread's objects are lost until the heap is closed, which finds them.
        unsafe { libc::pthread_setspecific(key, row) };
    }
}

/// A thread ends: its free objects return to their blocks.
extern "C" fn ended(row: *mut c_void) {
    let numbers = NUMBERS.lock();
    for number in 0..MOST {
        // SAFETY: the thread's row, and its own caches; heaps that are closed have taken theirs away.
        unsafe {
            let place = row.cast::<*mut Cache>().add(number);
            let cache = core::mem::replace(&mut *place, ptr::null_mut());
            // Wiped in the child of a fork.
            if let Some((cache, drain)) =
                cache.as_ref().and_then(|cache| Some((cache, cache.drain?)))
            {
                drain(cache.core, cache);
            }
        }
    }
    drop(numbers);
    thread_slot().heaps.set(ptr::null_mut());
    // SAFETY: mapped for this thread.
    unsafe { vm::release(row.cast(), PAGE_BYTES) };
}
