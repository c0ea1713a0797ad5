//! The open heaps of this process. Each heap has a number. Each thread has a row, which has a cache, a depth (see [`crate::gate`]) and a
//! transaction for each number.

use core::cell::Cell;
use core::ffi::c_void;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

use spandrel_os::{env, vm};
use spandrel_pages::PAGE_BYTES;
use spandrel_sync::{Lock, ThreadSlot, thread_slot};

use crate::cache::Cache;
use crate::error::Error;

/// Heaps that may be open at once in a process.
pub const MOST: usize = 64;

/// The numbers that are in use. The lock is held while a heap that is closed takes its caches from threads, while a thread ends and across a
/// fork, so that none of these overlap. No disk is waited for under it.
static NUMBERS: Lock<[bool; MOST]> = Lock::new([false; MOST]);

/// Fixed heaps by number: the base, 0 without one, and the address of the heap's core. Written under [`NUMBERS`].
static FIXED: [(AtomicU64, AtomicPtr<()>); MOST] =
    [const { (AtomicU64::new(0), AtomicPtr::new(ptr::null_mut())) }; MOST];

/// Registers the base of a fixed heap, by which [`bound`] finds it.
pub fn bind(number: usize, base: u64, core: *mut ()) {
    let _numbers = NUMBERS.lock();
    if let Some((place, heap)) = FIXED.get(number) {
        heap.store(core, Relaxed);
        place.store(base, Release);
    }
}

/// The core of the fixed heap with that base; `None`: it is not open.
pub fn bound(base: u64) -> Option<NonNull<()>> {
    let found = FIXED.iter().find(|(place, _)| base != 0 && place.load(Acquire) == base)?;
    NonNull::new(found.1.load(Relaxed))
}

/// Whether forks wait for the numbers: [`AT_FORK_NEW`], [`AT_FORK_DONE`], or the number of the process of which a thread is about to register
/// the functions.
static AT_FORK: AtomicI32 = AtomicI32::new(AT_FORK_NEW);
const AT_FORK_NEW: i32 = 0;
const AT_FORK_DONE: i32 = -1;

/// Has each fork wait for the thread that holds the numbers: so a child finds them unlocked, and can open heaps of its own.
///
/// Another thread may fork while the first one registers the functions. The thread that registers does not exist in the child. The child finds
/// the number of its parent, and registers the functions itself.
fn hold_across_forks() {
    extern "C" fn before() {
        NUMBERS.acquire();
    }
    extern "C" fn after() {
        // The functions are registered, also if the thread that did it had not noted that before the fork.
        AT_FORK.store(AT_FORK_DONE, Release);
        // SAFETY: `before` acquired it, in the same thread, or in the parent's thread that this one is the copy of.
        unsafe { NUMBERS.release() };
    }
    loop {
        let found = AT_FORK.load(Acquire);
        if found == AT_FORK_DONE {
            return;
        }
        let process = env::pid();
        if found == process {
            // SAFETY: no preconditions. The other thread needs some microseconds.
            unsafe { libc::sched_yield() };
        } else if AT_FORK.compare_exchange(found, process, Acquire, Relaxed).is_ok() {
            // SAFETY: the functions may run at any fork: they take a lock under which no thread forks.
            unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) };
            AT_FORK.store(AT_FORK_DONE, Release);
        }
    }
}

/// Refuses a heap for which no number is free, before its file is changed. Another thread may take the last number in between: [`register`]
/// refuses then.
///
/// # Errors
/// [`Error::TooManyHeaps`].
pub fn check_free() -> Result<(), Error> {
    hold_across_forks();
    let is_full = NUMBERS.lock().iter().all(|is_used| *is_used);
    if is_full { Err(Error::TooManyHeaps(MOST)) } else { Ok(()) }
}

/// Takes a number for a heap.
///
/// # Errors
/// [`Error::TooManyHeaps`].
pub fn register() -> Result<usize, Error> {
    hold_across_forks();
    let mut numbers = NUMBERS.lock();
    let free = numbers.iter().position(|is_used| !is_used).ok_or(Error::TooManyHeaps(MOST))?;
    numbers[free] = true;
    Ok(free)
}

/// Calls `work` while no thread of the process ends.
pub fn with(work: impl FnOnce()) {
    let _numbers = NUMBERS.lock();
    work();
}

/// Has [`bound`] find a heap no more, and calls `work`, which takes the heap's caches from all threads; no thread of the process ends meanwhile.
/// Afterwards no thread has anything of the heap, and [`unregister`] follows.
pub fn unbind(number: usize, work: impl FnOnce()) {
    let _numbers = NUMBERS.lock();
    if let Some((place, _)) = FIXED.get(number) {
        place.store(0, Release);
    }
    work();
}

