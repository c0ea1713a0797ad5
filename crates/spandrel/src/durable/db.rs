//! An open durable state.

use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::mem::ManuallyDrop;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::prelude::v1::*;
use std::sync::Arc;
use std::thread_local;

use spandrel_durable::combine::{Batch, Combiner, MAX_SEATS, Outcome, Seat, Slot};
use spandrel_durable::control::Control;
use spandrel_durable::copy::Copy;
use spandrel_durable::directory::{Directory, Paths};
use spandrel_durable::engine;
use spandrel_durable::exchange::Place;
use spandrel_durable::live::{Counts, Opened, Publisher};
use spandrel_durable::notes::{BatchNotes, Held};
use spandrel_durable::oracle::Verdict;

use super::command::{Command, Payload};
use super::escapes::{Escaped, Escapes};
use super::log::Log;
use super::open_batch::OpenBatch;
use super::opening::Opening;
use super::options::{OpenError, Options};
use super::plain::Part;
use super::scrub::Doubts;
use super::turn::{NO_LONGER_LOG, REFUSED, TOO_LONG, Turn, Whole, outcome_of};
use super::{Arena, Error};

/// Threads that run commands at a time, unless [`Options::clients`] says otherwise.
const CLIENTS: usize = 256;

/// A state in memory whose changes are durable; see [the module](super).
pub struct Durable<S> {
    combiner: Combiner<'static>,
    /// Used by the thread that runs a batch, and by readers to read.
    state: UnsafeCell<ManuallyDrop<S>>,
    /// Used by the thread that runs a batch or an exclusive section.
    log: UnsafeCell<Log>,
    arena: ManuallyDrop<Arc<Arena>>,
    slots: *mut [Slot],
    place: Place,
    report: Report,
    escapes: Escapes,
    /// Of a plain state.
    plain: Option<Part>,
    /// The log's own, which lives as long.
    control: &'static Control,
    doubts: Doubts,
    _directory: Directory,
}

// SAFETY: the state goes from thread to thread with the gate of the combiner, and readers share it: `S` answers for both. The rest is atomic, or used by
// the holder of the gate alone.
unsafe impl<S: Send + Sync> Sync for Durable<S> {}
// SAFETY: as above.
unsafe impl<S: Send> Send for Durable<S> {}

/// What opening a durable state has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// The state is new.
    pub created: bool,
    /// The state had been closed, or is new. If not, the program was killed, or the machine failed.
    pub was_closed: bool,
    /// Batches that only the log had.
    pub replayed: u64,
}

thread_local! {
    /// A command of some state runs in this thread.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is within a call on a durable state: a command runs, or a handler of a signal that has come meanwhile. Another call on a state would panic.
pub fn is_inside() -> bool {
    IS_INSIDE.get()
}

/// Marks the calling thread as one that runs a command.
struct Inside;

impl Inside {
    fn enter() -> Self {
        assert!(
            !IS_INSIDE.replace(true),
            "a command must not begin another command of this or another durable state: call it after the first has returned"
        );
        Self
    }
}

/// Signals of the calling thread wait for the end of its batch, also for one that ends by a panic.
pub(super) struct Signals<'n>(&'n BatchNotes);

impl<'n> Signals<'n> {
    /// # Safety
    /// The calling thread has the gate as long as the value lives.
    pub unsafe fn hold(notes: &'n BatchNotes) -> Self {
        // SAFETY: promised by the caller.
        unsafe { notes.hold() };
        Self(notes)
    }

    pub fn let_go(self) -> Option<Held> {
        let notes = ManuallyDrop::new(self).0;
        // SAFETY: promised by the caller of `hold`.
        unsafe { notes.let_go() }
    }
}

impl Drop for Signals<'_> {
    fn drop(&mut self) {
        // SAFETY: as above.
        drop(unsafe { self.0.let_go() });
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        IS_INSIDE.set(false);
    }
}

