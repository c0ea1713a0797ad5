//! What the front end and the replica share: positions in the ring, and bells to wait by. It lies in memory that both have, also as two processes.

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::*};

use rustix::thread::futex;
use spandrel_sync::CachePadded;

use crate::live::Live;

/// Why the replica cannot go on where its thread has panicked: no number of the system, nor one of [`spandrel_pmem::Failed`].
pub const FAULT: i32 = i32::MAX;

/// A number that changes when something has happened, for a thread or a process that waits for it.
#[derive(Default)]
pub struct Bell {
    count: AtomicU32,
    sleepers: AtomicU32,
}

impl Bell {
    /// The number to wait with, taken before the look at what is waited for.
    pub fn seen(&self) -> u32 {
        self.count.load(SeqCst)
    }

    /// Something has happened.
    pub fn ring(&self) {
        self.count.fetch_add(1, SeqCst);
        if self.sleepers.load(SeqCst) > 0 {
            let _ = futex::wake(&self.count, futex::Flags::empty(), i32::MAX as u32);
        }
    }

    /// Sleeps until something happens that `seen` does not count, for `ms` milliseconds at most; may return without reason.
    pub fn wait(&self, seen: u32, ms: u32) {
        self.sleepers.fetch_add(1, SeqCst);
        let time = futex::Timespec {
            tv_sec: i64::from(ms / 1000),
            tv_nsec: i64::from(ms % 1000) * 1_000_000,
        };
        let _ = futex::wait(&self.count, futex::Flags::empty(), seen, Some(&time));
        self.sleepers.fetch_sub(1, SeqCst);
    }
}

/// What the front end asks of the replica.
#[derive(Default)]
struct Asked {
    /// The front end waits for room, or for all to be in the file: the replica settles at once.
    is_awaited: AtomicU32,
    /// The front end has ended in order: the replica brings all into the file, and ends.
    is_closing: AtomicU32,
    /// The front end waits for [`Done::to`] to be the ring's end.
    is_applied_awaited: AtomicU32,
}

/// What the replica tells of itself.
#[derive(Default)]
struct Done {
    /// Why the replica cannot go on; 0: it can.
    failure: AtomicI32,
    /// Records that the replica has brought into the file.
    applied: AtomicU64,
    /// The position behind the records that the file has.
    to: AtomicU64,
}

/// See the head of this file. All zero is its beginning. Each part has lines of its own: what one side stores with each record is not beside what the other reads with each batch.
#[derive(Default)]
#[repr(C)]
pub struct Control {
    /// The ring's end: the records before it are durable.
    tail: CachePadded<AtomicU64>,
    /// The position before which the state's file needs no record: one begins there.
    head: CachePadded<AtomicU64>,
    /// The position before which the front end has room for others, the head or less: memory is free by pieces.
    free: CachePadded<AtomicU64>,
    tail_bell: CachePadded<Bell>,
    /// The front end asks for something: a nap of the replica ends.
    ask_bell: CachePadded<Bell>,
    head_bell: CachePadded<Bell>,
    asked: CachePadded<Asked>,
    done: CachePadded<Done>,
    /// Times that a batch was undone in memory.
    undone: CachePadded<AtomicU64>,
    /// What was counted, for other processes.
    live: CachePadded<Live>,
}

impl Control {
    /// Both positions of a ring without records that the file lacks.
    pub fn begin(&self, at: u64) {
        self.tail.store(at, Release);
        self.head.store(at, Release);
        self.free.store(at, Release);
        self.done.to.store(at, Release);
    }

    /// The records before this position are durable.
    pub fn tail(&self) -> u64 {
        self.tail.load(Acquire)
    }

    /// The file needs no record before this position, where a record begins.
    pub fn head(&self) -> u64 {
        self.head.load(Acquire)
    }

    /// The front end may store records up to the ring's length behind this position.
    pub fn free(&self) -> u64 {
        self.free.load(Acquire)
    }

    /// Another record is durable.
    pub fn publish(&self, tail: u64) {
        self.tail.store(tail, Release);
        self.tail_bell.ring();
    }

    /// The file has the records before `head` durably, and the memory before `free` is no longer in use.
    pub fn release(&self, head: u64, free: u64) {
        self.head.store(head, Release);
        self.free.store(free, Release);
        self.head_bell.ring();
    }

    /// The bell of the tail, and that of the head.
    pub fn bells(&self) -> (&Bell, &Bell) {
        (&self.tail_bell, &self.head_bell)
    }

    /// Asks the replica to bring what it has read into the file durably.
    pub fn ask(&self) {
        self.asked.is_awaited.store(1, Release);
        self.ask_bell.ring();
        self.tail_bell.ring();
    }

    /// The bell of what the front end asks for.
    pub fn asks(&self) -> &Bell {
        &self.ask_bell
    }

    /// Whether the front end waits. The replica that asks is the one that answers.
    pub fn take_asked(&self) -> bool {
        self.asked.is_awaited.load(Relaxed) != 0 && self.asked.is_awaited.swap(0, AcqRel) != 0
    }

    /// The front end ends: no record follows.
    pub fn close(&self) {
        self.asked.is_closing.store(1, Release);
        self.ask_bell.ring();
        self.tail_bell.ring();
    }

    /// Whether the front end has ended.
    pub fn is_closing(&self) -> bool {
        self.asked.is_closing.load(Acquire) != 0
    }

    /// Another life begins: no front end has ended, and no replica has failed.
    pub fn reopen(&self) {
        self.asked.is_closing.store(0, Release);
        self.asked.is_awaited.store(0, Release);
        self.done.failure.store(0, Release);
    }

    /// The replica cannot go on: the error's number, or [`FAULT`].
    pub fn fail(&self, why: i32) {
        self.done.failure.store(why.max(1), Release);
        self.head_bell.ring();
    }

    /// Why the replica cannot go on.
    pub fn failure(&self) -> Option<i32> {
        Some(self.done.failure.load(Acquire)).filter(|why| *why != 0)
    }

    /// The file has the records before this position, that number more than before. They need not be durable there.
    pub fn note_in_file(&self, to: u64, records: u64) {
        self.done.applied.fetch_add(records, Relaxed);
        // In one order with the look at the flag, as the front end raises the flag before it looks at the position.
        self.done.to.store(to, SeqCst);
        if self.asked.is_applied_awaited.load(SeqCst) != 0 {
            self.asked.is_applied_awaited.store(0, Relaxed);
            self.head_bell.ring();
        }
    }

    /// Asks the replica to bring all records into the file, and to say when it has.
    pub fn ask_applied(&self) {
        self.asked.is_applied_awaited.store(1, SeqCst);
        self.ask_bell.ring();
    }

    /// Whether the front end waits for that.
    pub fn is_applied_awaited(&self) -> bool {
        self.asked.is_applied_awaited.load(SeqCst) != 0
    }

    /// The file has the records before this position; a loss of power may take them from it.
    pub fn applied_to(&self) -> u64 {
        self.done.to.load(SeqCst)
    }

    /// A batch is undone in memory.
    pub fn note_undone(&self) {
        self.undone.fetch_add(1, Relaxed);
    }

    /// Times that one was. A thread that has the gate, or is inside as a reader, sees all of them.
    pub fn undone(&self) -> u64 {
        self.undone.load(Relaxed)
    }

    /// Figures for other processes.
    pub fn live(&self) -> &Live {
        &self.live
    }

    /// Records that were brought into the file.
    pub fn applied(&self) -> u64 {
        self.done.applied.load(Relaxed)
    }
}
