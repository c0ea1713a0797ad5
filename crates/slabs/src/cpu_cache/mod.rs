//! Caches of processors: a block of stacks for each, which the thread that runs there
//! uses without a lock (see `restartable`).
//!
//! A table says where the block of each processor is. Where it has none yet, or
//! another thread is at it, the table names a block whose stacks are empty and full
//! at once, so that a thread that runs there goes the slow way.

mod all;
mod tides;

use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering::*};

use spandrel_os::barrier;
use spandrel_os::rseq::{self, Area, CPUS_MOST};
use spandrel_pages::MIB;
use spandrel_sync::{Lock, thread_slot};

use crate::class::{self, CLASS, CLASSES, home_of, seen_from, shard_of};
use crate::hits::Hits;
use crate::recent::Recent;
use crate::refuse::clock;
use crate::span::Wrong;
use crate::stack::Stack;
use crate::{map, report, restartable, thread_cache, transfer};

pub use all::{alone_with_all, flush, tend, visit};
use tides::{earn, grow, narrow, widen};

/// Objects cached of a class: this many bytes of them, within bounds, where they come and go quickly, ...
const STACK_BYTES: usize = 64 * 1024;
/// ... and this many at first. What one processor gives out and another gets back fills the stacks of both, whatever is live: threads
/// that end after 200 objects each had 3.5 MiB in them.
const FIRST_STACK_BYTES: usize = 24 * 1024;
const FIRST_STACK_LEAST: usize = 64;
const STACK_MOST: usize = 1024;
const STACK_LEAST: usize = 2;
/// By this number of bytes of objects all stacks of a processor may grow together.
const GROWN_BYTES: usize = 2 * MIB;
/// Objects that come or go at once.
const BATCH: usize = 256;

/// What a processor has cached.
#[repr(C)]
pub struct Block {
    stacks: [Stack; CLASSES],
    recent: Recent,
    /// Where in the block the stack of each class lies; where there are no stacks, that of class 0 stands for all.
    stack_of: [u16; CLASSES],
    /// Objects that were in the stacks at the last look.
    seen: [usize; CLASSES],
    /// Slots that each stack may have where it lies.
    room: [usize; CLASSES],
    /// Slots that each stack has outside of long floods, up to those of [`SLOTS`].
    usual: [usize; CLASSES],
    /// When each stack flooded last, in microseconds: after an ebb, once it has its usual room.
    flooded: [AtomicU32; CLASSES],
    /// Times in a row that each stack was full, or empty, soon after the last time.
    quick: [AtomicU8; CLASSES],
    /// Bytes of objects for which stacks have grown.
    grown: usize,
    hits: Hits,
}

/// Where assembly finds what was put last.
pub const RECENT_AT: usize = offset_of!(Block, recent);
/// Where assembly finds which stack has a class.
pub const STACK_OF_AT: usize = offset_of!(Block, stack_of);

/// The block of stacks that are empty and full.
struct Nothing(Block);
// SAFETY: no thread writes to it.
unsafe impl Sync for Nothing {}
static NOTHING: Nothing = Nothing(Block {
    stacks: [const { Stack::none() }; CLASSES],
    recent: Recent::none(),
    stack_of: [0; CLASSES],
    seen: [0; CLASSES],
    room: [0; CLASSES],
    usual: [0; CLASSES],
    flooded: [const { AtomicU32::new(0) }; CLASSES],
    quick: [const { AtomicU8::new(0) }; CLASSES],
    grown: 0,
    hits: Hits::none(),
});

/// Where a thread finds the block of the processor that it runs on. Filled before any thread
/// uses it.
pub static BLOCKS: [AtomicPtr<Block>; CPUS_MOST] =
    [const { AtomicPtr::new(ptr::null_mut()) }; CPUS_MOST];
/// The blocks that there are, also while a thread is at one.
static MADE: [AtomicPtr<Block>; CPUS_MOST] = [const { AtomicPtr::new(ptr::null_mut()) }; CPUS_MOST];
/// One more than the highest processor that has one.
static END: AtomicUsize = AtomicUsize::new(0);
static ENABLED: AtomicBool = AtomicBool::new(false);
/// For making blocks, and for looking into others'.
static OTHERS: Lock<Spare> = Lock::new(Spare(ptr::null_mut()));

/// Room for what a block holds, so that its processor need not do without it for long.
struct Spare(*mut usize);
// SAFETY: the holder of the lock has the room.
unsafe impl Send for Spare {}

static SLOTS: [usize; CLASSES] = class::kept(STACK_BYTES, STACK_LEAST, STACK_MOST);
/// Slots of a stack at first.
static FIRST_SLOTS: [usize; CLASSES] = {
    let mut first = class::kept(FIRST_STACK_BYTES, FIRST_STACK_LEAST, STACK_MOST);
    let most = class::kept(STACK_BYTES, STACK_LEAST, STACK_MOST);
    let mut class = 0;
    while class < CLASSES {
        if first[class] > most[class] {
            first[class] = most[class];
        }
        class += 1;
    }
    first
};
const SLOTS_BYTES: usize =
    class::sum(&class::kept(STACK_BYTES, STACK_LEAST, STACK_MOST)) * size_of::<usize>();
