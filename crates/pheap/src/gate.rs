//! The gate of an open heap. A thread is inside while it runs an operation that changes several objects or roots. A checkpoint shuts the
//! gate while it copies pages: so it holds each collection as of a moment between two operations.
//!
//! Allocating and freeing do not enter the gate: locks guard their structures.

use core::sync::atomic::{AtomicUsize, Ordering::*};

use spandrel_sync as sync;

use crate::error::Error;
use crate::fork::Origin;
use crate::registry::{self, Row};

/// Cache lines that threads inside are counted on.
const SHARDS: usize = 16;

/// A gate, and the heap's number in the rows of threads.
pub struct Gate {
    gate: sync::Gate<SHARDS>,
    /// The gate of transactions, which is shut first: while a checkpoint waits for the end of a transaction, operations outside of transactions
    /// pass. The transaction may wait for a lock of the program's that such a thread holds.
    transactions: sync::Gate<SHARDS>,
    /// The heap's number among the open heaps of the process; see [`crate::registry`].
    number: AtomicUsize,
    origin: Origin,
}

impl Gate {
    /// An open gate of the calling process. Operations are refused before [`Gate::register`].
    ///
    /// # Errors
    /// As for [`Origin::new`].
    pub fn new() -> Result<Self, Error> {
        Ok(Self {
            gate: sync::Gate::new(),
            transactions: sync::Gate::new(),
            number: AtomicUsize::new(usize::MAX),
            origin: Origin::new()?,
        })
    }

    /// Sets the heap's number.
    pub fn register(&self, number: usize) {
        self.number.store(number, Release);
    }

    /// The process that opened the heap.
    #[inline]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Begins an operation that changes something: waits while the gate is shut. Nested operations of a thread pass at once.
    ///
    /// # Errors
    /// [`Error::Forked`], [`Error::ReadOnly`]; [`Error::NoMemory`]: the thread has no row yet, and there is no memory for one.
    #[inline]
    pub fn enter(&self) -> Result<Entered<'_>, Error> {
        self.origin.check()?;
        self.pass()
    }

    /// Begins an operation that may change nothing, also in a heap that is read only. The operation checks [`Origin::check`] itself before
    /// it changes anything.
    ///
    /// # Errors
    /// As for [`Gate::enter`], without [`Error::ReadOnly`].
    pub fn enter_to_look(&self) -> Result<Entered<'_>, Error> {
        match self.origin.check() {
            Ok(()) | Err(Error::ReadOnly) => self.pass(),
            Err(why) => Err(why),
        }
    }

    /// The calling thread's row.
    #[inline]
    fn row(&self) -> Result<Row, Error> {
        let number = self.number.load(Relaxed);
        registry::row(number).map_or_else(|| registry::make_row(number), Ok)
    }

    #[inline]
    fn pass(&self) -> Result<Entered<'_>, Error> {
        let row = self.row()?;
        let depth = row.depth();
        if depth.get() == 0 {
            self.gate.enter(row.shard());
        }
        depth.set(depth.get() + 1);
        Ok(Entered { gate: self, row })
    }

    /// Begins a transaction: waits while a checkpoint waits for those that run. A thread that is inside passes at once.
    ///
    /// # Errors
    /// As for [`Gate::enter`].
    pub fn begin(&self) -> Result<Begun<'_>, Error> {
        self.origin.check()?;
        let row = self.row()?;
        let passed = (row.depth().get() == 0).then(|| {
            self.transactions.enter(row.shard());
            Passed { gate: &self.transactions, shard: row.shard() }
        });
        Ok(Begun { inside: self.pass()?, _passed: passed })
    }

    /// Whether the calling thread is inside.
    #[cfg(test)]
    pub fn is_inside(&self) -> bool {
        registry::row(self.number.load(Relaxed)).is_some_and(|row| row.depth().get() > 0)
    }

    /// Refuses a thread that is inside an operation of the heap.
    ///
    /// # Errors
    /// As for [`Gate::shut`].
    pub fn check_outside(&self) -> Result<(), Error> {
        self.row_outside().map(drop)
    }

    /// The row of a thread that is in no operation of the heap.
    fn row_outside(&self) -> Result<Row, Error> {
        self.origin.check()?;
        let row = registry::make_row(self.number.load(Relaxed))?;
        if row.depth().get() > 0 { Err(Error::InOperation) } else { Ok(row) }
    }

    /// Shuts the gate: waits until every transaction has ended, then until every thread has left, and keeps others out until the guard is
    /// dropped. Operations of the calling thread pass meanwhile. A thread inside may wait for what a thread at the gate holds: then the
    /// gate opens again for a while.
    ///
    /// # Errors
    /// [`Error::InOperation`]: the thread is inside an operation; [`Error::Forked`], [`Error::ReadOnly`], [`Error::NoMemory`] as for
    /// [`Gate::enter`].
    pub fn shut(&self) -> Result<Shut<'_>, Error> {
        let row = self.row_outside()?;
        sync::Gate::shut_all(&[&self.transactions, &self.gate]);
        row.depth().set(1);
        Ok(Shut { gate: self, row })
    }
}

