//! Transfer caches: free objects on their way from thread to thread, a stack of
//! addresses for each class and shard of processors.
//!
//! What one thread has too many of another takes without a look at the spans.
//! Objects that no thread has taken for a while return to their spans: they would
//! keep them from becoming empty.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::*};
use core::{mem, ptr};

use spandrel_sync::{Lock, LockGuard, background};

use crate::central;
use crate::check::{self, Fault, ensure};
use crate::class::{self, CLASS, CLASSES, SHARDS};
use crate::map;
use crate::report;

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
    /// The fewest objects that were here since the last look: as many were of
    /// no use.
    least: usize,
    /// Objects that found no room here since the shard took any.
    passed: usize,
    /// Nothing is kept until the shard takes objects again: see [`let_pass`].
    lets_pass: bool,
    /// Calls that found objects here, and calls that found none, since fork number `forks`.
    hits: u64,
    misses: u64,
    forks: u32,
}

/// Times that this process and those it descends from were forked.
static FORKS: AtomicU32 = AtomicU32::new(0);

impl Stack {
    const NONE: Self = Self {
        slots: ptr::null_mut(),
        count: 0,
        least: 0,
        passed: 0,
        lets_pass: false,
        hits: 0,
        misses: 0,
        forks: 0,
    };

    /// The counts of this process.
    fn counts(&mut self) -> (&mut u64, &mut u64) {
        let forks = FORKS.load(Relaxed);
        if self.forks != forks {
            (self.hits, self.misses, self.forks) = (0, 0, forks);
        }
        (&mut self.hits, &mut self.misses)
    }

    /// Takes up to `into.len()` objects; how many.
    fn take(&mut self, into: &mut [usize]) -> usize {
        let taken = self.count.min(into.len());
        self.count -= taken;
        self.least = self.least.min(self.count);
        // SAFETY: the topmost `taken` of the objects that are here.
        unsafe {
            ptr::copy_nonoverlapping(self.slots.wrapping_add(self.count), into.as_mut_ptr(), taken);
        }
        taken
    }

    /// The objects that are here, the oldest first.
    fn objects(&self) -> &[usize] {
        if self.slots.is_null() {
            return &[];
        }
        // SAFETY: the first `count` slots hold objects.
        unsafe { core::slice::from_raw_parts(self.slots, self.count) }
    }

    /// Whether the counts can be.
    fn check(&self, class: usize) -> Result<(), Fault> {
        let room = if self.slots.is_null() { 0 } else { SLOTS[class] };
        ensure(class, self.count <= room, "objects in a transfer cache of a class (by number)")?;
        ensure(class, self.least <= self.count, "what was of no use in a transfer cache")
    }
}

// SAFETY: the slots are the stack's alone.
unsafe impl Send for Stack {}

static STACKS: [[Lock<Stack>; CLASSES]; SHARDS] =
    [const { [const { Lock::new(Stack::NONE) }; CLASSES] }; SHARDS];

/// Whether the stacks of a shard have been given their memory, if there was any.
static OPEN: [AtomicBool; SHARDS] = [const { AtomicBool::new(false) }; SHARDS];
/// One more than the last shard whose stacks are in use.
static END: AtomicUsize = AtomicUsize::new(0);
/// For opening one.
static OPENING: Lock<()> = Lock::new(());

/// The shard's stack of a class, to be used.
fn stack(shard: usize, class: usize) -> LockGuard<'static, Stack> {
    if !OPEN[shard].load(Acquire) {
        open(shard);
    }
    STACKS[shard][class].lock()
}

/// Gives the stacks of a shard their memory; without it nothing is kept there.
#[cold]
fn open(shard: usize) {
    let _opening = OPENING.lock();
    if OPEN[shard].load(Relaxed) {
        return;
    }
    END.fetch_max(shard + 1, Relaxed);
    let mut slots = map::open_cache(class::sum(&SLOTS) * size_of::<usize>()).cast::<usize>();
    if !slots.is_null() {
        for (class, stack) in STACKS[shard].iter().enumerate().skip(1) {
            stack.lock().slots = slots;
            // SAFETY: within the memory for all of them.
            slots = unsafe { slots.add(SLOTS[class]) };
        }
    }
    OPEN[shard].store(true, Release);
}

/// The stacks that may be in use.
fn used() -> &'static [[Lock<Stack>; CLASSES]] {
    &STACKS[..END.load(Relaxed)]
}

/// Takes up to `into.len()` objects of a class, here or from their spans; how
/// many, and whether from spans. None: there is no memory.
///
/// What the shard has itself comes first, then what others have, then a new span.
pub fn fetch(shard: usize, class: usize, into: &mut [usize]) -> (usize, bool) {
    let mut stack = stack(shard, class);
    (stack.passed, stack.lets_pass) = (0, false);
    let taken = stack.take(into);
    if cfg!(debug_assertions) {
        check::hold(stack.check(class));
        check::hold(check::all_in_use(class, &into[..taken]));
    }
    let (hits, misses) = stack.counts();
    *(if taken > 0 { hits } else { misses }) += 1;
    drop(stack);
    if taken > 0 {
        return (taken, false);
    }
    let mut fetched = central::fetch_own(shard, class, into);
    if fetched == 0 {
        let others = used().iter().enumerate().filter(|(other, _)| *other != shard);
        let taken =
            others.map(|(_, stacks)| stacks[class].lock().take(into)).find(|taken| *taken > 0);
        if let Some(taken) = taken {
            return (taken, false);
        }
        fetched = central::fetch(shard, class, into);
    }
    // The lowest address is used first.
    into[..fetched].reverse();
    (fetched, true)
}