impl<S: Send + Sync> Durable<S> {
    /// Opens the state of a directory. A missing directory or state is made, for its owner alone. After a failure the state is that of the last command
    /// that has returned, or of a later one. `init` opens the state's collections, and makes those that are not there, as a batch.
    ///
    /// # Errors
    /// With the directory, the reason and the way out; see [`Error`]. Nothing was lost.
    pub fn open(
        directory: impl AsRef<Path>,
        options: Options,
        init: impl FnOnce(&Arc<Arena>) -> Result<S, crate::heap::Error>,
    ) -> Result<Self, OpenError> {
        Opening::begin(directory, options)?.finish(init)
    }

    /// Of a state that was loaded by the calling thread, whose first batch has begun.
    pub(super) fn start(
        opening: Opening,
        init: impl FnOnce(&Arc<Arena>) -> Result<S, crate::heap::Error>,
    ) -> Result<Self, Error> {
        let Opening { directory, files, ring, ties, arena, report, paths, options, took, .. } =
            opening;
        let state = init(&arena)?;
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let opened = Opened { replayed: report.replayed, nanos };
        let publisher = Publisher::new(paths.figures.as_c(), arena.uuid()[0], opened);
        let place = Place { paths, identity: arena.uuid()[0] };
        let with = (publisher, &place, options.says_log());
        // SAFETY: this thread has begun the batch when the state was loaded, and no other has the arena.
        let mut log = unsafe { Log::start(files, (ring, ties), with, &arena)? };
        let escapes = Escapes::new(arena.medium().notes().how(), options.has_allocator());
        // SAFETY: what `init` has stored, which no other thread changes yet.
        unsafe {
            escapes.look(&arena, (&raw const place).addr(), |see| log.engine().each_run(see))
        };
        let clients = options.clients.unwrap_or(CLIENTS).clamp(1, MAX_SEATS);
        let slots: Box<[Slot]> = (0..clients).map(|_| Slot::new()).collect();
        let slots = Box::into_raw(slots);
        let plain = options.is_plain().then(|| Part::new(&arena));
        Ok(Self {
            // SAFETY: the slots live until `drop` takes them back.
            combiner: Combiner::new(unsafe { &*slots }),
            control: log.control(),
            doubts: log.doubts().clone(),
            state: UnsafeCell::new(ManuallyDrop::new(state)),
            log: UnsafeCell::new(log),
            arena: ManuallyDrop::new(arena),
            slots,
            place,
            report,
            escapes,
            plain,
            _directory: directory,
        })
    }

    /// What opening has found.
    pub fn report(&self) -> Report {
        self.report
    }

