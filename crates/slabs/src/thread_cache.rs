//! Caches of threads, where there are no restartable sequences: a stack of
//! addresses for each class.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering::*};
use core::{iter, ptr};

use spandrel_sync::{Lock, NO_CACHE, Once, ThreadSlot, background, thread_slot};

use crate::check::{Fault, ensure};
use crate::class::{self, CLASS, CLASSES, home_of, seen_from, shard_of};
use crate::hits::Hits;
use crate::recent::Recent;
use crate::refuse::clock;
use crate::span::Wrong;
use crate::stack::Stack;
use crate::{map, report, transfer};

/// Bytes of one cache: heads and stacks.
const CACHE_BYTES: usize = 256 * 1024;
/// Objects cached of a class: this many bytes of them, within bounds.
const STACK_BYTES: usize = 32 * 1024;
const STACK_MOST: usize = 512;
const STACK_LEAST: usize = 2;
/// The slot of a thread that has no cache any more, because it ends.
const ENDED: *mut Cache = ptr::without_provenance_mut(NO_CACHE);

/// The cache of one thread.
#[repr(C)]
pub struct Cache {
    /// Next free cache, while no thread owns this one.
    next: *mut Cache,
    /// The one that was made before.
    older: *mut Cache,
    /// See `class`.
    home: usize,
    stacks: [Stack; CLASSES],
    recent: Recent,
    hits: Hits,
}

/// Slots of each class's stack.
static SLOTS: [usize; CLASSES] = class::kept(STACK_BYTES, STACK_LEAST, STACK_MOST);
const _: () = {
    let all = class::sum(&class::kept(STACK_BYTES, STACK_LEAST, STACK_MOST));
    assert!(size_of::<Cache>() + all * size_of::<usize>() <= CACHE_BYTES);
};

/// Caches that threads have left.
static UNUSED: Lock<Unused> = Lock::new(Unused(ptr::null_mut()));

/// The cache that was made last: the head of the list of all.
static MADE: AtomicPtr<Cache> = AtomicPtr::new(ptr::null_mut());

/// How many were made.
static COUNT: AtomicUsize = AtomicUsize::new(0);

struct Unused(*mut Cache);
// SAFETY: only the list owns an unused cache.
unsafe impl Send for Unused {}

static KEY_ONCE: Once = Once::new();
static KEY: AtomicU32 = AtomicU32::new(0);
/// The main thread's end will be told.
static WATCHED: AtomicBool = AtomicBool::new(false);

/// An object of `class`, which is that of a size; 0: there is none.
#[inline(always)]
pub fn pop(class: usize) -> usize {
    let cache = ThreadSlot::current_cache().cast::<Cache>();
    if cache as usize <= ENDED as usize {
        return 0;
    }
    // SAFETY: the slot holds this thread's own cache, and `class` is below CLASSES.
    unsafe {
        let stacks = &mut (*cache).stacks;
        let stack = stacks.get_unchecked_mut(class);
        if stack.top == stack.bottom {
            return 0;
        }
        stack.top = stack.top.sub(1);
        *stack.top
    }
}

/// Gives an object of `class` back; false: there is no room for it, or it seems to be there already.
#[inline(always)]
pub fn push(class: usize, object: usize) -> bool {
    let cache = ThreadSlot::current_cache().cast::<Cache>();
    if cache as usize <= ENDED as usize {
        return false;
    }
    // SAFETY: the slot holds this thread's own cache, and `class` is below CLASSES.
    unsafe {
        let place = seen_from((*cache).home, class);
        let stacks = &mut (*cache).stacks;
        let stack = stacks.get_unchecked_mut(place);
        let entry = Recent::entry(&raw mut (*cache).recent, object);
        if stack.top == stack.limit || Recent::seems_cached(*entry, stack.top, object) {
            return false;
        }
        *entry = stack.top;
        *stack.top = object;
        stack.top = stack.top.add(1);
    }
    true
}

/// An object and some more for the stack, which is empty, of requests of a size.
pub fn refill(place: usize) -> usize {
    let Some(cache) = own() else {
        let mut object = [0];
        return if transfer::fetch(0, place, &mut object).0 == 1 { object[0] } else { 0 };
    };
    // SAFETY: this thread's own cache; nothing between here and the last use of
    // the stack calls malloc. There is room for half of the slots and one more.
    unsafe {
        let class = seen_from((*cache).home, place);
        (*cache).hits.look(place, || 0);
        let stack = &mut (*cache).stacks[place];
        let wanted = Stack::next_refill(
            stack,
            clock::micros() as u32,
            CLASS[class].size as usize,
            SLOTS[class] / 2 + 1,
        );
        let room = core::slice::from_raw_parts_mut(stack.bottom, wanted);
        match transfer::fetch(shard_of((*cache).home), class, room).0.checked_sub(1) {
            Some(last) => {
                stack.top = stack.bottom.add(last);
                (*cache).hits.note(place, last);
                *stack.top
            }
            None => 0,
        }
    }
}

