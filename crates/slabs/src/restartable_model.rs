//! A model of `restartable`: the same operations, instruction by instruction. Before each of them other
//! tasks may go on; a task whose processor another began a sequence on meanwhile, or which the barrier
//! was for, is sent back to the beginning, perhaps on another processor. Safe wherever `restartable` is.

extern crate std;

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

use shuttle::rand::{Rng, thread_rng};
use shuttle::thread::yield_now;
use spandrel_os::rseq::Area;

use crate::class::{home_of, seen_from};
use crate::cpu_cache::{BLOCKS, RECENT_AT, STACK_OF_AT};
use crate::recent::Recent;
use crate::stack::Stack;

/// Processors, so few that tasks meet there.
const PROCESSORS: usize = 2;

/// How often a sequence was begun or disturbed on each processor.
static TURNS: [AtomicU64; PROCESSORS] = [const { AtomicU64::new(0) }; PROCESSORS];
/// Whether the barrier sends tasks back. Without it tests must fail.
pub static HAS_BARRIER: AtomicBool = AtomicBool::new(true);

/// Where a block has the stack at some place.
pub const fn offset(place: usize) -> usize {
    place * size_of::<Stack>()
}

/// Where the calling task is just now.
///
/// # Safety
/// As for the real one.
pub(crate) unsafe fn processor(_: *mut Area) -> usize {
    yield_now();
    thread_rng().gen_range(0..PROCESSORS)
}

/// Sends a task in the middle of a sequence on a processor back to its beginning.
pub(crate) fn restart(cpu: usize) -> bool {
    yield_now();
    if HAS_BARRIER.load(Relaxed) {
        TURNS[cpu].fetch_add(1, Relaxed);
    }
    yield_now();
    true
}

/// A task in the middle of a sequence.
struct Sequence {
    cpu: usize,
    turn: u64,
}

impl Sequence {
    /// Another instruction; `None`: the kernel sends the task back instead.
    fn step(&self) -> Option<()> {
        yield_now();
        (TURNS[self.cpu].load(Relaxed) == self.turn).then_some(())
    }

    /// # Safety
    /// The word may be read.
    unsafe fn read<T: Copy>(&self, word: *const T) -> Option<T> {
        self.step()?;
        // SAFETY: passed on from the caller.
        Some(unsafe { word.read_volatile() })
    }

    /// # Safety
    /// The word may be written to.
    unsafe fn write<T: Copy>(&self, word: *mut T, value: T) -> Option<()> {
        self.step()?;
        // SAFETY: passed on from the caller.
        unsafe { word.write_volatile(value) };
        Some(())
    }

    /// A copy that may be interrupted in the middle, not at every word: tasks are to come to an end.
    ///
    /// # Safety
    /// `count` words may be read and written to.
    unsafe fn copy(&self, from: *const usize, to: *mut usize, count: usize) -> Option<()> {
        let half = count / 2;
        self.step()?;
        // SAFETY: passed on from the caller.
        unsafe { to.copy_from(from, half) };
        self.step()?;
        // SAFETY: as above.
        unsafe { to.add(half).copy_from(from.add(half), count - half) };
        Some(())
    }

    /// The processor's block, which begins with its stacks.
    fn block(&self) -> Option<*mut Stack> {
        self.step()?;
        Some(BLOCKS[self.cpu].load(Relaxed).cast())
    }

    /// Where a block has the stack of a class.
    fn place(&self, class: usize) -> usize {
        seen_from(home_of(self.cpu), class)
    }

    /// The stack of a class.
    fn stack(&self, class: usize) -> Option<*mut Stack> {
        Some(self.block()?.wrapping_add(self.place(class)))
    }
}

/// Does a sequence until it comes to its end undisturbed.
fn run<T>(sequence: impl Fn(&Sequence) -> Option<T>) -> T {
    loop {
        let cpu = thread_rng().gen_range(0..PROCESSORS);
        let turn = TURNS[cpu].fetch_add(1, Relaxed) + 1;
        if let Some(result) = sequence(&Sequence { cpu, turn }) {
            return result;
        }
    }
}

/// Takes the topmost object of the class that requests of a size are served from; 0: there is none.
///
/// # Safety
/// As for the real one.
pub(crate) unsafe fn pop(_: *mut Area, stack: usize) -> usize {
    // SAFETY: the table names blocks, and what lies below the top of a stack are addresses of objects.
    run(|at| unsafe {
        let stack = at.block()?.wrapping_byte_add(stack);
        let top = at.read(&raw const (*stack).top)?;
        if top == at.read(&raw const (*stack).bottom)? {
            return Some(0);
        }
        let object = at.read(top.sub(1))?;
        at.write(&raw mut (*stack).top, top.sub(1))?;
        Some(object)
    })
}

/// Puts an object on the stack of its class; false: it is full, or the object seems to be there already.
///
/// # Safety
/// As for the real one.
pub(crate) unsafe fn push(_: *mut Area, class: usize, object: usize) -> bool {
    // SAFETY: the table names blocks, the slots of a stack's own are there, and so is what lies
    // below them.
    run(|at| unsafe {
        let block = at.block()?;
        let stack_of = block.wrapping_byte_add(STACK_OF_AT).cast::<u16>().wrapping_add(class);
        let stack = block.wrapping_byte_add(at.read(stack_of)?.into());
        let top = at.read(&raw const (*stack).top)?;
        if top == at.read(&raw const (*stack).limit)? {
            return Some(false);
        }
        let recent = block.wrapping_byte_add(RECENT_AT).cast::<Recent>();
        let entry = Recent::entry(recent, object);
        let slot = at.read(entry)?;
        if slot < top && at.read(slot)? == object {
            return Some(false);
        }
        at.write(entry, top)?;
        at.write(top, object)?;
        at.write(&raw mut (*stack).top, top.add(1))?;
        Some(true)
    })
}

/// Puts objects on the stack of their class, as many as there is room for; how many of them, from the
/// first on.
///
/// # Safety
/// As for the real one.
pub(crate) unsafe fn push_many(_: *mut Area, class: usize, objects: &[usize]) -> usize {
    // SAFETY: as in `push`.
    run(|at| unsafe {
        let stack = at.stack(class)?;
        let top = at.read(&raw const (*stack).top)?;
        let room = slots(top, at.read(&raw const (*stack).limit)?);
        let count = room.min(objects.len());
        if count > 0 {
            at.copy(objects.as_ptr(), top, count)?;
            at.write(&raw mut (*stack).top, top.add(count))?;
        }
        Some(count)
    })
}

/// Takes the topmost objects of a class, as many as there are and fit; how many.
///
/// # Safety
/// As for the real one.
pub(crate) unsafe fn pop_many(_: *mut Area, class: usize, into: &mut [usize]) -> usize {
    let (to, most) = (into.as_mut_ptr(), into.len());
    // SAFETY: as in `push`, and there is room for `most`.
    run(|at| unsafe {
        let stack = at.stack(class)?;
        let top = at.read(&raw const (*stack).top)?;
        let count = slots(at.read(&raw const (*stack).bottom)?, top).min(most);
        if count > 0 {
            at.copy(top.sub(count), to, count)?;
            at.write(&raw mut (*stack).top, top.sub(count))?;
        }
        Some(count)
    })
}

fn slots(from: *mut usize, to: *mut usize) -> usize {
    (to as usize - from as usize) / size_of::<usize>()
}
