//! What is done at the blocks of all processors: giving back what they do not need, and counting their objects again.

use core::ptr;
use core::sync::atomic::Ordering::*;

use super::{
    BLOCKS, Block, FIRST_SLOTS, GROWN_BYTES, OTHERS, SLOTS, SLOTS_BYTES, alone, look, made, note,
    nothing,
};
use crate::check::{Fault, ensure};
use crate::class::{CLASS, CLASSES, home_of, seen_from, shard_of};
use crate::stack::Stack;
use crate::{restartable, transfer};

/// Gives back stacks that look untouched since the last call, and half of what others have
/// not come down to in both looks. True if anything is cached still that a further call
/// may give back.
pub fn tend() -> bool {
    look_at_all(|count, seen| if count == seen { count } else { count.min(seen) / 2 })
}

/// Gives back all that processors have cached.
pub fn flush() {
    // Stacks that have grown may hold more than fits at once.
    for _ in 0..=GROWN_BYTES / SLOTS_BYTES {
        if !look_at_all(|count, _| count) {
            break;
        }
    }
}

/// Gives back as much of each stack as `surplus` says, by what is in it and what was at
/// the last look. True if any object is left where something can be done about it.
fn look_at_all(surplus: impl Fn(usize, usize) -> usize) -> bool {
    let spare = OTHERS.lock();
    made().fold(false, |left, (cpu, block)| {
        // SAFETY: the processor's block, the lock is held, and there is room.
        left | unsafe { look_at(cpu, block, spare.0, &surplus) }
    })
}

/// # Safety
/// `block` is the processor's, the caller holds the lock, and `room` is for all that a block
/// can hold before it has grown.
unsafe fn look_at(
    cpu: usize,
    block: *mut Block,
    room: *mut usize,
    surplus: &impl Fn(usize, usize) -> usize,
) -> bool {
    // SAFETY: the caller's block; as many of each as there are classes.
    let (stacks, seen) = unsafe {
        ((&raw mut (*block).stacks).cast::<Stack>(), (&raw mut (*block).seen).cast::<usize>())
    };
    // SAFETY: a thread that runs there may change the stack meanwhile.
    let count = |class: usize| unsafe { Stack::count(stacks.add(class)) };
    // SAFETY: only the holder of the lock looks at this.
    let seen = |class: usize| unsafe { seen.add(class) };
    let goes = |class: usize| {
        // SAFETY: as above.
        unsafe { surplus(count(class), *seen(class)) }
    };
    if (1..CLASSES).all(|class| goes(class) == 0) {
        return (1..CLASSES).fold(false, |left, class| {
            let count = count(class);
            // SAFETY: as above.
            unsafe { *seen(class) = count };
            left | (count > 0)
        });
    }
    let mut taken = [0; CLASSES];
    let mut left = false;
    alone(cpu, block, || {
        let mut to = room;
        let mut fits = SLOTS_BYTES / size_of::<usize>();
        for (place, taken) in taken.iter_mut().enumerate().skip(1) {
            let all = count(place);
            let gone = goes(place).min(fits);
            // SAFETY: as above, and the stacks are ours alone; `gone` is no more than `all`.
            unsafe {
                look(block, place);
                // No reference: a thread that has just left the block may note an ebb still.
                let stack = stacks.add(place);
                let bottom = (*stack).bottom;
                // The oldest; what was freed last is warm.
                ptr::copy_nonoverlapping(bottom, to, gone);
                ptr::copy(bottom.add(gone), bottom, all - gone);
                (*stack).top = bottom.add(all - gone);
                if gone == all {
                    let class = seen_from(home_of(cpu), place);
                    let slots = Stack::slots(stack).saturating_sub(SLOTS[class]);
                    (*block).grown -= slots * CLASS[class].size as usize;
                    (*block).usual[place] = FIRST_SLOTS[class];
                    Stack::begin_anew(stack, FIRST_SLOTS[class]);
                }
                *seen(place) = all - gone;
                note(block, place);
                to = to.add(gone);
            }
            fits -= gone;
            *taken = gone;
            left |= all > gone;
        }
    });
    let mut from = room.cast_const();
    for (place, taken) in taken.into_iter().enumerate() {
        let home = home_of(cpu);
        let (class, shard) = (seen_from(home, place), shard_of(home));
        // SAFETY: what was put there above.
        unsafe {
            transfer::give(shard, class, core::slice::from_raw_parts(from, taken));
            from = from.add(taken);
        }
    }
    left
}

/// Does something while no thread is at any block of a processor, whose objects it can [`visit`]; `false` as its
/// argument: that cannot be had.
///
/// # Safety
/// The calling thread has called [`fork_prepare`].
pub unsafe fn alone_with_all<T>(work: impl FnOnce(bool) -> T) -> T {
    made().for_each(|(cpu, _)| BLOCKS[cpu].store(nothing(), Relaxed));
    // As in `alone`.
    let are_ours = made().all(|(cpu, _)| restartable::restart(cpu));
    let result = work(are_ours);
    made().for_each(|(cpu, block)| BLOCKS[cpu].store(block, Release));
    result
}

/// Shows each object that processors have cached, with its class.
///
/// # Errors
/// What is not as it should be, or that of the caller.
///
/// # Safety
/// To be called from within [`alone_with_all`], which said that it can be had.
pub unsafe fn visit(
    mut object: impl FnMut(usize, usize) -> Result<(), Fault>,
) -> Result<(), Fault> {
    for (cpu, block) in made() {
        let mut grown = 0;
        for place in 1..CLASSES {
            let class = seen_from(home_of(cpu), place);
            // SAFETY: a block is never taken away, and no other thread is at it.
            unsafe {
                let stack = &raw const (*block).stacks[place];
                Stack::visit(stack, (*block).room[place], |at| object(class, at))?;
                let slots = Stack::slots(stack).saturating_sub(SLOTS[class]);
                grown += slots * CLASS[class].size as usize;
            }
        }
        // SAFETY: as above.
        let counted = unsafe { (*block).grown };
        ensure(block as usize, grown <= counted, "bytes by which stacks have grown")?;
        ensure(block as usize, counted <= GROWN_BYTES, "stacks that have grown beyond measure")?;
    }
    Ok(())
}
