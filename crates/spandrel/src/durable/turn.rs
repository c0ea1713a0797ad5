//! What the thread that runs a batch does: the commands, and what becomes of them.

use spandrel_durable::combine::{Batch, Outcome};
use spandrel_durable::exchange::Place;
use spandrel_redolog::Point;

use super::command;
use super::escapes::Escapes;
use super::log::Log;
use super::plain::Part;
use super::{Arena, Error};

/// The batch was refused: the engine says why.
pub(super) const REFUSED: Outcome = Outcome::new(1);
/// The command alone is longer than the log, and was undone.
pub(super) const TOO_LONG: Outcome = Outcome::new(2);
/// The same, and the log cannot become longer: this and the error's number.
pub(super) const NO_LONGER_LOG: u64 = 1 << 32;

/// Refuses all that follows a batch that unwinds: memory may have half of it.
pub(super) struct Whole(pub *mut Log);

impl Drop for Whole {
    fn drop(&mut self) {
        // SAFETY: the thread that runs the batch unwinds, and uses the log no more.
        unsafe { (*self.0).engine().refuse(Error::Panicked) };
    }
}

pub(super) fn outcome_of(outcome: &Result<(), Error>) -> Outcome {
    match outcome {
        Ok(()) => Outcome::DONE,
        Err(Error::TooLong) => TOO_LONG,
        Err(Error::NoLongerLog(why)) => Outcome::new(NO_LONGER_LOG | u64::from(why.unsigned_abs())),
        Err(_) => REFUSED,
    }
}

/// What the thread that runs a batch has for itself.
pub(super) struct Turn<'t, S> {
    pub log: &'t mut Log,
    pub state: &'t mut S,
    pub arena: &'t Arena,
    pub place: &'t Place,
    pub escapes: &'t Escapes,
    pub plain: Option<&'t Part>,
}