    /// A place for the calling thread: it spares each of its commands the search for one. Waits if all places are taken.
    ///
    /// # Panics
    /// A command calls it; the process is a child of the one that has opened the state.
    pub fn client(&self) -> Client<'_, S> {
        assert!(
            !IS_INSIDE.get(),
            "a command must not use a durable state, its own or another one, but what it is given"
        );
        self.check_process();
        Client { db: self, seat: self.combiner.seat_or_wait() }
    }

    /// Runs a command that reads the state, beside others that do. What it sees is durable. Where the disk refuses a write and the state's file cannot be read
    /// either, it may see what was refused.
    ///
    /// # Panics
    /// The command panics, or is begun by another command; the process is a child of the one that has opened the state.
    pub fn read<R>(&self, command: impl FnOnce(&S) -> R) -> R {
        self.client().read(command)
    }

    /// Runs a command that may change the state. When this returns its effects survive any failure that the medium survives. The command may run in
    /// another thread, and more than once: if another command of its batch panics, all are undone and run again.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::NoLongerLog`]: the command was undone. Others: its effects are not durable, or may not be; no other command that writes is accepted then. See [`Error`].
    ///
    /// # Panics
    /// The command panics, or is begun by another command.
    pub fn write<R: Send>(&self, command: impl Fn(&mut S) -> R + Sync) -> Result<R, Error> {
        if self.arena.is_forked() {
            return Err(Error::Forked);
        }
        self.client().write(command)
    }

    /// As [`Durable::write`], but a command that returns an error is undone: the state is as if it had not run. To undo costs a write of the log into the state's
    /// file, and the other commands of the batch run again.
    ///
    /// # Errors
    /// As for [`Durable::write`]. The inner error is the command's.
    ///
    /// # Panics
    /// As for [`Durable::write`].
    pub fn try_write<R: Send, E: Send>(
        &self,
        command: impl Fn(&mut S) -> Result<R, E> + Sync,
    ) -> Result<Result<R, E>, Error> {
        if self.arena.is_forked() {
            return Err(Error::Forked);
        }
        self.client().try_write(command)
    }

    /// Has what is stored outside of commands become durable without a word: the program is known to store there.
    #[doc(hidden)]
    pub fn expect_stores_between(&self) {
        // SAFETY: the section runs alone.
        self.alone(|| unsafe { (*self.log.get()).engine().expect_stores_between() });
    }

    /// The heap that the state lies in.
    pub(super) fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Used by the thread that is alone.
    pub(super) fn log(&self) -> *mut Log {
        self.log.get()
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    pub(super) fn plain(&self) -> Option<&Part> {
        self.plain.as_ref()
    }

    pub(super) fn note_left(&self) {
        if let Some(plain) = &self.plain {
            plain.note_left();
        }
    }

    /// The first word of the state that held an address of the process's own memory after a batch: see [`Escaped`]. It, and some that follow, are named on the standard error as well.
    pub fn escaped(&self) -> Option<Escaped> {
        self.escapes.first()
    }

    /// What was made durable since the state was opened.
    pub fn figures(&self) -> Counts {
        // SAFETY: the section runs alone.
        self.client().seat.exclusive(|| unsafe { (*self.log.get()).engine().counts() })
    }

    /// Times that the state's file was synced since it was opened: what brings batches there syncs it. Commands wait for that where the log is full.
    pub fn state_syncs(&self) -> u64 {
        // SAFETY: the section runs alone.
        self.client().seat.exclusive(|| unsafe { (*self.log.get()).state_syncs() })
    }

    /// What was found about the notes of translated commands.
    #[doc(hidden)]
    pub fn verdict(&self) -> Option<Verdict> {
        // SAFETY: the section runs alone.
        let verdict = || unsafe { self.arena.medium().notes().verdict() };
        self.client().seat.exclusive(verdict).map(|(verdict, _)| verdict)
    }

    /// Runs a section while no command runs, for what belongs to the state and lies elsewhere.
    #[doc(hidden)]
    pub fn alone<R>(&self, section: impl FnOnce() -> R) -> R {
        self.client().seat.exclusive(section)
    }

    /// Times that commands were undone: for commands and sections that run alone, which see all of them.
    #[doc(hidden)]
    pub fn undone(&self) -> u64 {
        self.control.undone()
    }

    /// How a batch becomes durable, in words.
    pub fn medium(&self) -> &'static str {
        // SAFETY: the section runs alone.
        self.client().seat.exclusive(|| unsafe { (*self.log.get()).medium() })
    }

    /// Copies the state to another directory, which is made if it is missing, while the program goes on. The copy has what was durable when this was called, and batches up
    /// to a later one, each as a whole. It is a state like any other, and survives a loss of power when this returns.
    ///
    /// # Errors
    /// With the copy's directory: [`Error::Occupied`], [`Error::Full`], [`Error::Fault`] (the log does not reach the state's file any more), those of the disk. There is no copy then.
    pub fn copy(&self, to: impl AsRef<Path>) -> Result<(), OpenError> {
        let to = to.as_ref();
        self.copy_to(to.as_os_str().as_bytes())
            .map_err(|why| OpenError { directory: to.to_path_buf(), why })
    }

    fn copy_to(&self, to: &[u8]) -> Result<(), Error> {
        if self.arena.is_forked() {
            return Err(Error::Forked);
        }
        let copy = Copy::begin(Paths::new(to)?)?;
        // SAFETY: the section runs alone.
        let copied = self.client().seat.exclusive(|| unsafe { (*self.log.get()).copy(copy) });
        // Not in the section, and without a place: the program goes on.
        let Some(whole) = copied.wait() else {
            // SAFETY: as above.
            let why = || unsafe { (*self.log.get()).why_no_copy() };
            return Err(self.client().seat.exclusive(why));
        };
        whole.publish()
    }

    /// Ends the state: its file has all of it, and the log is not needed. Dropping it does the same, and says nothing of errors.
    ///
    /// # Errors
    /// As for [`Durable::write`]: what was durable still is.
    ///
    /// # Panics
    /// A field of the state panics when it is dropped; the state is closed then.
    pub fn close(mut self) -> Result<(), Error> {
        let (outcome, panicked) = self.finish();
        if let Some(payload) = panicked {
            resume_unwind(payload);
        }
        outcome
    }

    /// Ends a child of a fork that uses the state: threads that it lacks may have the state's gate.
    fn check_process(&self) {
        assert!(!self.arena.is_forked(), "{}", Error::Forked);
    }

    /// Runs the commands of a batch, and makes what they have changed durable. Signals that have waited for its end wait until the result is dropped.
    fn run(&self, batch: &Batch<'_>) -> Option<Held> {
        // SAFETY: the holder of the gate runs alone.
        let (log, state) = unsafe { (&mut *self.log.get(), &mut *self.state.get()) };
        // Before the commands run: what they would change is not undone with what has strayed.
        if self.arena.medium().notes().has_strayed() {
            log.engine().refuse(Error::Stray);
        }
        if log.engine().check().is_err() {
            batch.iter().for_each(|entry| entry.set_outcome(REFUSED));
            return None;
        }
        let whole = Whole(self.log.get());
        // SAFETY: this thread has the gate until it has let go of the signals.
        let signals = unsafe { Signals::hold(self.arena.medium().notes()) };
        let plain = self.plain.as_ref();
        let (arena, place, escapes) = (&self.arena, &self.place, &self.escapes);
        let mut turn = Turn { log, state, arena, place, escapes, plain };
        match turn.all(batch) {
            Err(Error::TooLong) if batch.len() > 1 => turn.one_by_one(batch),
            outcome => batch.iter().for_each(|entry| entry.set_outcome(outcome_of(&outcome))),
        }
        std::mem::forget(whole);
        signals.let_go()
    }
}