/// Gives an object back after [`push`] did not: when the stack is full, some go
/// on.
pub fn spill(class: usize, object: usize) {
    let Some(cache) = own() else {
        transfer::give(0, class, &[object]);
        return;
    };
    // SAFETY: as in `refill`.
    unsafe {
        let place = seen_from((*cache).home, class);
        let stack = &mut (*cache).stacks[place];
        let all = stack.top.offset_from(stack.bottom) as usize;
        let slot = *Recent::entry(&raw mut (*cache).recent, object);
        if slot >= stack.bottom && Recent::seems_cached(slot, stack.top, object) {
            report::wrong(object, class, Wrong::FreeAlready);
        }
        if stack.top == stack.limit {
            // The older half goes: what was freed last is warm.
            let half = all.div_ceil(2);
            transfer::give(
                shard_of((*cache).home),
                class,
                core::slice::from_raw_parts(stack.bottom, half),
            );
            ptr::copy(stack.bottom.add(half), stack.bottom, all - half);
            stack.top = stack.bottom.add(all - half);
            (*cache).hits.note(place, all - half);
        }
        stack.top.write(object);
        stack.top = stack.top.add(1);
    }
}

/// The calling thread's cache, made if need be; `None` while it is being made
/// and after the thread's end.
fn own() -> Option<*mut Cache> {
    let slot = &thread_slot().cache;
    let cache = slot.get().cast::<Cache>();
    if cache == ENDED {
        return None;
    }
    if !cache.is_null() {
        return Some(cache);
    }
    let key = key()?;
    // What the C library allocates for the key comes here again.
    slot.set(ENDED.cast());
    let cache = adopt().filter(|cache| {
        // SAFETY: the key exists. A thread whose end is not told would keep its
        // cache for good.
        let told = unsafe { libc::pthread_setspecific(key, cache.cast()) } == 0;
        if !told {
            abandon(*cache);
        }
        told
    });
    // There may be memory for one the next time.
    slot.set(cache.unwrap_or(ptr::null_mut()).cast());
    cache
}

/// Asks for what tells of threads' ends, before there is a second thread: no thread may
/// be in the middle of it when a process forks.
pub fn start() {
    let _ = key();
    watch_main_thread();
}

/// Bytes of objects that threads have cached, more or less, as they go on meanwhile, and requests that were
/// served from there for certain.
pub fn counts() -> (u64, u64) {
    made().fold((0, 0), |(mut bytes, hits), cache| {
        for (class, of) in CLASS.iter().enumerate().skip(1) {
            // SAFETY: a cache is never taken away; of its stacks the top is read as it was a moment ago.
            let count = unsafe { Stack::count(&raw const (*cache).stacks[class]) };
            bytes += count as u64 * u64::from(of.size);
        }
        // SAFETY: as above; it consists of atomics.
        (bytes, hits + unsafe { (*cache).hits.served() })
    })
}

/// All caches, also unused ones.
fn made() -> impl Iterator<Item = *mut Cache> {
    let first = Some(MADE.load(Acquire)).filter(|cache| !cache.is_null());
    iter::successors(first, |cache| {
        // SAFETY: written before the cache was put on the list.
        let older = unsafe { (**cache).older };
        (!older.is_null()).then_some(older)
    })
}

/// What tells of a thread's end, made if need be.
fn key() -> Option<libc::pthread_key_t> {
    KEY_ONCE.run(|| {
        let mut key = 0;
        // SAFETY: `ended` is a destructor as pthreads have it.
        let made = unsafe { libc::pthread_key_create(&mut key, Some(ended)) } == 0;
        KEY.store(if made { key + 1 } else { 0 }, Release);
    });
    KEY.load(Acquire).checked_sub(1)
}

/// The end of the main thread matters also where it has no cache; see `ended`. To be called when
/// the library starts and in the child of a fork, and wherever the background thread is started or
/// woken: the library may start in another thread.
pub fn watch_main_thread() {
    if !WATCHED.load(Relaxed) && is_main_thread() {
        WATCHED.store(true, Relaxed);
        if let Some(key) = key() {
            // SAFETY: the key exists. What the C library allocates for it comes here again.
            unsafe {
                if libc::pthread_getspecific(key).is_null() {
                    libc::pthread_setspecific(key, ENDED.cast());
                }
            }
        }
    }
}