const BLOCK_BYTES: usize = size_of::<Block>() + SLOTS_BYTES;

fn nothing() -> *mut Block {
    ptr::from_ref(&NOTHING.0).cast_mut()
}

/// From now on threads use the caches of processors, if the C library and the
/// kernel offer what it takes. Those that have caches of their own keep them,
/// but for the caller.
pub fn start() {
    thread_cache::start();
    if rseq::area().is_none() || ENABLED.load(Relaxed) || !barrier::prepare_restarts() {
        return;
    }
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
    if slot.is_stepped.get() {
        return None;
    }
    // A thread with a cache of its own goes on with that, or ends.
    if slot.cache.get().is_null() && ENABLED.load(Acquire) { attach() } else { None }
}

/// The block of the processor that the thread runs on just now, made if there
/// is none; `None`: another thread is at it, or there is no memory.
fn current(area: *mut Area) -> Option<*mut Block> {
    // SAFETY: the calling thread's area, which is there as long as the thread.
    let cpu = unsafe { restartable::processor(area) };
    let block = BLOCKS[cpu].load(Acquire);
    if block != nothing() {
        return Some(block);
    }
    if MADE[cpu].load(Relaxed).is_null() { make(cpu) } else { None }
}

#[cold]
fn make(cpu: usize) -> Option<*mut Block> {
    let mut spare = OTHERS.lock();
    if !MADE[cpu].load(Relaxed).is_null() {
        return None;
    }
    // Once there are blocks there is room for what comes out of them.
    if spare.0.is_null() {
        spare.0 = map::open_cache(SLOTS_BYTES).cast();
        if spare.0.is_null() {
            return None;
        }
    }
    let block = map::open_cache(BLOCK_BYTES).cast::<Block>();
    if block.is_null() {
        return None;
    }
    // SAFETY: fresh zero memory of BLOCK_BYTES.
    unsafe {
        Stack::lay_out(&raw mut (*block).stacks, block.add(1).cast(), &SLOTS);
        (&raw mut (*block).room).write(SLOTS);
        (&raw mut (*block).usual).write(FIRST_SLOTS);
        for (class, slots) in FIRST_SLOTS.iter().enumerate().skip(1) {
            Stack::set_slots(&raw mut (*block).stacks[class], *slots);
        }
        let home = home_of(cpu);
        for (class, at) in (*block).stack_of.iter_mut().enumerate() {
            *at = restartable::offset(seen_from(home, class)) as u16;
        }
        // There is no class 0: its stack stays empty.
        Recent::begin(&raw mut (*block).recent, block.cast());
    }
    MADE[cpu].store(block, Release);
    END.fetch_max(cpu + 1, Relaxed);
    BLOCKS[cpu].store(block, Release);
    Some(block)
}

/// An object for the stack of requests of a size, and some more for the processor; 0: no memory.
// Work beside the program comes after it, and has the stack that its batch takes.
#[inline(never)]
pub fn refill(area: *mut Area, place: usize) -> usize {
    let mut batch = [0; BATCH];
    // SAFETY: the calling thread's area, which is there as long as the thread.
    let home = home_of(unsafe { restartable::processor(area) });
    let (class, shard) = (seen_from(home, place), shard_of(home));
    let now = clock::micros() as u32;
    let wanted = match current(area) {
        // SAFETY: blocks are never taken away.
        Some(block) => unsafe {
            look(block, place);
            widen(block, place);
            let stack = &raw const (*block).stacks[place];
            let since = Stack::since_refill(stack, now);
            let most = BATCH.min(Stack::slots(stack) / 2 + 1);
            let wanted = Stack::next_refill(stack, now, CLASS[class].size as usize, most);
            if wanted == most {
                earn(block, place, class, since);
            }
            wanted
        },
        None => 1,
    };
    let (fetched, from_spans) = transfer::fetch(shard, class, &mut batch[..wanted]);
    let Some(last) = fetched.checked_sub(1) else { return 0 };
    if from_spans && let Some(block) = current(area) {
        // SAFETY: blocks are never taken away.
        unsafe { Stack::note_ebb(&raw const (*block).stacks[place]) };
    }
    let rest = &batch[..last];
    if !rest.is_empty() {
        // Perhaps on another processor by now, and perhaps there is no room.
        // SAFETY: the thread's area, and objects that are its own.
        let kept = unsafe { restartable::push_many(area, class, rest) };
        transfer::give(shard, class, &rest[kept..]);
    }
    if let Some(block) = current(area) {
        // SAFETY: as above.
        unsafe { look(block, place) };
    }
    batch[last]
}

/// Looks at the stack at some place for what it has served.
///
/// # Safety
/// There is such a block.
unsafe fn look(block: *mut Block, place: usize) {
    // SAFETY: promised by the caller; blocks are never taken away, and only atomics are looked at, and the
    // top, as it was a moment ago.
    unsafe {
        let stack = &raw const (*block).stacks[place];
        (*block).hits.look(place, || Stack::count(stack));
    }
}