impl<S> Turn<'_, S> {
    /// Runs all commands of a batch as one.
    ///
    /// # Errors
    /// [`Error::TooLong`]: nothing was changed; others: nothing is accepted any more.
    pub fn all(&mut self, batch: &Batch<'_>) -> Result<(), Error> {
        if let Err(why) = self.log.grow(self.place) {
            return Err(self.log.engine().refuse(why));
        }
        let mut requests = batch.iter().map(|entry| entry.request());
        match self.commands(&mut requests) {
            // What is too long alone gets a longer log.
            Err(Error::TooLong) if batch.len() == 1 => self.with_longer_log(&mut requests),
            outcome => outcome,
        }
    }

    /// Runs commands again that were too long for the log.
    fn with_longer_log(
        &mut self,
        requests: &mut (impl Iterator<Item = *mut ()> + Clone),
    ) -> Result<(), Error> {
        match self.log.lengthen(self.place) {
            Ok(()) => {}
            Err(why @ (Error::TooLong | Error::NoLongerLog(_))) => return Err(why),
            Err(why) => return Err(self.log.engine().refuse(why)),
        }
        match self.commands(requests) {
            // The list of runs was full: what was needed was not known.
            Err(Error::TooLong) => self.with_longer_log(requests),
            outcome => outcome,
        }
    }

    /// Runs each command as a batch of its own. What commands were refused for may be what others of the batch have done, which is undone.
    pub fn one_by_one(&mut self, batch: &Batch<'_>) {
        for entry in batch.iter() {
            // SAFETY: the request is that of a command whose thread waits; this thread runs the batch, which was undone.
            unsafe { command::begin_again::<S>(entry.request()) };
            let mut request = core::iter::once(entry.request());
            let outcome = self.log.engine().check().and_then(|()| self.commands(&mut request));
            let outcome = match outcome {
                Err(Error::TooLong) => self.with_longer_log(&mut request),
                outcome => outcome,
            };
            entry.set_outcome(outcome_of(&outcome));
        }
    }

    /// Runs commands, but for those that have panicked, and makes what they have changed durable.
    ///
    /// # Errors
    /// As for [`Turn::all`].
    fn commands(
        &mut self,
        requests: &mut (impl Iterator<Item = *mut ()> + Clone),
    ) -> Result<(), Error> {
        let doubts = self.log.doubts().take();
        if self.plain.is_some_and(Part::has_left) || !doubts.is_empty() {
            let most = self.log.engine().most_doubts();
            let (first, rest) = doubts.split_at(doubts.len().min(most));
            for doubts in std::iter::once(first).chain(rest.chunks(most)) {
                // SAFETY: this thread has the gate, and no operation of the heap is under way.
                unsafe { self.log.keep_stores_between(self.arena, self.place, doubts)? };
                if !doubts.is_empty() {
                    // SAFETY: what other threads have stored for commands is durable.
                    unsafe { self.look() };
                }
            }
        }
        self.arena.medium().notes().begin();
        // SAFETY: the requests are those of `Client::write`, whose threads wait; this thread runs the batch.
        let ended = unsafe { self.commands_of_batch(requests) };
        if let Some(plain) = self.plain {
            plain.end_batch(ended.is_err());
        }
        self.log.tell(self.arena);
        self.log.doubts().note_run();
        let is_point = ended?.is_some();
        if is_point {
            // SAFETY: the batch has ended.
            unsafe { self.look() };
        }
        Ok(())
    }

    /// Looks for addresses of the process's memory in what the last batch has stored.
    ///
    /// # Safety
    /// The batch is durable, and no other has begun.
    unsafe fn look(&mut self) {
        // SAFETY: the runs are those of the batch; this thread has the state until it leaves the gate.
        unsafe {
            // Its own place is in the frame that has called all commands.
            let frame = (&raw const *self).addr();
            self.escapes.look(self.arena, frame, |see| self.log.engine().each_run(see));
        }
    }

    /// A command that panics, or that is not to be, is undone with those before it, which run once more without it. Those behind it run for the first
    /// time then: they see nothing of it, and what they are refused for is durable, or becomes so with them.
    ///
    /// # Safety
    /// The requests are those of commands whose threads wait; this thread has begun the batch.
    unsafe fn commands_of_batch(
        &mut self,
        requests: &mut (impl Iterator<Item = *mut ()> + Clone),
    ) -> Result<Option<Point>, Error> {
        let (memory, handles) = (self.arena.medium(), self.arena.handles());
        // SAFETY: promised by the caller.
        unsafe {
            loop {
                if let Some(plain) = self.plain {
                    plain.begin_batch(self.arena);
                }
                let mut to_run =
                    requests.clone().filter(|request| !command::is_undone::<S>(*request));
                let is_well = to_run.all(|request| command::run::<S>(request, self.state));
                // A command has forked, and this is the child: the files are the parent's, and the thread of the log too.
                if self.arena.is_forked() {
                    return Err(self.log.engine().refuse(Error::Forked));
                }
                if is_well {
                    break;
                }
                self.discard_results(requests);
                self.undo(handles)?;
                if let Some(plain) = self.plain {
                    plain.look_at_variables(self.arena, false);
                }
            }
            let count = requests.clone().count() as u64;
            match self.log.engine().end_batch(memory, count) {
                Err(Error::TooLong) => {
                    // What the results store when they are dropped is undone as well.
                    memory.notes().begin();
                    self.discard_results(requests);
                    self.undo(handles)?;
                    match self.log.engine().end_batch(memory, 0) {
                        Ok(_) => Err(Error::TooLong),
                        Err(_) => Err(self.log.engine().refuse(Error::Panicked)),
                    }
                }
                // Reads go on, and do not see what is not durable. Where it cannot be undone, they do.
                Err(why @ (Error::Poisoned(_) | Error::Full(_) | Error::Fault | Error::Stray)) => {
                    memory.notes().begin();
                    self.discard_results(requests);
                    if self.undo(handles).is_ok() {
                        let _ = self.log.engine().end_batch(memory, 0);
                    }
                    Err(why)
                }
                ended => ended,
            }
        }
    }

    /// Undoes the batch in memory. `handles`: the number of the arena's handles when the batch began.
    ///
    /// # Errors
    /// As for [`Engine::undo`](spandrel_durable::engine::Engine::undo).
    ///
    /// # Safety
    /// As for [`Turn::commands_of_batch`].
    unsafe fn undo(&mut self, handles: u64) -> Result<(), Error> {
        if let Some(plain) = self.plain {
            plain.await_threads();
        }
        // SAFETY: promised by the caller.
        unsafe { self.log.engine().undo(self.arena, handles) }
    }

    /// Drops the results of commands that are to be undone with the state that they may lead into, as long as it is what they have made of it.
    ///
    /// # Safety
    /// As for [`Turn::commands_of_batch`].
    unsafe fn discard_results(&self, requests: &mut (impl Iterator<Item = *mut ()> + Clone)) {
        // SAFETY: promised by the caller.
        let discard =
            || requests.clone().for_each(|request| unsafe { command::discard::<S>(request) });
        match self.plain {
            // SAFETY: as above.
            Some(_) => unsafe { Part::in_batch(self.arena, discard) },
            None => discard(),
        }
    }
}