/// Releases the number of a heap that has no caches.
pub fn unregister(number: usize) {
    if let Some(place) = NUMBERS.lock().get_mut(number) {
        *place = false;
    }
}

/// A thread's words for all heaps: a page of its own, which begins as zeroes.
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
        // SAFETY: mapped until the thread ends; the raw pointer makes the type neither `Send` nor `Sync`.
        unsafe { self.words.as_ref() }
    }

    /// The number of nested operations of the heap that the thread is inside.
    #[inline]
    pub fn depth(&self) -> &Cell<u32> {
        &self.words().depths[self.number % MOST]
    }

    /// The transaction of the heap that the thread is in; null: none.
    #[inline]
    pub fn transaction(&self) -> &Cell<*mut ()> {
        &self.words().transactions[self.number % MOST]
    }

    /// The number of the row's page, which differs between threads.
    #[inline]
    pub fn shard(&self) -> usize {
        self.words.as_ptr() as usize / PAGE_BYTES
    }
}

/// The calling thread's words for a heap; `None`: the thread has no row yet, or the heap has no number.
#[inline]
pub fn row(number: usize) -> Option<Row> {
    let words = NonNull::new(ThreadSlot::current_heaps().cast::<Words>())?;
    (number < MOST).then_some(Row { words, number })
}

/// The same, made if they are not there.
///
/// # Errors
/// [`Error::NoMemory`].
pub fn make_row(number: usize) -> Result<Row, Error> {
    if row(number).is_none() {
        make_place(number)?;
    }
    row(number).ok_or(Error::NoMemory)
}

/// The place of the pointer to the calling thread's cache of a heap, which may be null; `None`: the thread has no row yet.
#[inline]
pub fn place(number: usize) -> Option<NonNull<*mut Cache>> {
    let row = NonNull::new(ThreadSlot::current_heaps().cast::<*mut Cache>())?;
    // SAFETY: `caches` is the first field of `Words`, and has a place for each number below `MOST`.
    (number < MOST).then(|| unsafe { row.add(number) })
}

/// The same, made if it is not there.
///
/// # Errors
/// [`Error::NoMemory`].
#[cold]
pub fn make_place(number: usize) -> Result<NonNull<*mut Cache>, Error> {
    let slot = thread_slot();
    if slot.heaps.get().is_null() {
        let row = vm::reserve(PAGE_BYTES).ok_or(Error::NoMemory)?;
        // SAFETY: reserved above, and used by no other code.
        unsafe {
            if !vm::open(row.as_ptr(), PAGE_BYTES) {
                vm::release(row.as_ptr(), PAGE_BYTES);
                return Err(Error::NoMemory);
            }
        }
        slot.heaps.set(row.as_ptr().cast());
        hear_of_end(row.as_ptr().cast());
    }
    place(number).ok_or(Error::NoMemory)
}

/// Has [`ended`] called when the thread ends.
fn hear_of_end(row: *mut c_void) {
    const NONE: u32 = u32::MAX;
    static KEY: AtomicU32 = AtomicU32::new(NONE);
    // Forks wait for this lock: the child finds a key, or none, and no thread that is about to make one.
    let numbers = NUMBERS.lock();
    let mut key = KEY.load(Relaxed);
    // SAFETY: `ended` takes the row that is set below.
    if key == NONE && unsafe { libc::pthread_key_create(&raw mut key, Some(ended)) } == 0 {
        KEY.store(key, Relaxed);
    }
    drop(numbers);
    if key != NONE {
        // SAFETY: the key was made above. If this fails, the thread's free objects stay in its caches until the heap is closed.
        unsafe { libc::pthread_setspecific(key, row) };
    }
}

/// Runs when a thread ends: returns its free objects to their blocks.
extern "C" fn ended(row: *mut c_void) {
    let numbers = NUMBERS.lock();
    for number in 0..MOST {
        // SAFETY: the thread's row, and its own caches: a heap that is closed sets its place in each row to null, under the same lock.
        unsafe {
            let place = row.cast::<*mut Cache>().add(number);
            let cache = core::mem::replace(&mut *place, ptr::null_mut());
            // In the child of a fork the cache was wiped, and has no `drain`.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The parent forked while another of its threads was about to register the functions.
    #[test]
    fn a_child_does_not_wait_for_a_thread_that_only_its_parent_has() {
        hold_across_forks();
        // SAFETY: the child uses nothing but the registry, and ends without destructors.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::alarm(20);
                AT_FORK.store(libc::getppid(), Release);
                let _ = check_free();
                libc::_exit(i32::from(AT_FORK.load(Acquire) != AT_FORK_DONE));
            }
            let mut status = -1;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            assert_eq!(status, 0);
        }
    }
}
