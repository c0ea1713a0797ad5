//! Caches of processors: a block of stacks for each, which whoever runs there
//! uses without a lock (see `restartable`).
//!
//! A table says where the block of each processor is. Where it has none yet, or
//! somebody else is at it, the table names a block whose stacks are empty and full
//! at once, so that whoever runs there goes the slow way.

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::*};

use spandrel_os::barrier;
use spandrel_os::rseq::{self, Area, CPUS_MOST};
use spandrel_sync::{Lock, thread_slot};

use crate::class::{self, CLASS, CLASSES};
use crate::span::Wrong;
use crate::stack::Stack;
use crate::{map, report, restartable, thread_cache, transfer};

/// Objects cached of a class: this many bytes of them, within bounds.
const STACK_BYTES: usize = 64 * 1024;
const STACK_MOST: usize = 1024;
const STACK_LEAST: usize = 2;
/// Objects that come or go at once.
const BATCH: usize = 128;

/// What a processor has cached.
#[repr(C)]
pub struct Block {
    stacks: [Stack; CLASSES],
    /// Where the tops were when somebody looked last.
    seen: [*mut usize; CLASSES],
}

/// The block of stacks that are empty and full.
struct Nothing(Block);
// SAFETY: nobody writes to it.
unsafe impl Sync for Nothing {}
static NOTHING: Nothing =
    Nothing(Block { stacks: [const { Stack::none() }; CLASSES], seen: [ptr::null_mut(); CLASSES] });

/// Where whoever runs on a processor finds its block. Filled before any thread
/// uses it.
pub static BLOCKS: [AtomicPtr<Block>; CPUS_MOST] =
    [const { AtomicPtr::new(ptr::null_mut()) }; CPUS_MOST];
/// The blocks that there are, also while somebody is at one.
static MADE: [AtomicPtr<Block>; CPUS_MOST] = [const { AtomicPtr::new(ptr::null_mut()) }; CPUS_MOST];
/// One more than the highest processor that has one.
static END: AtomicUsize = AtomicUsize::new(0);
static ENABLED: AtomicBool = AtomicBool::new(false);
/// For making blocks, and for looking into others'.
static OTHERS: Lock<()> = Lock::new(());

static SLOTS: [usize; CLASSES] = class::kept(STACK_BYTES, STACK_LEAST, STACK_MOST);
const BLOCK_BYTES: usize = size_of::<Block>()
    + class::sum(&class::kept(STACK_BYTES, STACK_LEAST, STACK_MOST)) * size_of::<usize>();

fn nothing() -> *mut Block {
    ptr::from_ref(&NOTHING.0).cast_mut()
}

/// From now on threads use the caches of processors, if the C library and the
/// kernel offer what it takes. Those that have caches of their own keep them,
/// but for the caller.
pub fn start() {
    if rseq::area().is_none() || ENABLED.load(Relaxed) {
        return;
    }
    barrier::prepare_restarts();
    BLOCKS.iter().for_each(|block| block.store(nothing(), Relaxed));
    ENABLED.store(true, Release);
    thread_cache::flush_own();
    attach();
}

fn attach() -> Option<*mut Area> {
    let area = ptr::from_ref(rseq::area()?).cast_mut();
    thread_slot().cpu.set(area.cast());
    thread_cache::watch_main_thread();
    Some(area)
}

/// The calling thread's area, if it uses the caches of processors.
pub fn attached() -> Option<*mut Area> {
    let slot = thread_slot();
    if !slot.cpu.get().is_null() {
        return Some(slot.cpu.get().cast());
    }
    // A thread with a cache of its own goes on with that, or ends.
    if slot.cache.get().is_null() && ENABLED.load(Acquire) { attach() } else { None }
}

/// The block of the processor that the thread runs on just now, made if there
/// is none; `None`: somebody is at it, or there is no memory.
fn current(area: *mut Area) -> Option<*mut Block> {
    // SAFETY: the calling thread's area, which is there as long as the thread.
    let cpu = unsafe { (*area).cpu() };
    let block = BLOCKS[cpu].load(Acquire);
    if block != nothing() {
        return Some(block);
    }
    if MADE[cpu].load(Relaxed).is_null() { make(cpu) } else { None }
}

#[cold]
fn make(cpu: usize) -> Option<*mut Block> {
    let _guard = OTHERS.lock();
    if !MADE[cpu].load(Relaxed).is_null() {
        return None;
    }
    let block = map::open_cache(BLOCK_BYTES).cast::<Block>();
    if block.is_null() {
        return None;
    }
    // SAFETY: fresh zero memory of BLOCK_BYTES.
    unsafe {
        let mut slot = block.add(1).cast::<usize>();
        for (class, slots) in SLOTS.iter().copied().enumerate().skip(1) {
            (&raw mut (*block).stacks[class]).write(Stack::new(slot, slots));
            slot = slot.add(slots);
        }
    }
    MADE[cpu].store(block, Relaxed);
    END.fetch_max(cpu + 1, Relaxed);
    BLOCKS[cpu].store(block, Release);
    Some(block)
}

