//! Batches: what a batch has stored becomes a record, and is durable then.

use spandrel_pheap::Heap;
use spandrel_pmem::disk::{Disk, Which};
use spandrel_pmem::{Failed, Medium};
use spandrel_redolog::Point;

use crate::error::Error;
use crate::front::{Front, Refused};
use crate::runs::Runs;
use crate::store::{Files, Memory, clip};

/// The writing side of an open state: one thread at a time uses it.
pub struct Engine<'a> {
    front: Front<'a, Files>,
    runs: Runs,
    /// The runs are those of a batch that was ended, is not durable, and is to be undone.
    is_ended: bool,
    /// Bytes of the log that the last batch needed that was too long.
    needed: u64,
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
        let (runs, figures) = (Runs::new()?, Figures::default());
        Ok(Self { front, runs, is_ended: false, needed: 0, refused: None, figures })
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
    /// [`Error::TooLong`]: the batch is longer than the log; it goes on, and the caller undoes it. Others: memory has more than the files until the caller undoes the batch, and
    /// nothing is accepted any more.
    ///
    /// # Safety
    /// The calling thread has begun the batch, and no other thread stores to the memory.
    pub unsafe fn end_batch(&mut self, memory: &Memory) -> Result<Option<Point>, Error> {
        // SAFETY: promised by the caller.
        unsafe { self.take_runs(memory) };
        if memory.notes().has_strayed() {
            self.refuse(Error::Stray);
        }
        self.check()?;
        let Some((count, bytes)) = self.runs.size() else { return Err(self.note_too_long()) };
        if count == 0 {
            return Ok(None);
        }
        let image = (memory.base().as_ptr().cast_const(), memory.bytes() as u64);
        // SAFETY: the runs lie in the open bytes of the memory, which no thread stores to.
        let point = unsafe { self.front.commit(image, (count, bytes), |see| self.runs.each(see)) };
        match point {
            Ok(point) => {
                // SAFETY: as above.
                unsafe { memory.notes().keep(|see| self.runs.each(see)) };
                self.figures.batches += 1;
                self.figures.runs += count;
                self.figures.bytes += bytes;
                Ok(Some(point))
            }
            Err(Refused::TooLong) => Err(self.note_too_long()),
            Err(why) => {
                self.is_ended = true;
                Err(self.refuse(why.into()))
            }
        }
    }

    /// Calls `see` with each run of the last batch that was ended.
    pub fn each_run(&self, see: &mut dyn FnMut(*const u8, usize)) {
        self.runs.each(see);
    }

    /// Has the memory be again what is durable, after a batch that the calling thread runs and that is not to be. The replica brings all records into the
    /// state's file for it; if it has ended, what the file may lack is read from the log. The batch goes on, as one that has stored nothing but what the heap stores for it.
    ///
    /// `handles`: the number of [`Heap::handles`] when the batch began.
    ///
    /// # Errors
    /// See [`Error`]: nothing is accepted any more. [`Error::Undone`]: the batch has opened collections, whose handles lead to nothing.
    ///
    /// # Safety
    /// As for [`Engine::end_batch`]; no operation of the heap is under way.
    pub unsafe fn undo(&mut self, heap: &Heap<Memory>, handles: u64) -> Result<(), Error> {
        let memory = heap.medium();
        if !core::mem::take(&mut self.is_ended) {
            // SAFETY: promised by the caller.
            unsafe { self.take_runs(memory) };
        }
        let is_settled = self.front.settle().is_ok();
        let undone = self.put_back(memory, is_settled);
        memory.notes().begin();
        // SAFETY: promised by the caller.
        let undone = undone.and_then(|()| unsafe { heap.reload() }.map_err(Error::from));
        let is_sound = heap.handles() == handles;
        undone
            .and(if is_sound { Ok(()) } else { Err(Error::Undone) })
            .map_err(|why| self.refuse(why))
    }

    fn note_too_long(&mut self) -> Error {
        self.is_ended = true;
        // The list of runs may not have all of them.
        let capacity = self.front.ring().shape().capacity;
        let known = self.runs.size().map(|(count, bytes)| self.front.bound(count, bytes));
        self.needed = known.unwrap_or(capacity.saturating_mul(8)).max(capacity);
        Error::TooLong
    }

    /// Takes what the batch has stored.
    ///
    /// # Safety
    /// As for [`Engine::end_batch`].
    unsafe fn take_runs(&mut self, memory: &Memory) {
        self.runs.clear();
        let runs = &mut self.runs;
        // SAFETY: promised by the caller.
        unsafe {
            memory.notes().end(&mut |at, len| {
                clip(memory, at, len, &mut |at, len| runs.push(at, len));
            });
        }
    }

    /// Reads the bytes of the runs from the state's file, and from records that it may lack unless it is settled; all bytes, if the list does not have all runs.
    fn put_back(&mut self, memory: &Memory, is_settled: bool) -> Result<(), Error> {
        let base = memory.base().as_ptr() as usize;
        let (disk, runs) = (self.front.disk(), &self.runs);
        let each = |see: &mut dyn FnMut(*const u8, usize)| match runs.size() {
            Some(_) => runs.each(see),
            None => clip(memory, base as *const u8, memory.bytes(), see),
        };
        let mut outcome = Ok(());
        each(&mut |at, len| {
            // SAFETY: open bytes of the memory, which no other thread uses.
            let bytes = unsafe { core::slice::from_raw_parts_mut(at.cast_mut(), len) };
            match disk.read(Which::Image, (at as usize - base) as u64, bytes) {
                // Behind the file's end there were zeroes.
                Ok(read) => bytes.get_mut(read..).unwrap_or(&mut []).fill(0),
                Err(why) => outcome = Err(why.into()),
            }
        });
        if is_settled || outcome.is_err() {
            return outcome;
        }
        let mut put = |offset: u64, part: &[u8]| {
            let from = base.saturating_add(usize::try_from(offset).unwrap_or(usize::MAX));
            each(&mut |at, len| {
                // What the record and the run have in common.
                let start = from.max(at as usize);
                let end = from.saturating_add(part.len()).min(at as usize + len);
                if let Some(bytes) = part.get(start - from..).filter(|_| start < end) {
                    // SAFETY: within the run, as above; the record's bytes lie in a buffer.
                    unsafe {
                        (start as *mut u8).copy_from_nonoverlapping(bytes.as_ptr(), end - start)
                    };
                }
            });
        };
        self.front.each_pending(&mut put).map_err(Error::from)
    }

    /// The state that is durable.
    pub fn point(&self) -> Point {
        self.front.point()
    }

    /// Bytes of the log that the last batch needed that was too long.
    pub fn needed(&self) -> u64 {
        self.needed
    }

    /// Goes on counting from these figures.
    pub fn resume(&mut self, figures: Figures) {
        self.figures = figures;
    }

    /// What was made durable since the state was opened.
    pub fn figures(&self) -> Figures {
        self.figures
    }
}
