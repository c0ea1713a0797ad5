//! Batches: what a batch has stored becomes a record, and is durable then.

use core::ops::Range;

use spandrel_os::message::say;
use spandrel_pages::PAGE_BYTES;
use spandrel_pheap::Heap;
use spandrel_pmem::disk::{Disk, Which};
use spandrel_pmem::{Failed, Medium, Notes as _};
use spandrel_redolog::Point;

use crate::differences;
use crate::error::Error;
use crate::front::{Front, Refused};
use crate::live::{Counts, Stopwatch};
use crate::notes::How;
use crate::runs::Runs;
use crate::store::{Files, Memory, clip};

/// Has words that translated code has changed atomically be what they were before the batch, with what other threads have made of them by then.
///
/// # Safety
/// The calling thread runs the batch, whose stores were put back.
unsafe fn put_back_atomics(memory: &Memory) {
    // SAFETY: promised by the caller.
    let Some(exact) = (unsafe { memory.notes().exact() }) else { return };
    exact.each_before(&mut |at, bytes, before| {
        // SAFETY: open bytes of the state.
        unsafe { at.copy_from_nonoverlapping(before.to_le_bytes().as_ptr(), bytes.min(8)) };
    });
    exact.clear();
}

/// Calls `see` with counts of owners that threads have changed since the last batch.
///
/// # Safety
/// No other thread runs a batch.
unsafe fn each_changed_count(memory: &Memory, see: &mut dyn FnMut(*const u8, usize)) {
    let base = memory.base().as_ptr() as usize;
    // SAFETY: promised by the caller; the open bytes are readable.
    unsafe { memory.notes().each_changed_count(base..base + memory.bytes(), see) };
}

/// Notes what threads have changed since the last batch where translated code notes its stores: counts of owners.
///
/// # Safety
/// The calling thread has begun a batch.
pub unsafe fn note_counts(memory: &Memory) {
    // SAFETY: promised by the caller.
    unsafe { each_changed_count(memory, &mut |at, len| memory.notes().note_count(at, len)) };
}

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
    counts: Counts,
    watch: Stopwatch,
    /// A line was said of what was stored outside of batches.
    has_told: bool,
}