/// The child of a fork has another main thread: the one that forked.
pub fn fork_forget() {
    WATCHED.store(false, Relaxed);
    // SAFETY: as in `counts`.
    made().for_each(|cache| unsafe { (*cache).hits.forget() });
}

/// A cache that no thread uses.
fn adopt() -> Option<*mut Cache> {
    let mut unused = UNUSED.lock();
    if !unused.0.is_null() {
        let cache = unused.0;
        // SAFETY: on the list, and so this function's.
        unused.0 = unsafe { (*cache).next };
        return Some(cache);
    }
    let cache = map::open_cache(CACHE_BYTES).cast::<Cache>();
    if cache.is_null() {
        return None;
    }
    // SAFETY: fresh zero memory of CACHE_BYTES.
    unsafe {
        Stack::lay_out(&raw mut (*cache).stacks, cache.add(1).cast(), &SLOTS);
        // There is no class 0: its stack stays empty.
        Recent::begin(&raw mut (*cache).recent, (&raw mut (*cache).stacks).cast());
        (*cache).older = MADE.load(Relaxed);
        (*cache).home = home_of(COUNT.fetch_add(1, Relaxed));
    }
    MADE.store(cache, Release);
    Some(cache)
}

fn abandon(cache: *mut Cache) {
    let mut unused = UNUSED.lock();
    // SAFETY: the caller's, and from now on the list's.
    unsafe { (*cache).next = unused.0 };
    unused.0 = cache;
}

/// The thread ends: its objects go back, and its cache to the next thread.
extern "C" fn ended(cache: *mut c_void) {
    if is_main_thread() {
        // It ends by itself (`pthread_exit`), and the process with the last other.
        background::end();
    }
    if cache != ENDED.cast() {
        thread_slot().cache.set(ENDED.cast());
        flush(cache.cast());
        abandon(cache.cast());
    }
}

fn is_main_thread() -> bool {
    spandrel_os::call::thread_id() == spandrel_os::env::pid() as u32
}

/// Empties a cache of the calling thread.
fn flush(cache: *mut Cache) {
    for place in 1..CLASSES {
        // SAFETY: the caller's own cache.
        unsafe {
            let class = seen_from((*cache).home, place);
            let stack = &mut (*cache).stacks[place];
            let count = stack.top.offset_from(stack.bottom) as usize;
            transfer::give(
                shard_of((*cache).home),
                class,
                core::slice::from_raw_parts(stack.bottom, count),
            );
            (*cache).hits.look(place, || count);
            (*cache).hits.note(place, 0);
            stack.top = stack.bottom;
            Stack::begin_anew(stack, SLOTS[class]);
        }
    }
}

/// Gives back what the calling thread has cached.
pub fn flush_own() {
    let cache = thread_slot().cache.get().cast::<Cache>();
    if cache as usize > ENDED as usize {
        flush(cache);
    }
}

/// Shows each object that the calling thread has cached, with its class; unused caches are empty.
///
/// # Errors
/// What is not as it should be, or that of the caller.
///
/// # Safety
/// The calling thread has called [`fork_prepare`].
pub unsafe fn visit(
    mut object: impl FnMut(usize, usize) -> Result<(), Fault>,
) -> Result<(), Fault> {
    // SAFETY: promised by the caller.
    let mut unused = unsafe { UNUSED.held() }.0;
    while !unused.is_null() {
        // SAFETY: on the list, and so owned by the holder of its lock.
        let cache = unsafe { &*unused };
        let is_empty = cache.stacks.iter().all(|stack| stack.top == stack.bottom);
        ensure(unused as usize, is_empty, "a cache that a thread has left")?;
        unused = cache.next;
    }
    let own = thread_slot().cache.get().cast::<Cache>();
    if own as usize <= ENDED as usize {
        return Ok(());
    }
    for place in 1..CLASSES {
        // SAFETY: the calling thread's own cache.
        let (class, stack) =
            unsafe { (seen_from((*own).home, place), &raw const (*own).stacks[place]) };
        // SAFETY: as above.
        unsafe { Stack::visit(stack, SLOTS[class], |at| object(class, at))? };
    }
    Ok(())
}

/// Takes the lock before a `fork`.
pub fn fork_prepare() {
    UNUSED.acquire();
}

/// Gives the lock back after a `fork`.
///
/// # Safety
/// The calling thread called [`fork_prepare`] before the fork.
pub unsafe fn fork_done() {
    // SAFETY: passed on from the caller.
    unsafe { UNUSED.release() }
}