/// An object of a class, and some more for the processor; 0: no memory.
pub fn refill(area: *mut Area, class: usize) -> usize {
    let mut batch = [0; BATCH];
    let wanted = match current(area) {
        // SAFETY: blocks are never taken away; only the count for refills is touched.
        Some(block) => unsafe {
            let most = BATCH.min(SLOTS[class] / 2 + 1);
            (&(*block).stacks)[class].next_refill(CLASS[class].size as usize, most)
        },
        None => 1,
    };
    let fetched = transfer::fetch(class, &mut batch[..wanted]);
    let Some(last) = fetched.checked_sub(1) else { return 0 };
    let rest = &batch[..last];
    if !rest.is_empty() {
        // Perhaps on another processor by now, and perhaps there is no room.
        // SAFETY: the thread's area, and objects that are its own.
        let kept = unsafe { restartable::push_many(area, class, rest) };
        transfer::give(class, &rest[kept..]);
    }
    batch[last]
}

/// Gives an object back for whom `restartable::push` did not: when the stack is full,
/// some go on.
pub fn spill(area: *mut Area, class: usize, object: usize) {
    if current(area).is_some() {
        // SAFETY: the calling thread's area.
        let topmost = unsafe { restartable::pop(area, class) };
        if topmost == object {
            report::wrong(object, class, Wrong::FreeAlready);
        }
        if topmost != 0 {
            give_here(area, class, topmost);
        }
    }
    give_here(area, class, object);
}

/// Puts an object on the stack of the processor, which gives others away where it is full.
fn give_here(area: *mut Area, class: usize, object: usize) {
    // SAFETY: as above, and the object is the caller's.
    if unsafe { restartable::push(area, class, object) } {
        return;
    }
    if current(area).is_some() {
        let mut batch = [0; BATCH];
        let many = BATCH.min(SLOTS[class].div_ceil(2));
        // SAFETY: the calling thread's area.
        let taken = unsafe { restartable::pop_many(area, class, &mut batch[..many]) };
        transfer::give(class, &batch[..taken]);
        // SAFETY: as above, and the object is the caller's.
        if unsafe { restartable::push(area, class, object) } {
            return;
        }
    }
    transfer::give(class, &[object]);
}

/// Gives back what no processor has touched since the last call. True if
/// anything is cached still.
pub fn tend() -> bool {
    look_at_all(|top, seen| top == seen)
}

/// Gives back all that processors have cached.
pub fn flush() {
    look_at_all(|_, _| true);
}

/// Bytes of objects that processors have cached, more or less: they go on meanwhile.
pub fn bytes() -> u64 {
    let made = MADE.iter().take(END.load(Relaxed)).map(|block| block.load(Relaxed));
    made.filter(|block| !block.is_null())
        .flat_map(|block| (1..CLASSES).map(move |class| (block, class)))
        .map(|(block, class)| {
            // SAFETY: a block is never taken away; the top is one word.
            let count = unsafe {
                let stack = &raw const (*block).stacks[class];
                (&raw const (*stack).top).read_volatile().offset_from((*stack).bottom)
            };
            count as u64 * u64::from(CLASS[class].size)
        })
        .sum()
}

/// Gives back the stacks for which `goes` says so, by their top and what it was
/// at the last look. True if any object is left.
fn look_at_all(goes: impl Fn(*mut usize, *mut usize) -> bool) -> bool {
    let _guard = OTHERS.lock();
    let made = MADE.iter().take(END.load(Relaxed)).map(|block| block.load(Relaxed));
    made.enumerate().filter(|(_, block)| !block.is_null()).fold(false, |left, (cpu, block)| {
        // SAFETY: the processor's block, and the lock is held.
        left | unsafe { look_at(cpu, block, &goes) }
    })
}

/// # Safety
/// `block` is the processor's, and the caller holds the lock.
unsafe fn look_at(
    cpu: usize,
    block: *mut Block,
    goes: &impl Fn(*mut usize, *mut usize) -> bool,
) -> bool {
    let any_goes = (1..CLASSES).any(|class| {
        // SAFETY: the caller's block. Whoever runs there may change the top meanwhile; it
        // is one word.
        unsafe {
            let stack = &raw const (*block).stacks[class];
            let top = (&raw const (*stack).top).read_volatile();
            top != (*stack).bottom && goes(top, (*block).seen[class])
        }
    });
    // Nobody is in the middle of a sequence with this block after the barrier.
    let is_ours = any_goes && {
        BLOCKS[cpu].store(nothing(), Relaxed);
        barrier::restart(cpu)
    };
    let mut left = false;
    for class in 1..CLASSES {
        // SAFETY: as above; what is changed is ours alone.
        unsafe {
            let stack = &raw mut (*block).stacks[class];
            let top = (&raw const (*stack).top).read_volatile();
            let (bottom, seen) = ((*stack).bottom, &raw mut (*block).seen[class]);
            if is_ours && top != bottom && goes(top, *seen) {
                let count = top.offset_from(bottom) as usize;
                transfer::give(class, core::slice::from_raw_parts(bottom, count));
                (*stack).top = bottom;
                (*stack).forget_refills();
                *seen = bottom;
            } else {
                *seen = top;
                left |= top != bottom;
            }
        }
    }
    BLOCKS[cpu].store(block, Release);
    left
}

/// Takes the lock before a `fork`.
pub fn fork_prepare() {
    OTHERS.acquire();
}

/// Gives the lock back after a `fork`.
///
/// # Safety
/// The calling thread called [`fork_prepare`] before the fork.
pub unsafe fn fork_done() {
    // SAFETY: passed on from the caller.
    unsafe { OTHERS.release() }
}