impl<S> Durable<S> {
    /// Closes the state. What a field's panic carries is returned beside the outcome.
    fn finish(&mut self) -> (Result<(), Error>, Option<Payload>) {
        let frame = (&raw const *self).addr();
        let log = self.log.get_mut();
        if !log.begin_end() {
            return (Ok(()), None);
        }
        if self.arena.is_forked() {
            // All of it is the parent's, and so is what its threads hold. The memory ends with this process.
            std::mem::forget(self.plain.take());
            return (Err(Error::Forked), None);
        }
        let mut panicked = None;
        // SAFETY: exclusive by `&mut self`; `finish` goes on once, and nothing uses what it drops.
        let outcome = unsafe {
            let memory = self.arena.medium();
            memory.notes().begin();
            engine::note_counts(memory);
            let found = match log.engine().check() {
                Ok(()) => log.engine().note_all(memory),
                Err(_) => None,
            };
            // Handles of collections first, which belong to the heap.
            let state = AssertUnwindSafe(|| ManuallyDrop::drop(self.state.get_mut()));
            if let Err(payload) = catch_unwind(state) {
                panicked = Some(payload);
            }
            let sealed = match log.engine().check() {
                Ok(()) => {
                    if let Some(plain) = &self.plain {
                        plain.begin_batch(&self.arena);
                    }
                    self.arena.seal().map_err(Error::from)
                }
                Err(why) => Err(why),
            };
            let ended = match sealed.and(log.engine().end_batch(memory, 0).map(drop)) {
                // The last record leaves no room for it.
                Err(Error::TooLong) if log.engine().check().is_ok() => {
                    log.lengthen(&self.place).and_then(|()| log.engine().end_again(memory))
                }
                ended => ended,
            };
            if let Some(at) = found.filter(|_| ended.is_ok()) {
                log.engine().tell_of(at);
                self.escapes.look(&self.arena, frame, |see| log.engine().each_run(see));
            }
            ended
        };
        log.end_copies();
        let outcome = outcome.and(log.stop());
        log.tell(&self.arena);
        // The allocator forgets the addresses before they are another mapping's.
        if let Some(plain) = self.plain.take() {
            plain.look_at_variables(&self.arena, true);
        }
        // SAFETY: taken once; the program may still have the arena.
        let arena = unsafe { ManuallyDrop::take(&mut self.arena) };
        match Arc::try_unwrap(arena) {
            Ok(heap) => heap.abandon(),
            // Its last owner would close it, in memory that is not durable any more. Its memory ends with the process.
            Err(shared) => std::mem::forget(shared),
        }
        (outcome, panicked)
    }
}