/// Notes that others than requests have taken objects off the stack at some place.
///
/// # Safety
/// As for [`look`].
unsafe fn note(block: *mut Block, place: usize) {
    // SAFETY: as in `look`.
    unsafe {
        let stack = &raw const (*block).stacks[place];
        (*block).hits.note(place, Stack::count(stack));
    }
}

/// Gives an object back that `restartable::push` did not take: when the stack is full, some go on.
#[inline(never)]
pub fn spill(area: *mut Area, class: usize, object: usize) {
    // SAFETY: the calling thread's area, which is there as long as the thread.
    let cpu = unsafe { restartable::processor(area) };
    if is_cached(cpu, class, object) {
        report::wrong(object, class, Wrong::FreeAlready);
    }
    let shard = shard_of(home_of(cpu));
    // SAFETY: as above, and the object is the caller's.
    let push = || unsafe { restartable::push_many(area, class, &[object]) };
    let keep = || current(area).is_some() && push() == 1;
    if keep() {
        return;
    }
    if !grow(area, class) {
        let mut batch = [0; BATCH];
        // SAFETY: blocks are never taken away.
        let slots = current(area).map_or(SLOTS[class], |block| unsafe {
            Stack::slots(&raw const (*block).stacks[seen_from(home_of(cpu), class)])
        });
        let many = BATCH.min(slots.div_ceil(2));
        // SAFETY: as above.
        let taken = unsafe { restartable::pop_many(area, class, &mut batch[..many]) };
        // SAFETY: blocks are never taken away.
        current(area)
            .into_iter()
            .for_each(|block| unsafe { note(block, seen_from(home_of(cpu), class)) });
        let passed = transfer::give(shard, class, &batch[..taken]);
        narrow(area, class, passed);
    }
    if !keep() {
        transfer::give(shard, class, &[object]);
    }
}

/// Whether a processor has an object cached that is about to be given back: that it was put there lately
/// is remembered, and it lies there still.
fn is_cached(cpu: usize, class: usize, object: usize) -> bool {
    let block = MADE[cpu].load(Acquire);
    if block.is_null() {
        return false;
    }
    // SAFETY: a block is never taken away.
    let stack = unsafe { &raw const (*block).stacks[seen_from(home_of(cpu), class)] };
    // SAFETY: as above, and only a thread that runs there writes to the entry, as below.
    let entry = unsafe { Recent::entry(&raw mut (*block).recent, object) };
    // SAFETY: as above.
    let seems = |top| unsafe { Recent::seems_cached(entry.read_volatile(), top, object) };
    // SAFETY: as above; what has been below the top since it was read was not the caller's.
    if !seems(unsafe { (&raw const (*stack).top).read_volatile() }) {
        return false;
    }
    // Stacks stay where they are meanwhile.
    let _others = OTHERS.lock();
    // SAFETY: as above.
    let (bottom, top) = unsafe { ((*stack).bottom, (&raw const (*stack).top).read_volatile()) };
    // SAFETY: as above.
    let slot = unsafe { entry.read_volatile() };
    if slot >= bottom && seems(top) {
        return true;
    }
    // It was in another stack, when there were objects of another class in its place.
    // SAFETY: as above; a thread that writes there meanwhile writes what is as good.
    unsafe { entry.write_volatile(block.cast()) };
    false
}

/// Does something while no thread is at the block of a processor; false: that cannot be had. To be
/// called with the lock held.
fn alone(cpu: usize, block: *mut Block, work: impl FnOnce()) -> bool {
    BLOCKS[cpu].store(nothing(), Relaxed);
    // No thread is in the middle of a sequence with this block after the barrier, and none
    // begins one. It is not for long.
    let is_ours = restartable::restart(cpu);
    if is_ours {
        work();
    }
    BLOCKS[cpu].store(block, Release);
    is_ours
}

/// Bytes of objects that processors have cached, more or less, as they go on meanwhile, and requests that
/// were served from there for certain.
pub fn counts() -> (u64, u64) {
    made().fold((0, 0), |(mut bytes, hits), (_, block)| {
        for (class, of) in CLASS.iter().enumerate().skip(1) {
            // SAFETY: a block is never taken away.
            let count = unsafe {
                look(block, class);
                Stack::count(&raw const (*block).stacks[class])
            };
            bytes += count as u64 * u64::from(of.size);
        }
        // SAFETY: as above; it consists of atomics.
        (bytes, hits + unsafe { (*block).hits.served() })
    })
}

/// The child of a fork counts what it does itself.
pub fn fork_forget() {
    // SAFETY: as in `counts`.
    made().for_each(|(_, block)| unsafe { (*block).hits.forget() });
}

/// The processors that have a block, and their blocks.
fn made() -> impl Iterator<Item = (usize, *mut Block)> {
    let all = MADE.iter().take(END.load(Relaxed)).map(|block| block.load(Acquire));
    all.enumerate().filter(|(_, block)| !block.is_null())
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
