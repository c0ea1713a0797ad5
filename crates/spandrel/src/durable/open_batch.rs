//! A batch that stays open over several calls of its thread: for programs whose commands begin and end in their own code.

use std::fmt;
use std::prelude::v1::*;

use spandrel_durable::combine::Alone;

use super::db::{Durable, Signals};
use super::turn::Whole;
use super::{Arena, Error};

/// A batch of the calling thread, which has the state alone until [`OpenBatch::commit`].
///
/// Commands of it are not undone: what the thread has seen of a batch that cannot be made durable it has seen. So a batch that fails, or that is dropped, ends the state: nothing is accepted any
/// more, and the files have all batches before.
#[doc(hidden)]
pub struct OpenBatch<'d, S> {
    db: &'d Durable<S>,
    commands: u64,
    /// Refuses all that follows if the batch is dropped.
    whole: Whole,
    signals: Signals<'d>,
    _alone: Alone<'d>,
}

impl<'d, S: Send + Sync> OpenBatch<'d, S> {
    /// Begins it, as the calling thread is alone. `is_at_rest`: no function of the program is in the middle of its work, so that what has been stored between batches becomes durable as it is.
    ///
    /// # Errors
    /// Why nothing is accepted any more.
    pub(super) fn begin(
        db: &'d Durable<S>,
        alone: Alone<'d>,
        is_at_rest: bool,
    ) -> Result<Self, Error> {
        let arena = db.arena();
        let notes = arena.medium().notes();
        // SAFETY: this thread is alone.
        let log = unsafe { &mut *db.log() };
        if notes.has_strayed() {
            log.engine().refuse(Error::Stray);
        }
        log.engine().check()?;
        log.grow(db.place()).map_err(|why| log.engine().refuse(why))?;
        let doubts = if is_at_rest { log.doubts().take() } else { Vec::new() };
        let most = log.engine().most_doubts();
        for doubts in doubts.chunks(most) {
            // SAFETY: this thread is alone, and no operation of the heap is under way.
            unsafe { log.keep_stores_between(arena, db.place(), doubts)? };
        }
        let whole = Whole(db.log());
        // SAFETY: this thread is alone until it has let go of the signals.
        let signals = unsafe { Signals::hold(notes) };
        notes.begin();
        if let Some(plain) = db.plain() {
            // SAFETY: this thread runs the batch.
            unsafe { plain.begin_batch(arena) };
        }
        Ok(Self { db, commands: 0, whole, signals, _alone: alone })
    }

    /// The heap that the state lies in.
    pub fn arena(&self) -> &Arena {
        self.db.arena()
    }

    /// A command of the batch is about to run.
    pub fn note_command(&mut self) {
        self.commands += 1;
    }

    /// Makes the batch durable. Signals that have waited for its end have their handlers run before this returns.
    ///
    /// # Errors
    /// Those of [`Durable::write`]: nothing is accepted any more.
    ///
    /// `see` is called with each run of bytes that it has stored.
    pub fn commit(self, see: &mut dyn FnMut(*const u8, usize)) -> Result<(), Error> {
        let Self { db, commands, whole, signals, _alone: alone } = self;
        let arena = db.arena();
        // SAFETY: this thread is alone.
        let log = unsafe { &mut *db.log() };
        // SAFETY: this thread runs the batch; the thread that follows the log has ended when it is replaced.
        let ended = unsafe {
            match log.engine().end_batch(arena.medium(), commands) {
                Err(Error::TooLong) => {
                    let longer = log.lengthen(db.place());
                    longer.and_then(|()| log.engine().end_again(arena.medium()))
                }
                ended => ended.map(drop),
            }
        };
        if ended.is_ok() {
            log.engine().each_run(see);
        }
        if let Some(plain) = db.plain() {
            plain.end_batch(false);
        }
        log.tell(arena);
        log.doubts().note_run();
        let ended = ended.map_err(|why| log.engine().refuse(why));
        std::mem::forget(whole);
        let held = signals.let_go();
        drop(alone);
        // Handlers find the state free.
        drop(held);
        ended
    }
}

impl<S> fmt::Debug for OpenBatch<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenBatch").field("commands", &self.commands).finish_non_exhaustive()
    }
}