impl<S> Drop for Durable<S> {
    fn drop(&mut self) {
        let _ = self.finish();
        // SAFETY: made from a box; no seat lives, as seats borrow the state.
        drop(unsafe { Box::from_raw(self.slots) });
    }
}

impl<S> fmt::Debug for Durable<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Durable").field("report", &self.report).finish_non_exhaustive()
    }
}

/// A thread's place at a durable state; see [`Durable::client`].
pub struct Client<'d, S> {
    db: &'d Durable<S>,
    seat: Seat<'d>,
}

impl<S: Send + Sync> Client<'_, S> {
    /// As [`Durable::read`].
    ///
    /// # Panics
    /// As there.
    pub fn read<R>(&mut self, command: impl FnOnce(&S) -> R) -> R {
        self.db.check_process();
        let _inside = Inside::enter();
        let _reading = self.db.doubts.reading();
        let state = self.db.state.get();
        // SAFETY: no batch runs while this thread is inside, and readers share the state.
        self.seat.read(|| command(unsafe { &*state }))
    }

    /// As [`Durable::write`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// As there.
    pub fn write<R: Send>(&mut self, command: impl Fn(&mut S) -> R + Sync) -> Result<R, Error> {
        self.command(&command, |_| true)
    }

    /// As [`Durable::try_write`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// As there.
    pub fn try_write<R: Send, E: Send>(
        &mut self,
        command: impl Fn(&mut S) -> Result<R, E> + Sync,
    ) -> Result<Result<R, E>, Error> {
        self.command(&command, Result::is_ok)
    }

    pub(super) fn note_left(&self) {
        self.db.note_left();
    }

    /// Why the log does not reach the state's file any more: commands go on until the log is full.
    #[doc(hidden)]
    pub fn stalled(&self) -> Option<Error> {
        self.db.control.failure().map(Error::of_follower)
    }

    /// Begins a batch that stays open until [`OpenBatch::commit`]: no other thread reads or writes meanwhile. `is_at_rest`: no function of the program is in the middle of its work.
    ///
    /// # Errors
    /// Why nothing is accepted any more.
    #[doc(hidden)]
    pub fn begin_batch(&mut self, is_at_rest: bool) -> Result<OpenBatch<'_, S>, Error> {
        if self.db.arena.is_forked() {
            return Err(Error::Forked);
        }
        OpenBatch::begin(self.db, self.seat.alone(), is_at_rest)
    }

    /// Whether the state may have stores that no batch has noted: a batch that begins at rest makes them durable.
    #[doc(hidden)]
    pub fn has_doubts(&self) -> bool {
        self.db.doubts.are_some()
    }

    fn command<R: Send>(
        &mut self,
        command: &(impl Fn(&mut S) -> R + Sync),
        is_kept: fn(&R) -> bool,
    ) -> Result<R, Error> {
        let db = self.db;
        if db.arena.is_forked() {
            return Err(Error::Forked);
        }
        let mut command = Command::new(command, is_kept);
        let mut signals = None;
        let outcome = {
            let _inside = Inside::enter();
            self.seat.write(command.pointer(), |batch| signals = db.run(batch))
        };
        // Their handlers may run now, outside of the batch: they find the gate free.
        drop(signals);
        match (command.outcome(), outcome) {
            (Some(Err(payload)), _) => resume_unwind(payload),
            (Some(Ok(result)), Outcome::DONE) => Ok(result),
            (_, TOO_LONG) => Err(Error::TooLong),
            (_, outcome)
                if outcome.word() & NO_LONGER_LOG != 0 && outcome != Outcome::ABANDONED =>
            {
                Err(Error::NoLongerLog(outcome.word() as i32))
            }
            // Threads that the child lacks may have the gate.
            _ if db.arena.is_forked() => Err(Error::Forked),
            _ => Err(self.seat.exclusive(|| {
                // SAFETY: the section runs alone.
                unsafe { (*db.log.get()).engine().check() }.err().unwrap_or(Error::Stray)
            })),
        }
    }
}

impl<S> fmt::Debug for Client<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}
