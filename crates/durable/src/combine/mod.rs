//! Flat combining with writer preference: readers run beside each other, writers hand their requests to one of them, which executes
//! all of them as one batch.
//!
//! The protocol is figure 2 of the Mangosteen paper (ATC '24), which assumes sequentially consistent memory and spins. Here:
//!
//! - A reader raises its flag, passes a full fence, and looks at the gate. A holder of the gate takes it, passes a full fence, and
//!   looks at the flags. So of two that meet at least one sees the other, and the reader retreats.
//! - The same pair of fences stands between a writer that publishes a request and looks at the gate, and a holder that opens the
//!   gate and looks for requests. So a writer that finds the gate held is in the next batch, or that holder wakes it.
//! - A thread spins about a microsecond, then sleeps on a futex.
//!
//! # Invariants
//! - `Mutex`: while a thread holds the gate and has found each flag down, no reader is inside, and no other thread holds the gate.
//! - A request is collected by one combiner, once. Each started request ends before its combiner leaves the gate, by unwinding too.
//! - Whenever the gate becomes free, each writer that sleeps for it has been seen by the thread that freed it, and one is awake.
//!
//! # Progress
//! - A request is executed by the batch after the present one at the latest, not counting one exclusive section and one turn of
//!   the readers in between.
//! - The paper lets readers starve while batches follow each other. Here a reader that sleeps has its turn after
//!   [`BATCHES_IN_A_ROW`] of them (or of exclusive sections): no batch begins until all sleeping readers have entered.
//! - An exclusive section runs after the present batch, or after the turn of readers that follows it. A request that waits
//!   then comes before the next exclusive section.
//!
//! # What a caller must know
//! - All that a batch or an exclusive section writes is visible to later readers, later batches, and the threads whose requests it
//!   executed.
//! - A thread that reads or executes and waits for a second seat of its own never ends. `&mut` makes the same mistake impossible
//!   with one seat.
//! - A child of `fork` finds the seats of threads that it does not have.

mod batch;
mod gate;
mod slot;

use core::cell::Cell;
use core::marker::PhantomData;

use spandrel_sync::CachePadded;
use spandrel_sync::primitives::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, SeqCst},
    SPINS, fence, spin_loop, wait, wake_all,
};

pub use batch::{Batch, Entry, MAX_SEATS, Outcome};
pub use slot::Slot;

use batch::Members;
use gate::Gate;
use slot::{ASLEEP, Status};

/// Readers that sleep have their turn after as many batches. A small number bounds what a reader waits for; one of 1 would
/// let every crowd of readers hold up every batch, which is no preference.
pub const BATCHES_IN_A_ROW: u32 = 4;

/// Added to the word of vacancies: a thread waits for a seat.
const AWAITED: u32 = 1;
/// Added for each seat that is left.
const LEFT: u32 = 2;

/// Orders the readers and the writers of one state.
pub struct Combiner<'a> {
    slots: &'a [Slot],
    gate: Gate,
    batches_in_a_row: u32,
    /// Slots that have ever been taken are below. It only grows.
    top: CachePadded<AtomicU32>,
    vacancies: AtomicU32,
}

impl<'a> Combiner<'a> {
    /// A combiner for as many threads at a time as there are slots, [`MAX_SEATS`] at most. The slots are this combiner's alone.
    #[cfg(not(loom))]
    pub const fn new(slots: &'a [Slot]) -> Self {
        Self {
            slots,
            gate: Gate::new(),
            batches_in_a_row: BATCHES_IN_A_ROW,
            top: CachePadded::new(AtomicU32::new(0)),
            vacancies: AtomicU32::new(0),
        }
    }

    /// A combiner for as many threads at a time as there are slots. (The model's atomics are not constant.)
    #[cfg(loom)]
    pub fn new(slots: &'a [Slot]) -> Self {
        Self {
            slots,
            gate: Gate::new(),
            batches_in_a_row: BATCHES_IN_A_ROW,
            top: CachePadded::new(AtomicU32::new(0)),
            vacancies: AtomicU32::new(0),
        }
    }

    /// The same with another number than [`BATCHES_IN_A_ROW`]. `u32::MAX` is the paper's pure preference; 0 is taken as 1.
    #[must_use]
    pub const fn with_batches_in_a_row(mut self, batches: u32) -> Self {
        self.batches_in_a_row = batches;
        self
    }

