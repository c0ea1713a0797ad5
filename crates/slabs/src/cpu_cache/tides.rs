//! Room for what a program frees and wants again: stacks that grow for it, and those that let it pass.

use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

use spandrel_os::rseq::Area;
use spandrel_pages::MIB;

use super::{Block, GROWN_BYTES, MADE, OTHERS, SLOTS, SLOTS_BYTES, STACK_LEAST, alone, note};
use crate::class::{self, CLASS, CLASSES, home_of, seen_from, shard_of};
use crate::refuse::clock;
use crate::stack::Stack;
use crate::{map, restartable, transfer};

/// A stack that ebbs and floods in turns, beyond what lies between it and the spans, gets room for
/// this number of bytes of objects, within a bound.
const GROWN_STACK_BYTES: usize = 2 * MIB;
const GROWN_STACK_MOST: usize = 32 * 1024;
/// A flood is worth more room if the last one was no longer ago than this for each slot: what has no
/// room takes some hundredths of a microsecond longer, one part in a hundred of that time. The model of
/// these caches is slow.
const FLOOD_US_PER_SLOT: usize = if cfg!(shuttle) { 1 << 32 } else { 4 };
/// Objects come and go quickly where a stack is full, or empty, again after no more than a microsecond for this number of its slots.
const SLOTS_PER_QUICK_US: usize = if cfg!(shuttle) { 1 } else { 8 };
/// A stack that was so this number of times in a row gets twice the room.
const QUICK_TIMES: u8 = 4;
/// Room of a stack in a long flood.
const NARROW_SLOTS: usize = 128;
/// A flood is long when this many times what the stack and the transfer cache hold has gone on to the spans: what these
/// hold then is little of what was freed, and lies anywhere.
const LONG_FLOOD: usize = 8;
/// Slots of a stack that has grown as far as it may.
static GROWN_SLOTS: [usize; CLASSES] =
    class::kept(GROWN_STACK_BYTES, STACK_LEAST, GROWN_STACK_MOST);

/// Gives the stack of a class on the processor, which is full, room for twice as many objects if this is
/// worth it; false: it is not.
pub(super) fn grow(area: *mut Area, class: usize) -> bool {
    // SAFETY: the calling thread's area, which is there as long as the thread.
    let cpu = unsafe { restartable::processor(area) };
    let block = MADE[cpu].load(Acquire);
    let home = home_of(cpu);
    let place = seen_from(home, class);
    if block.is_null() {
        return false;
    }
    // SAFETY: a block is never taken away.
    let stack = unsafe { &raw mut (*block).stacks[place] };
    // SAFETY: as above.
    let (flooded, usual) = unsafe { (&(*block).flooded[place], usual(block, place)) };
    let since_flood = || {
        let now = clock::micros() as u32;
        now.wrapping_sub(flooded.swap(now, Relaxed))
    };
    // SAFETY: as above.
    if usual < SLOTS[class] && !unsafe { is_narrow(block, place) } {
        // SAFETY: as above.
        return unsafe { earn(block, place, class, since_flood()) };
    }
    // SAFETY: as above.
    if unsafe { !Stack::has_ebbed(stack) } || !transfer::is_full(shard_of(home), class) {
        return false;
    }
    // SAFETY: as above.
    unsafe { Stack::note_flood(stack) };
    let _others = OTHERS.lock();
    // SAFETY: only the holder of the lock looks at these or changes a stack's ends.
    let (room, grown) = unsafe { (&mut (*block).room[place], &mut (*block).grown) };
    // SAFETY: as above.
    let slots = unsafe { Stack::slots(stack) }.max(SLOTS[class]);
    let since = since_flood() as usize;
    let is_seldom = since > slots * FLOOD_US_PER_SLOT;
    // SAFETY: as above.
    unsafe { Stack::note_seldom(stack, is_seldom) };
    if is_seldom {
        return false;
    }
    let wanted = (2 * slots).min(GROWN_SLOTS[class]);
    let bytes = wanted.saturating_sub(slots) * CLASS[class].size as usize;
    if bytes == 0 || *grown + bytes > GROWN_BYTES {
        return false;
    }
    if *room < wanted {
        let slots = map::open_cache(GROWN_SLOTS[class] * size_of::<usize>()).cast::<usize>();
        // SAFETY: fresh memory for this number of slots.
        if slots.is_null() || !alone(cpu, block, || unsafe { Stack::move_to(stack, slots) }) {
            // What cannot be had now is not tried again and again.
            *grown = GROWN_BYTES;
            return false;
        }
        *room = GROWN_SLOTS[class];
    }
    // SAFETY: there is room for these; a thread that pushes meanwhile finds either limit.
    unsafe { Stack::set_slots(stack, wanted) };
    *grown += bytes;
    true
}

/// In a long flood after a long time (what comes often has more room instead: see [`grow`]) little is kept between the
/// program and the spans. `passed` objects went on to them. What is kept is handed out first, and lies anywhere in what was freed: the
/// upper nodes of a search tree that is built anew had lines of their own there. Spans that became empty have their objects side by side.
#[inline]
pub(super) fn narrow(area: *mut Area, class: usize, passed: usize) {
    if passed >= LONG_FLOOD * (SLOTS[class] + transfer::slots(class))
        && SLOTS[class] >= 2 * NARROW_SLOTS
    {
        narrow_if_due(area, class, passed);
    }
}

