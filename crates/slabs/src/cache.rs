//! Caches of free objects, one for each thread.
//!
//! A stack of addresses for each class: objects are not written to while they
//! are free, so that a program that uses one after freeing it finds what it left
//! and the allocator finds what it needs.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering::*};

use spandrel_sync::{Lock, Once, ThreadSlot, thread_slot};

use crate::central;
use crate::class::CLASSES;
use crate::map;

/// Bytes of one cache: heads and stacks.
const CACHE_BYTES: usize = 32 * 1024;
/// Objects cached of a class: this many bytes of them, within bounds.
const STACK_BYTES: usize = 16 * 1024;
const STACK_MOST: usize = 128;
const STACK_LEAST: usize = 2;
/// The slot of a thread that has no cache any more, because it ends.
const ENDED: *mut Cache = ptr::without_provenance_mut(1);

/// The stack of one class. It is empty where `top` is `bottom`.
#[repr(C)]
struct Stack {
    top: *mut usize,
    bottom: *mut usize,
    limit: *mut usize,
    /// Objects that the next refill asks for: doubles from 1, so that a thread
    /// that needs one object does not hold a span's worth.
    refill: u32,
}

/// The cache of one thread.
#[repr(C)]
pub struct Cache {
    /// Next free cache, while this one is nobody's.
    next: *mut Cache,
    stacks: [Stack; CLASSES],
}

const SLOTS: usize = (CACHE_BYTES - size_of::<Cache>()) / size_of::<usize>();
const _: () = assert!(all_slots() <= SLOTS);

const fn slots_of(class: usize) -> usize {
    let size = CLASS_SIZES[class];
    let fit = STACK_BYTES / size;
    if fit > STACK_MOST {
        STACK_MOST
    } else if fit < STACK_LEAST {
        STACK_LEAST
    } else {
        fit
    }
}

const CLASS_SIZES: [usize; CLASSES] = crate::class::sizes();

const fn all_slots() -> usize {
    let (mut sum, mut class) = (0, 1);
    while class < CLASSES {
        sum += slots_of(class);
        class += 1;
    }
    sum
}

/// Caches that threads have left.
static UNUSED: Lock<Unused> = Lock::new(Unused(ptr::null_mut()));

struct Unused(*mut Cache);
// SAFETY: an unused cache is nobody's but the list's.
unsafe impl Send for Unused {}

static KEY_ONCE: Once = Once::new();
static KEY: AtomicU32 = AtomicU32::new(0);

/// An object of `class`; 0 when there is no memory.
#[inline(always)]
pub fn pop(class: usize) -> usize {
    let cache = ThreadSlot::current_cache().cast::<Cache>();
    if cache as usize > ENDED as usize {
        // SAFETY: the slot holds this thread's own cache, and `class` is below CLASSES.
        unsafe {
            let stacks = &mut (*cache).stacks;
            let stack = stacks.get_unchecked_mut(class);
            if stack.top != stack.bottom {
                stack.top = stack.top.sub(1);
                return *stack.top;
            }
        }
    }
    pop_slow(class)
}

/// Gives an object of `class` back.
#[inline(always)]
pub fn push(class: usize, object: usize) {
    let cache = ThreadSlot::current_cache().cast::<Cache>();
    if cache as usize > ENDED as usize {
        // SAFETY: the slot holds this thread's own cache, and `class` is below CLASSES.
        unsafe {
            let stacks = &mut (*cache).stacks;
            let stack = stacks.get_unchecked_mut(class);
            if stack.top != stack.limit {
                *stack.top = object;
                stack.top = stack.top.add(1);
                return;
            }
        }
    }
    push_slow(class, object);
}

#[cold]
#[inline(never)]
fn pop_slow(class: usize) -> usize {
    let mut objects = [0; STACK_MOST];
    let Some(cache) = own() else {
        return if central::fetch(class, &mut objects[..1]) == 1 { objects[0] } else { 0 };
    };
    // SAFETY: this thread's own cache; nothing between here and the last use of
    // the stack calls malloc.
    let stack = unsafe { &mut (*cache).stacks[class] };
    let wanted = (stack.refill as usize).clamp(1, slots_of(class) / 2 + 1);
    stack.refill = (wanted * 2) as u32;
    let fetched = central::fetch(class, &mut objects[..wanted]);
    let Some((first, rest)) = objects[..fetched].split_first() else { return 0 };
    for object in rest.iter().rev() {
        // SAFETY: the stack is empty and has room for half of its slots.
        unsafe {
            stack.top.write(*object);
            stack.top = stack.top.add(1);
        }
    }
    *first
}

#[cold]
#[inline(never)]
fn push_slow(class: usize, object: usize) {
    let Some(cache) = own() else { return central::give(class, &[object]) };
    // SAFETY: as in `pop_slow`.
    unsafe {
        let stack = &mut (*cache).stacks[class];
        if stack.top == stack.limit {
            // The older half goes: what was freed last is warm.
            let all = stack.top.offset_from(stack.bottom) as usize;
            let half = all.div_ceil(2);
            central::give(class, core::slice::from_raw_parts(stack.bottom, half));
            ptr::copy(stack.bottom.add(half), stack.bottom, all - half);
            stack.top = stack.bottom.add(all - half);
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
    KEY_ONCE.run(|| {
        let mut key = 0;
        // SAFETY: `ended` is a destructor as pthreads have it.
        let made = unsafe { libc::pthread_key_create(&mut key, Some(ended)) } == 0;
        KEY.store(if made { key + 1 } else { 0 }, Release);
    });
    let key = KEY.load(Acquire);
    if key == 0 {
        return None;
    }
    // What the C library allocates for the key comes here again.
    slot.set(ENDED.cast());
    let cache = adopt()?;
    // SAFETY: the key exists. A thread whose end is not told would keep its
    // cache for good.
    if unsafe { libc::pthread_setspecific(key - 1, cache.cast()) } != 0 {
        abandon(cache);
        return None;
    }
    slot.set(cache.cast());
    Some(cache)
}

/// A cache that nobody uses.
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
        let mut slot = cache.add(1).cast::<usize>();
        for class in 1..CLASSES {
            let slots = slots_of(class);
            (*cache).stacks[class] =
                Stack { top: slot, bottom: slot, limit: slot.add(slots), refill: 1 };
            slot = slot.add(slots);
        }
    }
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
    thread_slot().cache.set(ENDED.cast());
    let cache = cache.cast::<Cache>();
    flush(cache);
    abandon(cache);
}

/// Empties a cache of the calling thread.
fn flush(cache: *mut Cache) {
    for class in 1..CLASSES {
        // SAFETY: the caller's own cache.
        unsafe {
            let stack = &mut (*cache).stacks[class];
            let count = stack.top.offset_from(stack.bottom) as usize;
            central::give(class, core::slice::from_raw_parts(stack.bottom, count));
            stack.top = stack.bottom;
            stack.refill = 1;
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