    /// Takes a free slot. None: all are taken.
    pub fn register(&self) -> Option<Seat<'_>> {
        let index = self.slots.iter().take(MAX_SEATS).position(Slot::take)?;
        let slot = self.slots.get(index)?;
        // Before the first fence of the seat: a holder whose fence comes later finds this slot below the top.
        self.top.fetch_max(index as u32 + 1, AcqRel);
        Some(Seat { combiner: self, slot, index, not_sync: PhantomData })
    }

    /// Takes a free slot, and sleeps while there is none. Never returns if there are no slots at all.
    pub fn seat_or_wait(&self) -> Seat<'_> {
        loop {
            let seen = self.vacancies.load(Acquire);
            if let Some(seat) = self.register() {
                return seat;
            }
            // A seat that has been left since changed the word: look again.
            let awaited = seen | AWAITED;
            if self.vacancies.compare_exchange(seen, awaited, AcqRel, Relaxed).is_ok() {
                wait(&self.vacancies, awaited);
            }
        }
    }

    /// A slot is free again.
    fn vacate(&self, slot: &Slot) {
        slot.vacate();
        let mut seen = self.vacancies.load(Relaxed);
        loop {
            let next = (seen & !AWAITED).wrapping_add(LEFT);
            match self.vacancies.compare_exchange(seen, next, AcqRel, Relaxed) {
                Ok(_) if seen & AWAITED != 0 => return wake_all(&self.vacancies),
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// The slots that have ever been taken. After a fence of the caller: a slot that is not among them belongs to a thread whose
    /// first fence comes later, and which therefore sees the caller's change of the gate.
    fn used(&self) -> &'a [Slot] {
        let top = self.top.load(Acquire) as usize;
        self.slots.get(..top).unwrap_or(self.slots)
    }

    /// The holder of the gate waits until no reader is inside. Calls `meanwhile` before and between the looks.
    fn drain(&self, mut meanwhile: impl FnMut(&[Slot])) {
        // The holder's half of the pair: gate, fence, flags and requests.
        fence(SeqCst);
        meanwhile(self.used());
        // A reader in a slot that is first taken after this finds the gate held.
        for slot in self.used() {
            let mut turn = 0;
            while !slot.is_quiet() {
                slot.await_quiet(turn);
                turn = turn.saturating_add(1);
                meanwhile(self.used());
            }
        }
    }

    /// The holder leaves the gate: to the readers whose turn it is, to a thread that waits with `next`, or to all.
    fn release(&self, next: Status) {
        if self.gate.give_turn(self.batches_in_a_row) {
            return;
        }
        if self.used().iter().any(|slot| slot.choose(next)) {
            return;
        }
        let readers_wait = self.gate.open();
        // Readers need no call if a writer is awake: it is going to hold the gate, and to release it after the readers' turn
        // has come nearer.
        if !self.rouse() && readers_wait {
            self.gate.wake_readers();
        }
    }

    /// Wakes a writer, after the gate has become free. One is enough: the next holder sees all others, and does the same
    /// when it leaves. False: none waits.
    fn rouse(&self) -> bool {
        // The half of the pair in a writer: request, fence, gate.
        fence(SeqCst);
        self.used().iter().any(Slot::rouse)
    }
}

/// The place of a thread at a [`Combiner`]. Given back when dropped.
pub struct Seat<'c> {
    combiner: &'c Combiner<'c>,
    slot: &'c Slot,
    index: usize,
    /// The slot has one owner at a time, which may be another thread later.
    not_sync: PhantomData<Cell<()>>,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.combiner.vacate(self.slot);
    }
}

