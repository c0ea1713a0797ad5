//! Lanes: who writes where.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use spandrel_os::clock;
use spandrel_sync::{thread_slot, yield_now};

use crate::event::Event;
use crate::file::{self, began_ns};
use crate::flag::Flag;
use crate::layout::{Block, Cursor, SPANS_LANE};

/// Lanes for requests; threads are spread over them.
const LANES: usize = 16;
/// So often a busy lane or file is tried again before an event is given up: some tens of
/// milliseconds, and only a signal handler that came in between takes more than one.
const TRIES: u32 = 10_000;

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
        self.next_block(lane, ns) && self.add(thread, ns, event)
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
    fn next_block(&mut self, lane: u32, ns: u64) -> bool {
        self.close();
        let taken = patiently(file::try_next_block);
        let Some(Some(mut block)) = taken else { return false };
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

fn patiently<T>(mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    for _ in 0..TRIES {
        if let Some(result) = attempt() {
            return Some(result);
        }
        yield_now();
    }
    None
}

fn this_thread() -> u32 {
    let slot = thread_slot();
    if slot.recorded_as.get() == 0 {
        slot.recorded_as.set(THREADS.fetch_add(1, Relaxed).wrapping_add(1));
    }
    slot.recorded_as.get()
}

pub fn request(event: &Event) {
    file::notice_fork();
    let thread = this_thread();
    let mut lane = thread as usize;
    let written = patiently(|| {
        let index = lane % LANES;
        lane += 1;
        let name = SPANS_LANE + 1 + index as u32;
        REQUESTS.get(index)?.try_with(|lane| lane.write(name, thread, event))
    });
    if written != Some(true) {
        file::note_missed();
    }
}

pub fn span(event: &Event) {
    file::notice_fork();
    let thread = this_thread();
    if patiently(|| SPANS.try_with(|lane| lane.write(SPANS_LANE, thread, event))) != Some(true) {
        file::note_missed();
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
