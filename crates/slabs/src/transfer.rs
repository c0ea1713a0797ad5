//! Transfer caches: free objects on their way from thread to thread, a stack of
//! addresses for each class.
//!
//! What one thread has too many of another takes without a look at the spans.
//! Objects that nobody has taken for a while go back to their spans: they would
//! keep them from becoming empty.

use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use spandrel_sync::{Lock, background};

use crate::central;
use crate::class::{self, CLASS, CLASSES};
use crate::map;

/// Objects of a class that are kept: this many bytes of them, up to a number.
const BYTES: usize = 128 * 1024;
const MOST: usize = 2048;
/// Objects that go back to their spans under one holding of the lock.
const BATCH: usize = 64;

/// How many slots the stack of each class has; none where one object is more
/// than is kept.
static SLOTS: [usize; CLASSES] = class::kept(BYTES, 0, MOST);

/// The stack of one class, the oldest object at the bottom.
struct Stack {
    slots: *mut usize,
    count: usize,
    /// The fewest objects that were here since somebody looked last: as many
    /// were of no use to anybody.
    least: usize,
    /// Times that somebody asked and found objects here, and none, since so many forks.
    hits: u64,
    misses: u64,
    forks: u32,
}

/// Times that this process and those it descends from were forked.
static FORKS: AtomicU32 = AtomicU32::new(0);

impl Stack {
    const NONE: Self =
        Self { slots: ptr::null_mut(), count: 0, least: 0, hits: 0, misses: 0, forks: 0 };

    /// The counts of this process.
    fn counts(&mut self) -> (&mut u64, &mut u64) {
        let forks = FORKS.load(Relaxed);
        if self.forks != forks {
            (self.hits, self.misses, self.forks) = (0, 0, forks);
        }
        (&mut self.hits, &mut self.misses)
    }
}

// SAFETY: the slots are the stack's alone.
unsafe impl Send for Stack {}

static STACKS: [Lock<Stack>; CLASSES] = [const { Lock::new(Stack::NONE) }; CLASSES];

/// Gives the stacks their memory, once; without it nothing is kept here.
pub fn start() {
    let mut slots = map::open_cache(class::sum(&SLOTS) * size_of::<usize>()).cast::<usize>();
    if slots.is_null() {
        return;
    }
    for (class, stack) in STACKS.iter().enumerate().skip(1) {
        stack.lock().slots = slots;
        // SAFETY: within the memory for all of them.
        slots = unsafe { slots.add(SLOTS[class]) };
    }
}

/// Takes up to `into.len()` objects of a class, here or from their spans; how
/// many, and whether from spans. None: there is no memory.
pub fn fetch(class: usize, into: &mut [usize]) -> (usize, bool) {
    let mut stack = STACKS[class].lock();
    let taken = stack.count.min(into.len());
    if taken == 0 {
        *stack.counts().1 += 1;
        drop(stack);
        let fetched = central::fetch(class, into);
        // The lowest address is used first.
        into[..fetched].reverse();
        return (fetched, true);
    }
    *stack.counts().0 += 1;
    stack.count -= taken;
    stack.least = stack.least.min(stack.count);
    // SAFETY: the topmost `taken` of the objects that are here.
    unsafe { ptr::copy_nonoverlapping(stack.slots.add(stack.count), into.as_mut_ptr(), taken) };
    (taken, false)
}

/// Whether objects of a class that come here now have to go on to their spans.
pub fn is_full(class: usize) -> bool {
    let stack = STACKS[class].lock();
    stack.slots.is_null() || stack.count == SLOTS[class]
}

/// Gives objects of a class back.
pub fn give(class: usize, objects: &[usize]) {
    if objects.is_empty() {
        return;
    }
    let mut stack = STACKS[class].lock();
    let room = if stack.slots.is_null() { 0 } else { SLOTS[class] - stack.count };
    let (kept, rest) = objects.split_at(room.min(objects.len()));
    // SAFETY: there is room for so many.
    unsafe {
        let top = stack.slots.wrapping_add(stack.count);
        ptr::copy_nonoverlapping(kept.as_ptr(), top, kept.len());
    }
    stack.count += kept.len();
    drop(stack);
    if !kept.is_empty() {
        // They may be forgotten here.
        background::wake();
    }
    if !rest.is_empty() {
        central::give(class, rest);
    }
}

/// Gives objects that were of no use since the last call back to their spans.
/// True if others are left.
pub fn tend() -> bool {
    (1..CLASSES).fold(false, |any, class| {
        any | (shrink(class, |stack| core::mem::take(&mut stack.least)) > 0)
    })
}

/// Gives all objects back to their spans.
pub fn flush() {
    (1..CLASSES).for_each(|class| _ = shrink(class, |stack| stack.count));
}

/// Gives as many of the oldest objects back as `surplus` says; how many are left.
fn shrink(class: usize, surplus: impl FnOnce(&mut Stack) -> usize) -> usize {
    let mut stack = STACKS[class].lock();
    let mut left = surplus(&mut stack);
    while left > 0 && stack.count > 0 {
        let mut batch = [0; BATCH];
        let taken = left.min(BATCH).min(stack.count);
        // SAFETY: the lowest `taken` of the objects that are here.
        unsafe {
            ptr::copy_nonoverlapping(stack.slots, batch.as_mut_ptr(), taken);
            ptr::copy(stack.slots.add(taken), stack.slots, stack.count - taken);
        }
        stack.count -= taken;
        left -= taken;
        drop(stack);
        central::give(class, &batch[..taken]);
        stack = STACKS[class].lock();
    }
    stack.least = stack.count;
    stack.count
}

/// Bytes of objects that are here, how often somebody asked and found objects, and
/// how often none.
pub fn counts() -> (u64, u64, u64) {
    STACKS.iter().zip(&CLASS).fold((0, 0, 0), |(bytes, hits, misses), (stack, class)| {
        let mut stack = stack.lock();
        let here = stack.count as u64 * u64::from(class.size);
        let (more_hits, more_misses) = stack.counts();
        (bytes + here, hits + *more_hits, misses + *more_misses)
    })
}

/// The child of a fork counts what it does itself. Its locks may be held just now.
pub fn fork_forget() {
    FORKS.fetch_add(1, Relaxed);
}

/// Takes every lock before a `fork`.
pub fn fork_prepare() {
    STACKS.iter().for_each(Lock::acquire);
}

/// Gives the locks back after a `fork`.
///
/// # Safety
/// The calling thread called [`fork_prepare`] before the fork.
pub unsafe fn fork_done() {
    for stack in &STACKS {
        // SAFETY: passed on from the caller.
        unsafe { stack.release() };
    }
}
