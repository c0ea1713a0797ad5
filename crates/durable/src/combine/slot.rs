//! What a thread shows to the combiner: that it reads, or which request it has.

use core::ptr::null_mut;

use spandrel_sync::primitives::{
    AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
    SPINS, spin_loop, wait, wake_one,
};

/// How it is with the request of a slot. [`ASLEEP`] may be added while the owner waits.
#[derive(Clone, Copy, PartialEq)]
#[repr(u32)]
pub(super) enum Status {
    /// No request. The owner alone leaves this status, for [`Status::Ready`] or [`Status::Alone`].
    Idle = 0,
    /// A request waits for a batch. A combiner collects it ([`Status::Started`]), the owner becomes the combiner and collects
    /// it itself, or an exclusive section hands the gate to the owner ([`Status::Chosen`]).
    Ready = 1,
    /// The request is in the batch of the present combiner, which ends it ([`Status::Done`]). The owner leaves the gate alone.
    Started = 2,
    /// The request has an outcome. The owner takes it and is [`Status::Idle`] again.
    Done = 3,
    /// The owner waits for an exclusive section. It takes the gate itself ([`Status::Idle`]), or a batch hands the gate to it
    /// ([`Status::Chosen`]).
    Alone = 4,
    /// The owner holds the gate, from the thread that wrote this. It goes on to [`Status::Started`] with its batch, or to
    /// [`Status::Idle`] with its exclusive section.
    Chosen = 5,
}

/// Added to a status by the owner before it sleeps on the word. Removed by the thread that wakes the owner.
pub(super) const ASLEEP: u32 = 8;

impl Status {
    #[inline]
    pub(super) const fn is(self, word: u32) -> bool {
        word & !ASLEEP == self as u32
    }
}

/// Whether a slot's owner reads.
const QUIET: u32 = 0;
/// It is inside, or about to look at the gate.
const READING: u32 = 1;
/// The same, and a holder of the gate sleeps until it leaves.
const AWAITED: u32 = 2;

/// The place of one thread, on cache lines of its own. The caller of [`super::Combiner::new`] gives as many as it may have threads.
#[repr(align(128))]
pub struct Slot {
    /// 1: a seat owns the slot.
    taken: AtomicU32,
    reading: AtomicU32,
    status: AtomicU32,
    request: AtomicPtr<()>,
    outcome: AtomicU64,
}

impl Default for Slot {
    fn default() -> Self {
        Self::new()
    }
}

impl Slot {
    /// A free slot.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self {
            taken: AtomicU32::new(0),
            reading: AtomicU32::new(QUIET),
            status: AtomicU32::new(Status::Idle as u32),
            request: AtomicPtr::new(null_mut()),
            outcome: AtomicU64::new(0),
        }
    }

    /// A free slot. (The model's atomics are not constant.)
    #[cfg(loom)]
    pub fn new() -> Self {
        Self {
            taken: AtomicU32::new(0),
            reading: AtomicU32::new(QUIET),
            status: AtomicU32::new(Status::Idle as u32),
            request: AtomicPtr::new(null_mut()),
            outcome: AtomicU64::new(0),
        }
    }

    /// Makes the caller the owner of a free slot.
    pub(super) fn take(&self) -> bool {
        self.taken.load(Relaxed) == 0 && self.taken.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
    }

    /// The owner leaves.
    pub(super) fn vacate(&self) {
        self.taken.store(0, Release);
    }

    /// The owner is about to read. A fence and a look at the gate follow.
    #[inline]
    pub(super) fn begin_reading(&self) {
        self.reading.store(READING, Relaxed);
    }

    /// The owner has read, or has found the gate held.
    #[inline]
    pub(super) fn end_reading(&self) {
        if self.reading.swap(QUIET, Release) == AWAITED {
            wake_one(&self.reading);
        }
    }

    /// Whether the owner is not inside. A holder of the gate that finds this after its fence need not look again: a later
    /// flag is that of a reader that finds the gate held.
    pub(super) fn is_quiet(&self) -> bool {
        self.reading.load(Acquire) == QUIET
    }

    /// The holder of the gate waits a while for the owner to leave.
    pub(super) fn await_quiet(&self, turn: u32) {
        if turn < SPINS {
            spin_loop();
        } else if self.reading.load(Relaxed) == AWAITED
            || self.reading.compare_exchange(READING, AWAITED, Relaxed, Relaxed).is_ok()
        {
            wait(&self.reading, AWAITED);
        }
    }

    pub(super) fn request(&self) -> *mut () {
        self.request.load(Relaxed)
    }

    pub(super) fn outcome(&self) -> u64 {
        self.outcome.load(Relaxed)
    }

    pub(super) fn set_outcome(&self, outcome: u64) {
        self.outcome.store(outcome, Relaxed);
    }

    /// The owner publishes a request.
    pub(super) fn publish(&self, request: *mut ()) {
        self.request.store(request, Relaxed);
        self.outcome.store(0, Relaxed);
        self.set(Status::Ready);
    }

    /// The owner sets a status that no other thread may change.
    pub(super) fn set(&self, status: Status) {
        self.status.store(status as u32, Release);
    }

    /// The owner goes on from a status in which a late [`Slot::rouse`] may still change the word: the exchange comes after that
    /// change and sees it.
    pub(super) fn go_on(&self, status: Status) {
        self.status.swap(status as u32, AcqRel);
    }

    pub(super) fn status(&self) -> u32 {
        self.status.load(Acquire)
    }

    /// The owner is about to sleep on a status.
    pub(super) fn doze(&self, seen: u32) {
        let _ = self.status.compare_exchange(seen, seen | ASLEEP, AcqRel, Relaxed);
    }

    /// The owner sleeps while the status is this one.
    pub(super) fn sleep(&self, seen: u32) {
        wait(&self.status, seen);
    }

    pub(super) fn wake(&self) {
        wake_one(&self.status);
    }

    /// The combiner takes a request that is ready. A sleeping owner sleeps on.
    pub(super) fn start(&self) -> bool {
        let mut seen = self.status.load(Relaxed);
        while Status::Ready.is(seen) {
            let next = Status::Started as u32 | seen & ASLEEP;
            match self.status.compare_exchange(seen, next, AcqRel, Relaxed) {
                Ok(_) => return true,
                // The owner has just lain down, or was woken.
                Err(now) => seen = now,
            }
        }
        false
    }

    /// The combiner ends a request. True: the owner sleeps, and [`Slot::wake`] is due.
    pub(super) fn finish(&self) -> bool {
        self.status.swap(Status::Done as u32, AcqRel) & ASLEEP != 0
    }

    /// The holder of the gate hands it to an owner that waits with this status.
    pub(super) fn choose(&self, status: Status) -> bool {
        let mut seen = self.status.load(Relaxed);
        while status.is(seen) {
            match self.status.compare_exchange(seen, Status::Chosen as u32, AcqRel, Relaxed) {
                Ok(_) => {
                    if seen & ASLEEP != 0 {
                        self.wake();
                    }
                    return true;
                }
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Wakes an owner that waits for the gate. False: it does not wait.
    pub(super) fn rouse(&self) -> bool {
        let mut seen = self.status.load(Relaxed);
        while Status::Ready.is(seen) || Status::Alone.is(seen) {
            if seen & ASLEEP == 0 {
                return true;
            }
            match self.status.compare_exchange(seen, seen & !ASLEEP, AcqRel, Relaxed) {
                Ok(_) => {
                    self.wake();
                    return true;
                }
                Err(now) => seen = now,
            }
        }
        false
    }
}