impl<'a> Engine<'a> {
    /// Of a state that was loaded.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(front: Front<'a, Files>) -> Result<Self, Failed> {
        let (runs, counts, watch) = (Runs::new()?, Counts::default(), Stopwatch::default());
        let (is_ended, has_told) = (false, false);
        Ok(Self { front, runs, is_ended, needed: 0, refused: None, counts, watch, has_told })
    }

    /// Says nothing of what was stored outside of batches, and makes it durable: the program is known to store there.
    pub fn expect_stores_between(&mut self) {
        self.has_told = true;
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

    /// Ends the batch of that number of commands, which the calling thread runs, and makes it durable. `None`: it has stored nothing.
    ///
    /// # Errors
    /// [`Error::TooLong`]: the batch is longer than the log; it goes on, and the caller undoes it. Others: memory has more than the files until the caller undoes the batch, and
    /// nothing is accepted any more.
    ///
    /// # Safety
    /// The calling thread has begun the batch, and no other thread stores to the memory.
    pub unsafe fn end_batch(
        &mut self,
        memory: &Memory,
        commands: u64,
    ) -> Result<Option<Point>, Error> {
        self.runs.clear();
        // SAFETY: promised by the caller.
        unsafe {
            self.note_others(memory);
            self.take_runs(memory);
        }
        if memory.notes().has_strayed() {
            self.is_ended = true;
            self.refuse(Error::Stray);
        }
        self.check()?;
        // SAFETY: as above.
        unsafe { self.commit(memory, commands) }
    }

    /// Ends a batch again that was too long ([`Error::TooLong`]), and that is not undone: the log is another one, which [`Engine::put_front`] has put there.
    ///
    /// # Errors
    /// As for [`Engine::end_batch`].
    ///
    /// # Safety
    /// As there, and nothing was stored since.
    pub unsafe fn end_again(&mut self, memory: &Memory) -> Result<(), Error> {
        self.is_ended = false;
        self.check()?;
        // SAFETY: promised by the caller.
        unsafe { self.commit(memory, 0) }.map(drop)
    }

    /// Puts the writing side of another log in the place of the one before.
    pub fn put_front(&mut self, front: Front<'a, Files>) {
        self.front = front;
    }

    /// Makes the runs of the list durable.
    ///
    /// # Safety
    /// As for [`Engine::end_batch`]; the list has what the batch has stored.
    unsafe fn commit(&mut self, memory: &Memory, commands: u64) -> Result<Option<Point>, Error> {
        let Some((count, bytes)) = self.runs.size() else { return Err(self.note_too_long()) };
        let live = self.front.control().live();
        if count == 0 {
            // SAFETY: the thread has run the batch.
            unsafe { memory.notes().keep() };
            self.counts.commands += commands;
            live.show(&self.counts);
            return Ok(None);
        }
        let notes = memory.notes();
        // SAFETY: the thread has run the batch, and no other begins one.
        let from = unsafe { notes.image_of(memory.base().as_ptr()) };
        let image = (from, memory.bytes() as u64);
        // SAFETY: as above.
        unsafe { notes.keep_counts() };
        let (files, front, runs) = (self.front.disk(), &mut self.front, &self.runs);
        // SAFETY: the runs lie in the open bytes of the memory, which no thread stores to; the thread has run the batch, and an error that comes after the copy has
        // begun ends writing.
        let commit = || unsafe {
            let copied = |see: &mut dyn FnMut(*const u8, usize)| {
                notes.copy(|run| runs.each(run), see);
            };
            front.commit(image, (count, bytes), copied)
        };
        let waits = files.ring().waits();
        let (point, waited_nanos) = self.watch.measure(live, commit);
        self.counts.durable_waits += files.ring().waits() - waits;
        match point {
            Ok((point, time)) => {
                // SAFETY: the thread has run the batch.
                unsafe { notes.keep() };
                self.counts.batches += 1;
                self.counts.commands += commands;
                self.counts.runs += count;
                self.counts.bytes += bytes;
                self.counts.waited_nanos += waited_nanos;
                (self.counts.epoch, self.counts.sequence) = (point.epoch, point.sequence);
                self.counts.time = time;
                // SAFETY: the calling thread has run the batch.
                self.counts.set_capture(unsafe { notes.statistics() });
                live.show(&self.counts);
                Ok(Some(point))
            }
            Err(why) => {
                // SAFETY: the thread has run the batch.
                unsafe { notes.doubt_counts() };
                if why == Refused::TooLong {
                    return Err(self.note_too_long());
                }
                self.is_ended = true;
                Err(self.refuse(why.into()))
            }
        }
    }

    /// Before a batch: makes durable what threads have stored since the last one, if they may have. An `Arc` of the state that is elsewhere counts its owners in the state; if the
    /// batch was undone with that, the count would be too small. `doubts`: offsets of pages that may differ from the state's file, [`Engine::most_doubts`] at most.
    ///
    /// # Errors
    /// As for [`Engine::undo`]: nothing is accepted any more. Stores that are longer than the log are undone. [`Error::TooLong`]: the log could hold them, but for its last record: see
    /// [`Engine::end_again`].
    ///
    /// # Safety
    /// As for [`Engine::undo`], but that the calling thread has not begun a batch, and holds the gate.
    pub unsafe fn keep_stores_between(
        &mut self,
        heap: &Heap<Memory>,
        handles: u64,
        doubts: &[usize],
    ) -> Result<(), Error> {
        let memory = heap.medium();
        let notes = memory.notes();
        let mut has_changed = !doubts.is_empty();
        // SAFETY: no batch runs, and the calling thread has the gate.
        unsafe {
            has_changed |= notes.may_have_changed();
            each_changed_count(memory, &mut |_, _| has_changed = true);
        }
        if !has_changed {
            return Ok(());
        }
        notes.begin();
        // SAFETY: as above.
        let found = unsafe {
            note_counts(memory);
            self.note_doubts(memory, doubts)
        };
        // SAFETY: passed on from the caller.
        let ended = unsafe {
            match self.end_batch(memory, 0) {
                Err(Error::TooLong) if self.needed() > self.capacity() => {
                    notes.begin();
                    self.undo(heap, handles)?;
                    return self.end_batch(memory, 0).map(drop);
                }
                Err(why) if why != Error::TooLong => return Err(why),
                ended => ended.map(drop),
            }
        };
        if let Some(at) = found {
            self.tell_of(at);
        }
        ended
    }

    /// Says once that the state was changed there by what is no command.
    pub fn tell_of(&mut self, at: usize) {
        if !core::mem::replace(&mut self.has_told, true) {
            say(format_args!(
                "a durable state was changed at {at:#x} by what is no command (a handler of a signal, a thread outside of commands), or by another thread for one; that is durable now, and was not before. Counts of owners (Arc, shared_ptr) may change so. All else is to be changed by commands, in their own threads, or the stores of the state are found in another way (Stores::Pages in Rust, SPANDREL_DURABLE_STORES_PAGES in C)"
            ));
        }
    }

    /// Notes all that differs from the state's file, where native code may have stored what is not noted: the state is about to be closed, or a batch to be undone. Returns the first address.
    ///
    /// # Safety
    /// As for [`Engine::end_batch`].
    pub unsafe fn note_all(&self, memory: &Memory) -> Option<usize> {
        if !memory.notes().how().is_translated() || self.front.await_applied().is_err() {
            return None;
        }
        // SAFETY: promised by the caller.
        unsafe { self.note_differences(memory, 0..memory.bytes(), true) }
    }

    /// Notes pages that differ from the state's file: the first address of these.
    ///
    /// # Safety
    /// As for [`Engine::end_batch`].
    unsafe fn note_doubts(&self, memory: &Memory, doubts: &[usize]) -> Option<usize> {
        if doubts.is_empty() || self.front.await_applied().is_err() {
            return None;
        }
        let (base, notes, mut first) = (memory.base().as_ptr().cast_const(), memory.notes(), None);
        for page in doubts {
            let pages = differences::within(memory, base as usize + page, PAGE_BYTES);
            let mut note = |from: usize, len: usize| {
                clip(memory, base.wrapping_add(from), len, &mut |at, len| {
                    first.get_or_insert(at as usize);
                    notes.note(at, len);
                });
            };
            // SAFETY: open bytes of the state. What cannot be read is in doubt again later.
            let _ = unsafe { differences::each(self.front.disk(), base, pages, &mut note) };
        }
        first
    }

    /// Pages that may be in doubt at a time: they fit into the log however much of them differs.
    pub fn most_doubts(&self) -> usize {
        usize::try_from(self.capacity() / 16).unwrap_or(usize::MAX).div_ceil(PAGE_BYTES)
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
        self.front.control().note_undone();
        // Of a batch that was ended the list has what it had stored then; results that were dropped since may have stored more.
        if !core::mem::take(&mut self.is_ended) {
            self.runs.clear();
        }
        // SAFETY: promised by the caller.
        unsafe {
            self.note_others(memory);
            // Threads that store for commands without a system call may have done so for these.
            // Where all is compared with a copy, no page is watched for them.
            let is_verified = memory.notes().how() == How::Verified;
            if self.has_told || memory.notes().has_met() || is_verified {
                self.note_all(memory);
            }
            self.take_runs(memory);
            self.take_exact(memory);
        }
        self.runs.join();
        let is_applied = self.front.await_applied().is_ok();
        let mut undone = self.put_back(memory, is_applied);
        // The disk has refused a sync meanwhile: pages that it has not written may be those of an earlier time now.
        if is_applied && self.front.control().failure().is_some() {
            undone = self.put_back(memory, false);
        }
        // SAFETY: promised by the caller.
        unsafe {
            put_back_atomics(memory);
            memory.notes().restart();
        }
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
        self.needed = known.unwrap_or(capacity.saturating_mul(8));
        Error::TooLong
    }

    /// Notes what other threads have stored for the batch.
    ///
    /// # Safety
    /// As for [`Engine::end_batch`].
    unsafe fn note_others(&mut self, memory: &Memory) {
        let notes = memory.notes();
        // SAFETY: promised by the caller.
        unsafe {
            if notes.is_watching() {
                let is_applied = self.front.await_applied().is_ok();
                notes.each_written(&mut |at, len| {
                    let pages = differences::within(memory, at, len);
                    self.note_differences(memory, pages, is_applied);
                });
            }
        }
    }

    /// Notes what differs from the state's file in these pages, which are given by their offsets; all of it, if the file does not have all records. Returns the first address.
    ///
    /// # Safety
    /// As for [`Engine::end_batch`].
    unsafe fn note_differences(
        &self,
        memory: &Memory,
        pages: Range<usize>,
        is_applied: bool,
    ) -> Option<usize> {
        let (base, notes) = (memory.base().as_ptr().cast_const(), memory.notes());
        let mut first = None;
        let mut note = |from: usize, len: usize| {
            clip(memory, base.wrapping_add(from), len, &mut |at, len| {
                first.get_or_insert(at as usize);
                notes.note(at, len);
            });
        };
        // SAFETY: open bytes of the state.
        let is_compared = is_applied
            && unsafe { differences::each(self.front.disk(), base, pages.clone(), &mut note) }
                .is_ok();
        if !is_compared {
            note(pages.start, pages.len());
        }
        first
    }

    /// Adds what the batch has stored to the list of runs.
    ///
    /// # Safety
    /// As for [`Engine::end_batch`].
    unsafe fn take_runs(&mut self, memory: &Memory) {
        let runs = &mut self.runs;
        // SAFETY: promised by the caller.
        unsafe {
            memory.notes().end(&mut |at, len| {
                clip(memory, at, len, &mut |at, len| runs.push(at, len));
            });
        }
    }

    /// Has the list of runs be what translated code has stored, byte by byte, where that is known.
    ///
    /// # Safety
    /// As for [`Engine::end_batch`].
    unsafe fn take_exact(&mut self, memory: &Memory) {
        // SAFETY: promised by the caller.
        let Some(exact) = (unsafe { memory.notes().exact() }) else { return };
        let (runs, mut is_new) = (&mut self.runs, true);
        // Of too many stores the blocks stay.
        let is_told = exact.undo(&mut |at, len| {
            if core::mem::take(&mut is_new) {
                runs.clear();
            }
            clip(memory, at, len, &mut |at, len| runs.push(at, len));
        });
        if is_told && is_new {
            runs.clear();
        }
    }

    /// Reads the bytes of the runs from the state's file, and from records that it may lack unless `is_applied`; all bytes, if the list does not have all runs.
    fn put_back(&mut self, memory: &Memory, is_applied: bool) -> Result<(), Error> {
        let base = memory.base().as_ptr() as usize;
        let (disk, runs) = (self.front.disk(), &self.runs);
        let each = |see: &mut dyn FnMut(*const u8, usize)| match runs.size() {
            Some(_) => runs.each(see),
            None => clip(memory, base as *const u8, memory.bytes(), see),
        };
        // That both files can be read is known before memory has older bytes.
        disk.allow(Which::Image, 0)?;
        if !is_applied {
            let (from, to) = (self.front.control().head(), self.front.ring().end());
            disk.ring().recall(self.front.ring().shape(), from, to)?;
            self.front.each_pending(&mut |_, _| ())?;
        }
        let (has_all, mut outcome) = (runs.size().is_some(), Ok(()));
        each(&mut |at, len| {
            // SAFETY: open bytes of the memory, which no other thread uses.
            let bytes = unsafe { core::slice::from_raw_parts_mut(at.cast_mut(), len) };
            let offset = (at as usize - base) as u64;
            let read = match has_all {
                true => disk.read(Which::Image, offset, bytes).map(|read| {
                    // Behind the file's end there were zeroes.
                    bytes.get_mut(read..).unwrap_or(&mut []).fill(0);
                }),
                false => disk.read_sparsely(offset, bytes),
            };
            outcome = outcome.and(read.map_err(Error::from));
        });
        if is_applied || outcome.is_err() {
            return outcome;
        }
        let mut put = |offset: u64, part: &[u8]| {
            let from = base.saturating_add(usize::try_from(offset).unwrap_or(usize::MAX));
            let mut put = |at: *const u8, len: usize| {
                // What the record and the run have in common.
                let start = from.max(at as usize);
                let end = from.saturating_add(part.len()).min(at as usize + len);
                if let Some(bytes) = part.get(start - from..).filter(|_| start < end) {
                    // SAFETY: within the run, as above; the record's bytes lie in a buffer.
                    unsafe {
                        (start as *mut u8).copy_from_nonoverlapping(bytes.as_ptr(), end - start)
                    };
                }
            };
            match has_all {
                true => runs.each_within(from, part.len(), &mut put),
                false => each(&mut put),
            }
        };
        self.front.each_pending(&mut put).map_err(Error::from)
    }

    /// Bytes of the log that the last batch needed that was too long.
    pub fn needed(&self) -> u64 {
        self.needed
    }

    /// Bytes of the log.
    pub fn capacity(&self) -> u64 {
        self.front.ring().shape().capacity
    }

    /// What was made durable since the state was opened.
    pub fn counts(&self) -> Counts {
        self.counts
    }
}