/// An operation that runs. It ends where the guard is dropped, in the same thread: a [`Row`] is not [`Send`].
pub struct Entered<'g> {
    gate: &'g Gate,
    row: Row,
}

impl Entered<'_> {
    /// The calling thread's words for this heap.
    pub fn row(&self) -> Row {
        self.row
    }
}

impl Drop for Entered<'_> {
    #[inline]
    fn drop(&mut self) {
        let depth = self.row.depth();
        depth.set(depth.get() - 1);
        if depth.get() == 0 {
            self.gate.gate.leave(self.row.shard());
        }
    }
}

/// A transaction that runs. It ends where the guard is dropped.
pub struct Begun<'g> {
    inside: Entered<'g>,
    /// `None`: the thread was inside already. Dropped last.
    _passed: Option<Passed<'g>>,
}

impl<'g> Begun<'g> {
    /// The operation that the transaction is.
    pub fn inside(&self) -> &Entered<'g> {
        &self.inside
    }
}

/// The count of a transaction.
struct Passed<'g> {
    gate: &'g sync::Gate<SHARDS>,
    shard: usize,
}

impl Drop for Passed<'_> {
    fn drop(&mut self) {
        self.gate.leave(self.shard);
    }
}

/// A gate that is shut. It opens where the guard is dropped, in the same thread.
pub struct Shut<'g> {
    gate: &'g Gate,
    row: Row,
}

impl Drop for Shut<'_> {
    fn drop(&mut self) {
        self.row.depth().set(0);
        self.gate.gate.open();
        self.gate.transactions.open();
    }
}

#[cfg(test)]
mod tests {
    use std::prelude::v1::*;
    use std::sync::atomic::{AtomicBool, AtomicU64};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    fn gate() -> (Gate, usize) {
        let (gate, number) = (Gate::new().unwrap(), registry::register().unwrap());
        gate.register(number);
        (gate, number)
    }

    #[test]
    fn a_thread_that_shuts_the_gate_finds_two_words_that_operations_change_together_equal() {
        let (gate, number) = gate();
        let (words, ends) = ([AtomicU64::new(0), AtomicU64::new(0)], AtomicBool::new(false));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !ends.load(Relaxed) {
                        let _outer = gate.enter().unwrap();
                        words[0].fetch_add(1, Relaxed);
                        let _inner = gate.enter().unwrap();
                        words[1].fetch_add(1, Relaxed);
                    }
                });
            }
            for _ in 0..2000 {
                let _shut = gate.shut().unwrap();
                assert_eq!(words[0].load(Relaxed), words[1].load(Relaxed));
                // The thread that has shut it is not locked out.
                drop(gate.enter().unwrap());
            }
            ends.store(true, Relaxed);
        });
        registry::unregister(number);
    }

    #[test]
    fn a_thread_inside_is_refused_instead_of_waiting_for_itself() {
        let (gate, number) = gate();
        let entered = gate.enter().unwrap();
        assert!(gate.is_inside());
        assert!(matches!(gate.shut(), Err(Error::InOperation)));
        drop(entered);
        assert!(!gate.is_inside());
        drop(gate.shut().unwrap());
        drop(gate.enter().unwrap());
        registry::unregister(number);
    }

    #[test]
    fn operations_that_take_long_and_come_without_a_pause_let_a_checkpoint_pass() {
        const LONG: Duration = Duration::from_millis(1500);
        let (gate, number) = gate();
        let ends = AtomicBool::new(false);
        thread::scope(|scope| {
            for turn in 0..4 {
                let (gate, ends) = (&gate, &ends);
                scope.spawn(move || {
                    thread::sleep(LONG * turn / 4);
                    while !ends.load(Relaxed) {
                        let _inside = gate.enter().unwrap();
                        thread::sleep(LONG);
                    }
                });
            }
            thread::sleep(LONG);
            let begin = Instant::now();
            drop(gate.shut().unwrap());
            ends.store(true, Relaxed);
            assert!(begin.elapsed() < 6 * LONG, "{:?}", begin.elapsed());
        });
        registry::unregister(number);
    }

    #[test]
    #[ignore = "a figure, not a check: run it with --release --ignored --nocapture"]
    fn what_an_operation_pays() {
        let (gate, number) = gate();
        let begin = Instant::now();
        for _ in 0..10_000_000 {
            drop(std::hint::black_box(gate.enter().unwrap()));
        }
        std::println!("{:.1} ns", begin.elapsed().as_secs_f64() * 100.0);
        registry::unregister(number);
    }
}