#[cold]
#[inline(never)]
fn narrow_if_due(area: *mut Area, class: usize, passed: usize) {
    // SAFETY: the calling thread's area, which is there as long as the thread.
    let cpu = unsafe { restartable::processor(area) };
    let (home, block) = (home_of(cpu), MADE[cpu].load(Acquire));
    if block.is_null() {
        return;
    }
    // SAFETY: a block is never taken away.
    let stack = unsafe { &raw mut (*block).stacks[seen_from(home, class)] };
    // SAFETY: as above; a limit that changes meanwhile is one word.
    let slots = || unsafe { Stack::slots(stack) };
    let is_due = |slots: usize| {
        let is_long = passed >= LONG_FLOOD * (slots + transfer::slots(class));
        let fits = slots * size_of::<usize>() <= SLOTS_BYTES;
        // SAFETY: as above.
        slots > NARROW_SLOTS && fits && is_long && unsafe { Stack::floods_seldom(stack) }
    };
    if !is_due(slots()) {
        return;
    }
    let spare = OTHERS.lock();
    // Only the holder of the lock changes a stack's ends.
    let slots = slots();
    if !is_due(slots) {
        return;
    }
    transfer::let_pass(shard_of(home), class);
    let mut count = 0;
    let was_alone = alone(cpu, block, || {
        // SAFETY: as above, and the stack is ours alone; there is room for what it may hold.
        unsafe {
            count = Stack::count(stack);
            ptr::copy_nonoverlapping((*stack).bottom, spare.0, count);
            (*stack).top = (*stack).bottom;
            (*stack).limit = (*stack).bottom.add(NARROW_SLOTS);
            (*block).grown -= slots.saturating_sub(SLOTS[class]) * CLASS[class].size as usize;
            note(block, seen_from(home, class));
        }
    });
    if !was_alone {
        // What cannot be had now is not tried in this flood again.
        // SAFETY: as above.
        unsafe { Stack::note_seldom(stack, false) };
    }
    // SAFETY: this number was put there.
    transfer::give(shard_of(home), class, unsafe { core::slice::from_raw_parts(spare.0, count) });
}

/// Ends what [`narrow`] began.
///
/// # Safety
/// There is such a block.
pub(super) unsafe fn widen(block: *mut Block, place: usize) {
    // SAFETY: promised by the caller; blocks are never taken away.
    if unsafe { is_narrow(block, place) } {
        let _others = OTHERS.lock();
        // SAFETY: as above, and there is room for these; only the holder of the lock changes a stack's ends.
        unsafe {
            if is_narrow(block, place) {
                Stack::set_slots(&raw mut (*block).stacks[place], usual(block, place));
            }
        }
    }
}

/// Whether a stack has less than its usual room, as in a long flood.
///
/// # Safety
/// There is such a block.
unsafe fn is_narrow(block: *const Block, place: usize) -> bool {
    // SAFETY: promised by the caller.
    unsafe { Stack::slots(&raw const (*block).stacks[place]) < usual(block, place) }
}

/// Slots that a stack has outside of long floods, as they were a moment ago.
///
/// # Safety
/// There is such a block.
unsafe fn usual(block: *const Block, place: usize) -> usize {
    // SAFETY: promised by the caller; it is one word.
    unsafe { (&raw const (*block).usual[place]).read_volatile() }
}

/// Gives a stack that has not all of its usual room twice as much of that, if objects come and go quickly there: it was full, or
/// empty, and was so the last time this number of microseconds ago. False: it has as much room as before.
///
/// # Safety
/// There is such a block, with the stack of this class at that place.
pub(super) unsafe fn earn(block: *mut Block, place: usize, class: usize, since_us: u32) -> bool {
    // SAFETY: promised by the caller.
    let (seen, quick) = unsafe { (usual(block, place), &(*block).quick[place]) };
    if seen >= SLOTS[class] {
        return false;
    }
    let is_quick = since_us as usize <= seen / SLOTS_PER_QUICK_US;
    // Lost counts do not matter.
    let times = if is_quick { quick.load(Relaxed) + 1 } else { 0 };
    quick.store(times % QUICK_TIMES, Relaxed);
    if times < QUICK_TIMES {
        return false;
    }
    let _others = OTHERS.lock();
    // SAFETY: only the holder of the lock changes a stack's ends, and these. There is room for this number; a thread that pushes
    // meanwhile finds either limit.
    unsafe {
        let was_narrow = is_narrow(block, place);
        let usual = &raw mut (*block).usual[place];
        let slots = (2 * usual.read()).min(SLOTS[class]);
        usual.write_volatile(slots);
        let stack = &raw mut (*block).stacks[place];
        if !was_narrow && Stack::slots(stack) < slots {
            Stack::set_slots(stack, slots);
        }
    }
    true
}
