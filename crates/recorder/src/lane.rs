//! Lanes: which thread writes where.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use spandrel_os::clock;
use spandrel_sync::{linger, thread_slot};

use crate::event::Event;
use crate::file::{self, began_ns};
use crate::flag::Flag;
use crate::layout::{Block, Cursor, SPANS_LANE};

/// Lanes for requests; threads are spread over them.
const LANES: usize = 16;

static REQUESTS: [Flag<Lane>; LANES] = [const { Flag::new(Lane::new()) }; LANES];
static SPANS: Flag<Lane> = Flag::new(Lane::new());
static THREADS: AtomicU32 = AtomicU32::new(0);

/// The blocks of a lane, one after the other.
struct Lane {
    current: Option<(NonNull<Block>, Cursor)>,
    /// Blocks begun.
    blocks: u64,
    /// Whose events are being written.
    thread: u32,
}

// SAFETY: the block is the lane's alone, wherever it is used.
unsafe impl Send for Lane {}

impl Lane {
    const fn new() -> Self {
        Self { current: None, blocks: 0, thread: 0 }
    }

    /// Writes an event of a thread; false: there is no room for it anywhere.
    fn write(&mut self, lane: u32, thread: u32, event: &Event) -> bool {
        // Under the lane's flag, so that times do not go back.
        let ns = clock::nanos().saturating_sub(began_ns());
        if self.add(thread, ns, event) {
            return true;
        }
        self.next_block(lane, thread, ns) && self.add(thread, ns, event)
    }

    fn add(&mut self, thread: u32, ns: u64, event: &Event) -> bool {
        let Some((block, cursor)) = &mut self.current else { return false };
        // SAFETY: the block stays mapped as long as it is the lane's current one.
        let block = unsafe { block.as_mut() };
        if self.thread != thread {
            if !block.add(cursor, ns, &Event::Thread { number: thread }) {
                return false;
            }
            self.thread = thread;
        }
        block.add(cursor, ns, event)
    }

    #[cold]
    fn next_block(&mut self, lane: u32, thread: u32, ns: u64) -> bool {
        // No earlier than what is in the one before.
        let ns = self.current.as_ref().map_or(ns, |(_, cursor)| ns.max(cursor.ns()));
        self.close();
        let Some(mut block) = file::next_block(thread) else { return false };
        // SAFETY: it was just mapped, zero, for this lane alone.
        let cursor = unsafe { block.as_mut() }.begin(lane, self.blocks, ns);
        self.blocks += 1;
        self.thread = 0;
        self.current = Some((block, cursor));
        true
    }

    fn close(&mut self) {
        if let Some((block, _)) = self.current.take() {
            file::give_back(block);
        }
    }
}

/// The calling thread's number.
pub fn this_thread() -> u32 {
    let slot = thread_slot();
    if slot.recorded_as.get() == 0 {
        slot.recorded_as.set(THREADS.fetch_add(1, Relaxed).wrapping_add(1).max(1));
    }
    slot.recorded_as.get()
}

pub fn request(event: &Event) {
    file::notice_fork();
    let thread = this_thread();
    // The thread's own, or whichever is free: one at least, as no thread holds several.
    for turn in 0..u32::MAX {
        let index = (thread.wrapping_add(turn) as usize) % LANES;
        let name = SPANS_LANE + 1 + index as u32;
        let Some(lane) = REQUESTS.get(index) else { return };
        if let Some(written) = lane.try_with(thread, |lane| lane.write(name, thread, event)) {
            if !written {
                file::note_missed(thread);
            }
            return;
        }
        if index + 1 == LANES {
            linger(turn / LANES as u32);
        }
    }
}

pub fn span(event: &Event) {
    file::notice_fork();
    let thread = this_thread();
    if SPANS.with(thread, |lane| lane.write(SPANS_LANE, thread, event)) != Some(true) {
        file::note_missed(thread);
    }
}

/// Begins anew in a child of a fork, whose lanes lead to its parent's file.
///
/// # Safety
/// No other thread of this process records.
pub unsafe fn forget() {
    for lane in REQUESTS.iter().chain([&SPANS]) {
        // SAFETY: passed on from the caller.
        unsafe { lane.reset(Lane::new()) }.close();
    }
}