/// Whether objects of a class that come here now have to go on to their spans.
pub fn is_full(shard: usize, class: usize) -> bool {
    let stack = stack(shard, class);
    stack.slots.is_null() || stack.count == SLOTS[class]
}

/// Gives what is here of a class back to its spans, and lets all that comes pass to them, until the shard takes objects of the
/// class again.
pub fn let_pass(shard: usize, class: usize) {
    shrink(class, &STACKS[shard][class], |stack| {
        stack.lets_pass = true;
        stack.count
    });
}

/// Slots of each stack of a class.
pub fn slots(class: usize) -> usize {
    SLOTS[class]
}

/// Gives objects of a class back; how many had no room here since the shard took any.
pub fn give(shard: usize, class: usize, objects: &[usize]) -> usize {
    if objects.is_empty() {
        return 0;
    }
    if cfg!(debug_assertions) {
        // Wrong frees are the program's.
        objects.iter().for_each(|object| {
            if let Some(wrong) = check::wrong(class, *object) {
                report::wrong(*object, class, wrong);
            }
        });
    }
    let mut stack = stack(shard, class);
    let keeps = !stack.slots.is_null() && !stack.lets_pass;
    let room = if keeps { SLOTS[class] - stack.count } else { 0 };
    let (kept, rest) = objects.split_at(room.min(objects.len()));
    // SAFETY: there is room for the kept ones.
    unsafe {
        let top = stack.slots.wrapping_add(stack.count);
        ptr::copy_nonoverlapping(kept.as_ptr(), top, kept.len());
    }
    stack.count += kept.len();
    stack.passed = stack.passed.saturating_add(rest.len());
    let passed = stack.passed;
    if cfg!(debug_assertions) {
        check::hold(stack.check(class));
    }
    drop(stack);
    if !kept.is_empty() {
        // They may be forgotten here.
        background::wake();
    }
    if !rest.is_empty() {
        central::give(class, rest);
    }
    passed
}

/// Gives objects that were of no use since the last call back to their spans.
/// True if others are left.
pub fn tend() -> bool {
    all().fold(false, |any, (class, stack)| {
        any | (shrink(class, stack, |stack| mem::take(&mut stack.least)) > 0)
    })
}

/// Gives all objects back to their spans.
pub fn flush() {
    all().for_each(|(class, stack)| _ = shrink(class, stack, |stack| stack.count));
}

/// The stacks that may have anything, each with its class.
fn all() -> impl Iterator<Item = (usize, &'static Lock<Stack>)> {
    used().iter().flat_map(|stacks| stacks.iter().enumerate().skip(1))
}

/// Gives as many of the oldest objects back as `surplus` says; how many are left.
fn shrink(
    class: usize,
    lock: &'static Lock<Stack>,
    surplus: impl FnOnce(&mut Stack) -> usize,
) -> usize {
    let mut stack = lock.lock();
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
        stack.least = stack.least.min(stack.count);
        left -= taken;
        drop(stack);
        central::give(class, &batch[..taken]);
        stack = lock.lock();
    }
    stack.least = stack.count;
    stack.count
}

/// Looks at all stacks, and shows each object with its class.
///
/// # Errors
/// What is not as it should be, or that of the caller.
///
/// # Safety
/// The calling thread has called [`fork_prepare`].
pub unsafe fn visit(
    mut object: impl FnMut(usize, usize) -> Result<(), Fault>,
) -> Result<(), Fault> {
    for (class, stack) in all() {
        // SAFETY: promised by the caller.
        let stack = unsafe { stack.held() };
        stack.check(class)?;
        stack.objects().iter().try_for_each(|at| object(class, *at))?;
    }
    Ok(())
}

/// Bytes of objects that are here, calls that found objects, and calls that found
/// none.
pub fn counts() -> (u64, u64, u64) {
    all().fold((0, 0, 0), |(bytes, hits, misses), (class, stack)| {
        let mut stack = stack.lock();
        let here = stack.count as u64 * u64::from(CLASS[class].size);
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
    // No thread begins to use others.
    OPENING.acquire();
    used().as_flattened().iter().for_each(Lock::acquire);
}

/// Gives the locks back after a `fork`.
///
/// # Safety
/// The calling thread called [`fork_prepare`] before the fork.
pub unsafe fn fork_done() {
    for stack in used().as_flattened() {
        // SAFETY: passed on from the caller.
        unsafe { stack.release() };
    }
    // SAFETY: as above.
    unsafe { OPENING.release() };
}
