//! Batches: what a batch has stored becomes a record, and is durable then.

use spandrel_pmem::{Failed, Medium};
use spandrel_redolog::Point;

use crate::error::Error;
use crate::front::Front;
use crate::runs::Runs;
use crate::store::{Files, Memory, clip};

/// The writing side of an open state: one thread at a time uses it.
pub struct Engine<'a> {
    front: Front<'a, Files>,
    runs: Runs,
    /// Why nothing is accepted any more.
    refused: Option<Error>,
    figures: Figures,
}

/// What was made durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// Batches that changed something.
    pub batches: u64,
    /// Runs of bytes that they had stored, and bytes of these.
    pub runs: u64,
    /// See `runs`.
    pub bytes: u64,
}

impl<'a> Engine<'a> {
    /// Of a state that was loaded.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(front: Front<'a, Files>) -> Result<Self, Failed> {
        Ok(Self { front, runs: Runs::new()?, refused: None, figures: Figures::default() })
    }

    /// Refuses a batch before it begins.
    ///
    /// # Errors
    /// Why nothing is accepted any more.
    pub fn check(&self) -> Result<(), Error> {
        self.refused.map_or(Ok(()), Err)
    }

    /// Nothing is accepted any more: what is in memory is not what is durable.
    pub fn refuse(&mut self, why: Error) -> Error {
        *self.refused.get_or_insert(why)
    }

    /// Ends the batch that the calling thread runs, and makes it durable. `None`: it has stored nothing.
    ///
    /// # Errors
    /// See [`Error`]: memory has more than the files then, and nothing is accepted any more.
    ///
    /// # Safety
    /// The calling thread has begun the batch, and no other thread stores to the memory.
    pub unsafe fn end_batch(&mut self, memory: &Memory) -> Result<Option<Point>, Error> {
        self.runs.clear();
        let runs = &mut self.runs;
        // SAFETY: promised by the caller.
        unsafe {
            memory.notes().end(&mut |at, len| {
                clip(memory, at, len, &mut |at, len| runs.push(at, len));
            });
        }
        if memory.notes().has_strayed() {
            self.refuse(Error::Stray);
        }
        self.check()?;
        let Some((count, bytes)) = self.runs.size() else {
            return Err(self.refuse(Error::TooLong));
        };
        if count == 0 {
            return Ok(None);
        }
        let image = (memory.base().as_ptr().cast_const(), memory.bytes() as u64);
        // SAFETY: the runs lie in the open bytes of the memory, which no thread stores to.
        let point = unsafe { self.front.commit(image, (count, bytes), |see| self.runs.each(see)) };
        match point {
            Ok(point) => {
                self.figures.batches += 1;
                self.figures.runs += count;
                self.figures.bytes += bytes;
                Ok(Some(point))
            }
            Err(why) => Err(self.refuse(why.into())),
        }
    }

    /// The state that is durable.
    pub fn point(&self) -> Point {
        self.front.point()
    }

    /// What was made durable since the state was opened.
    pub fn figures(&self) -> Figures {
        self.figures
    }
}