impl Seat<'_> {
    /// Runs `read` beside other readers, never beside a batch or an exclusive section.
    #[inline]
    pub fn read<R>(&mut self, read: impl FnOnce() -> R) -> R {
        if !self.try_enter() {
            self.enter_slowly();
        }
        let _inside = Inside(self.slot);
        read()
    }

    /// False: the gate is held, and the flag is down again.
    #[inline]
    fn try_enter(&self) -> bool {
        self.slot.begin_reading();
        // The reader's half of the pair: flag, fence, gate. Without it the look at the gate may come before the flag is seen.
        fence(SeqCst);
        let enters = !self.combiner.gate.is_held();
        if !enters {
            self.slot.end_reading();
        }
        enters
    }

    #[cold]
    fn enter_slowly(&self) {
        let gate = &self.combiner.gate;
        for _ in 0..SPINS {
            spin_loop();
            if !gate.is_held() && self.try_enter() {
                return;
            }
        }
        while !gate.count_in() {
            if self.try_enter() {
                return;
            }
        }
        loop {
            gate.sleep();
            if self.try_enter() {
                break;
            }
        }
        if gate.count_out() {
            // The turn is over. Readers find the gate free; a writer may sleep.
            self.combiner.rouse();
        }
    }

    /// Has `request` executed in a batch, and waits for that.
    ///
    /// If this thread becomes the combiner it calls `execute` once, with the requests of all threads that have one; otherwise
    /// another thread's `execute` is called with this request. Meanwhile no other thread is inside.
    ///
    /// If `execute` unwinds, all requests of its batch are [`Outcome::ABANDONED`], and the panic goes on in this thread.
    pub fn write(&mut self, request: *mut (), execute: impl FnOnce(&Batch<'_>)) -> Outcome {
        self.slot.publish(request);
        if self.await_gate() {
            self.combine(execute);
        }
        self.slot.set(Status::Idle);
        Outcome::new(self.slot.outcome())
    }

    /// Runs `section` alone: no reader is inside, and no batch runs.
    pub fn exclusive<R>(&mut self, section: impl FnOnce() -> R) -> R {
        let _alone = self.alone();
        section()
    }

    /// This thread is alone until the result is dropped: no reader is inside, and no batch runs.
    pub fn alone(&mut self) -> Alone<'_> {
        self.slot.set(Status::Alone);
        // Always true: no combiner collects this status.
        self.await_gate();
        self.slot.go_on(Status::Idle);
        let alone = Alone(self.combiner);
        self.combiner.drain(|_| {});
        alone
    }

    /// Waits until this thread holds the gate. False: its request is done.
    fn await_gate(&self) -> bool {
        // The writer's half of the pair: request, fence, gate. Sleep needs the later fence only; this one makes sure that the next
        // batch has the request.
        fence(SeqCst);
        let mut turn = 0;
        loop {
            let seen = self.slot.status();
            if Status::Done.is(seen) {
                return false;
            }
            if Status::Chosen.is(seen) {
                return true;
            }
            if !Status::Started.is(seen) && self.combiner.gate.try_hold() {
                // Another combiner may have ended the request after the look at the status.
                let is_done = Status::Done.is(self.slot.status());
                if is_done {
                    self.combiner.release(Status::Alone);
                }
                return !is_done;
            }
            if turn < SPINS {
                turn += 1;
                spin_loop();
            } else if seen & ASLEEP == 0 {
                self.slot.doze(seen);
                // As above; one more look at the status and the gate follows.
                fence(SeqCst);
            } else {
                self.slot.sleep(seen);
            }
        }
    }

    /// Executes a batch. This thread holds the gate.
    fn combine(&self, execute: impl FnOnce(&Batch<'_>)) {
        let mut members = Members::none();
        members.insert(self.index);
        self.slot.go_on(Status::Started);
        // A writer that finds its request started leaves the gate alone. Requests that come while readers leave are taken along.
        self.combiner.drain(|slots| {
            let ready = slots.iter().enumerate().filter(|(_, slot)| slot.start());
            ready.for_each(|(index, _)| members.insert(index));
        });
        let mut run = Run { combiner: self.combiner, members, is_complete: false };
        execute(&Batch { slots: self.combiner.slots, members: &run.members });
        run.is_complete = true;
    }
}

/// A reader is inside.
struct Inside<'c>(&'c Slot);

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.end_reading();
    }
}

/// A thread is inside alone; see [`Seat::alone`].
pub struct Alone<'c>(&'c Combiner<'c>);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.release(Status::Ready);
    }
}

/// A batch runs. Whether it ends or unwinds, its requests are done and the gate is left.
struct Run<'c> {
    combiner: &'c Combiner<'c>,
    members: Members,
    is_complete: bool,
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        let slots = self.combiner.slots;
        let mut sleepers = Members::none();
        for index in self.members.iter() {
            let Some(slot) = slots.get(index) else { continue };
            if !self.is_complete {
                slot.set_outcome(Outcome::ABANDONED.word());
            }
            if slot.finish() {
                sleepers.insert(index);
            }
        }
        self.combiner.release(Status::Alone);
        // The system calls come after the release, so that the next batch does not wait for them. A slot may have a new request
        // by now, or a new owner: each sleeper looks again when it is woken without reason.
        sleepers.iter().filter_map(|index| slots.get(index)).for_each(Slot::wake);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
