//! An image on an ordinary file, which changes from checkpoint to checkpoint, and in between not at all.
//!
//! The file is mapped privately: what is stored stays in the process. A checkpoint copies the pages that were written since the last one into
//! a record of the [`log`](crate::log), each page once, waits for the disk, and writes the image from the record. After any failure the file
//! and its log have the image as it was at the last checkpoint that was waited for, or at the one that was under way. Threads may store
//! meanwhile: a page that is stored to while it is copied is in this checkpoint as its words were, and in the next one again.
//!
//! Lock order: `state`, then the caller's locks (in [`Medium::checkpoint_still`]), then `growth`. Growing is called under the caller's locks,
//! so it never waits for `state`.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering::*};

use spandrel_os::draft;
use spandrel_os::image::{Image, Mapping};
use spandrel_os::written::{Names, Written};
use spandrel_os::{usage, vm};
use spandrel_pages::{MIB, PAGE_BYTES};
use spandrel_redolog::{FIRST, head};
use spandrel_sync::Lock;

use crate::capture::{self, Compared};
use crate::compare::{Mismatch, Reader, Seen, Standing, compare};
use crate::disk::{Disk, Which};
use crate::files::{self, Files, drawn, make_log};
use crate::loan::READER;
use crate::media::Place;
use crate::medium::{Failed, Medium};
use crate::named::{FileNames, Named};
use crate::room::{self, Buffer};
use crate::runs::Runs;
use crate::sums::{self, Sum};
use crate::unmap;
use crate::wal::Wal;

/// A log that has become longer begins anew with the next checkpoint: the disk is waited for once more then.
const LOG_BYTES: u64 = 64 * MIB as u64;
/// Beyond that a reader of the log is not waited for: it may have been stopped. One that goes on finds the log changed, and begins anew.
const MOST_BYTES: u64 = 4 * LOG_BYTES;
/// Room that a log has for an image, however full the disk becomes: for all of its pages, as far as a log is not too long then, and for what is to
/// be in the next checkpoint. So a program that has filled the disk can make durable what it has stored, and what it frees.
fn log_room(image_bytes: u64, written_bytes: u64) -> u64 {
    let most = image_bytes.min(LOG_BYTES).max(written_bytes);
    // Each run of pages has 16 bytes of its own, and a record a header.
    FIRST + most + most / 256 + 4096
}

/// Bytes of the buffer in which records are made. The image is written from the buffer; a record that is longer is read from the log again. Only
/// pages that records have filled take memory.
const RECORD_BYTES: usize = 8 * MIB;

/// After this number of bytes of checkpoints the memory of pages that the file has is released. The next store to such a page copies it anew, a
/// microsecond: little beside what its checkpoint takes.
const KEPT_BYTES: usize = 32 * MIB;

struct State {
    wal: Wal,
    /// What is not in the log yet.
    runs: Runs,
    buffer: Buffer,
    /// Where the kernel does not tell what was written.
    compared: Option<Compared>,
    /// Bytes of checkpoints since memory was released.
    kept: usize,
    /// The disk has failed: what is durable is not known.
    failed: Option<Failed>,
}

impl State {
    fn check(&self) -> Result<(), Failed> {
        self.failed.map_or(Ok(()), Err)
    }

    /// What failed has lost something, or it is not known what: from now on all fails. A full disk can become less full.
    fn note(&mut self, outcome: Result<(), Failed>) -> Result<(), Failed> {
        let failed = outcome.err().filter(|why| !why.is_full());
        self.failed = self.failed.or(failed);
        outcome
    }

    /// Has the image hold all records durably; the log has none then.
    fn begin_anew(&mut self, files: &Files) -> Result<(), Failed> {
        let outcome = self.wal.begin_anew(files, self.buffer.bytes(), drawn());
        self.note(outcome)
    }
}

/// See the head of this file.
pub struct File {
    files: Files,
    base: NonNull<u8>,
    reserved: usize,
    bytes: AtomicUsize,
    written: Written,
    growth: Lock<()>,
    state: Lock<State>,
    names: FileNames,
    identity: u64,
}

// SAFETY: the mappings are its own; threads that store to the image store to disjoint bytes (`Medium::store`); all else is locked.
unsafe impl Send for File {}
// SAFETY: as above.
unsafe impl Sync for File {}

impl File {
    /// Opens a file as it was at the last checkpoint, at the place's base if it has one. The log may be missing if the file was closed.
    ///
    /// # Errors
    /// The error's number: `EWOULDBLOCK` if another process has it open, `EADDRINUSE` if something lies at the base already, `EFBIG` beyond 16 TiB;
    /// what does not fit of a log (see [`Failed`]). Nothing was changed then but what recovery has done.
    pub fn open(place: &Place<'_>) -> Result<Self, Failed> {
        let image = files::locked(place)?;
        Self::of(image, place, Written::watch)
    }

    /// The same of an image that was locked.
    pub(crate) fn of(
        image: Image,
        place: &Place<'_>,
        watch: unsafe fn(*mut u8, usize) -> Written,
    ) -> Result<Self, Failed> {
        // To write to a hole that finds no room is an error here, and no signal: on a full disk a heap is opened all the same.
        let _ = image.take_all_room(false);
        let mut buffer = Buffer::new(RECORD_BYTES)?;
        let (mut files, wal) = files::recovered(image, place, buffer.bytes())?;
        let is_empty = files.bytes(Which::Log)? == 0;
        if is_empty {
            if let Some(empty) = files.log.take() {
                draft::remove_name(place.log, &empty).map_err(Failed)?;
            }
            files.log = Some(make_log(place.log, place.identity)?);
        }
        let log = files.log.as_ref().map(|log| (place.log, log));
        let names = FileNames::of((place.path, &files.image), log)?;
        let large = Failed(libc::EFBIG);
        let bytes = usize::try_from(files.image.bytes().map_err(Failed)?).map_err(|_| large)?;
        let bytes = bytes / PAGE_BYTES * PAGE_BYTES;
        let most = place.limit.max(bytes);
        if most.div_ceil(PAGE_BYTES) > u32::MAX as usize {
            return Err(large);
        }
        // On a full disk a heap is opened all the same: to make room in it, or to be looked at.
        let _ = files.reserve_log(log_room(bytes as u64, 0));
        let runs = Runs::new(most.div_ceil(PAGE_BYTES))?;
        let (base, reserved) = room::reserve(most, place.base)?;
        // SAFETY: the reservation is this medium's alone.
        let written = unsafe {
            let mapped = if bytes > 0 {
                files.image.map(base.as_ptr(), 0, bytes, Mapping::Private)
            } else {
                Ok(())
            };
            mapped.map(|()| watch(base.as_ptr(), bytes)).map_err(|why| {
                vm::release(base.as_ptr(), reserved);
                Failed(why)
            })?
        };
        let compared = match written.names() {
            Names::Written => None,
            Names::Candidates => Some(Compared::new()?),
        };
        let state = State { wal, runs, buffer, compared, kept: 0, failed: None };
        let (bytes, state, growth) = (AtomicUsize::new(bytes), Lock::new(state), Lock::new(()));
        let identity = place.identity;
        Ok(Self { files, base, reserved, bytes, written, growth, state, names, identity })
    }

    /// Whether a copy of the file is being read: the log has to stay as it is, and may only become longer.
    fn has_reader(&self) -> bool {
        self.files.image.is_byte_locked(READER)
    }

    /// Writes a record of the pages that were written, and waits for it. `None`: there are none, or `still` has not called its argument.
    fn record(
        &self,
        state: &mut State,
        still: &dyn Fn(&mut dyn FnMut()),
    ) -> Result<Option<spandrel_redolog::Written>, Failed> {
        let State { wal, runs, buffer, compared, .. } = state;
        let mut record = wal.record(&self.files, buffer.bytes());
        // A page may be equal to that of an image which lacks a record, and differ from that record's.
        let mut compared = compared.as_mut().filter(|_| !wal.is_behind());
        let mut outcome = None;
        still(&mut || {
            record.set_image_bytes(self.bytes() as u64);
            outcome = Some((|| {
                let is_again = !runs.is_empty();
                let taken = self.written.take(|at, len| runs.add(at, len));
                if is_again {
                    // Pages of an attempt that failed, which other threads have written again: a record has room for each page once.
                    runs.merge();
                }
                // A write that the kernel does not report would be lost.
                taken.map_err(|_| Failed(libc::EIO))?;
                let base = self.base.as_ptr().cast_const();
                // SAFETY: all runs are of the image, which is mapped.
                unsafe {
                    match &mut compared {
                        Some(compared) => compared.add(&mut record, runs, base, &self.files.image),
                        None => capture::all(&mut record, runs, base),
                    }
                }
            })());
        });
        let Some(outcome) = outcome else { return Ok(None) };
        outcome?;
        let is_as_long = wal.image_bytes().is_none_or(|bytes| bytes == record.image_bytes());
        if record.is_empty() && is_as_long {
            runs.clear();
            return Ok(None);
        }
        let written = wal.commit(record, &self.files)?;
        runs.clear();
        Ok(Some(written))
    }

    /// Looks that what becomes durable now is found by the names of the files. A log that was removed is made anew: the image alone has what
    /// the log had.
    ///
    /// # Errors
    /// [`Failed::REPLACED`]; those of [`make_log`], and the disk's. A later checkpoint looks again.
    fn look_at_names(&self, state: &mut State) -> Result<(), Failed> {
        match self.names.standing_of(&self.files) {
            Named::Kept => return self.look_at_log(state),
            Named::Replaced => return Err(Failed::REPLACED),
            Named::WithoutLog => {}
        }
        state.begin_anew(&self.files)?;
        let new = make_log(self.names.log(), self.identity)?;
        if let Some(log) = &self.files.log {
            log.become_file_of(new).map_err(Failed)?;
        }
        // As at the opening: a full disk is an error of the checkpoints that find no room.
        let bytes = self.written.bytes() as u64;
        let _ = self.files.reserve_log(log_room(self.bytes() as u64, bytes));
        Ok(())
    }

    /// Looks that the log has all of its records: a program may have cut it off (`logrotate`'s `copytruncate`). The image alone has them then.
    fn look_at_log(&self, state: &mut State) -> Result<(), Failed> {
        let Some(log) = &self.files.log else { return Ok(()) };
        // One without records has its head.
        let head = head(self.identity);
        if log.bytes().map_err(Failed)? >= state.wal.bytes().max(head.len() as u64) {
            return Ok(());
        }
        state.begin_anew(&self.files)?;
        let written = self.files.write(Which::Log, 0, &head);
        state.note(written.and_then(|()| self.files.sync(Which::Log)))?;
        let bytes = self.written.bytes() as u64;
        // As at the opening: a full disk is an error of the checkpoints that find no room.
        let _ = self.files.reserve_log(log_room(self.bytes() as u64, bytes));
        Ok(())
    }

    fn checkpoint_with(
        &self,
        state: &mut State,
        still: &dyn Fn(&mut dyn FnMut()),
    ) -> Result<(), Failed> {
        state.check()?;
        self.look_at_names(state)?;
        self.files.image.check_limit(self.bytes() as u64).map_err(Failed)?;
        let bytes = state.wal.bytes();
        if bytes > MOST_BYTES || bytes > LOG_BYTES && !self.has_reader() {
            state.begin_anew(&self.files)?;
        }
        let before = state.wal.bytes();
        let mut outcome = self.record(state, still);
        if outcome.is_err_and(Failed::is_full) && !state.wal.is_empty() {
            // The records are what fills the disk, or the log what is too long: the image has them.
            state.begin_anew(&self.files)?;
            outcome = self.record(state, still);
        }
        let written = match outcome {
            Ok(written) => written,
            Err(why) => return state.note(Err(why)),
        };
        if let Some(written) = written {
            let bytes = state.wal.bytes().saturating_sub(before);
            state.kept += usize::try_from(bytes).unwrap_or(usize::MAX).min(self.bytes());
            let applied = state.wal.apply(&self.files, written, state.buffer.bytes());
            state.note(applied)?;
        }
        if state.kept >= KEPT_BYTES && usage::is_one_thread() {
            // SAFETY: no other thread is there to store anything.
            unsafe { self.give_back_with(state) };
        }
        Ok(())
    }

    /// See [`Medium::give_back`].
    unsafe fn give_back_with(&self, state: &mut State) -> usize {
        if state.wal.is_behind() || !state.runs.is_empty() || state.failed.is_some() {
            return 0;
        }
        state.kept = 0;
        let base = self.base.as_ptr().cast_const();
        let mut compared = state.compared.as_mut();
        let is_equal = |at: usize| match &mut compared {
            // SAFETY: a page of the image.
            Some(compared) => unsafe { compared.is_equal(base, &self.files.image, at) },
            None => false,
        };
        // SAFETY: passed on from the caller; the file has all that was taken.
        unsafe { self.written.give_back(is_equal) }
    }

    /// Shortens the log to `least` bytes: the image has all of its records.
    fn shorten_log(&self, least: u64) -> Result<(), Failed> {
        let Some(mut state) = self.state.try_lock() else { return Err(Failed(libc::EBUSY)) };
        state.check()?;
        if self.files.bytes(Which::Log)? <= least {
            return Err(Failed(libc::ENOSPC));
        }
        state.begin_anew(&self.files)?;
        self.files.log.as_ref().map_or(Ok(()), |log| log.shorten(least).map_err(Failed))
    }

    /// Makes the image longer, with room for a checkpoint of all of it.
    fn lengthen(&self, from: u64, to: u64, log: u64) -> Result<(), Failed> {
        self.files.reserve_log(log)?;
        self.files.image.grow(from, to).map_err(Failed)?;
        self.files.reserve_sums(to);
        Ok(())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // A log that nothing is in is of no use to any program, and of harm beside a file that was put in the place of this one.
        if let Some(log) = &self.files.log
            && self.files.image.is_locked()
            && self.state.lock().wal.is_empty()
        {
            // The name may be out of reach: the directory was moved, or the process has another root directory or user by now. An empty log
            // counts as none.
            let _ = log.shorten(0);
            let _ = draft::remove_name(self.names.log(), log);
        }
        // SAFETY: `drop` has the medium exclusively, so that no store to the mapping is under way.
        unsafe { unmap::release(self.base.as_ptr(), self.reserved, self.bytes()) };
    }
}

// SAFETY: the mapping stays where it is as long as this lives; what is not in the file does not change it.
unsafe impl Medium for File {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn bytes(&self) -> usize {
        self.bytes.load(Acquire)
    }

    fn limit(&self) -> usize {
        self.reserved
    }

    fn present(&self) -> Result<usize, Failed> {
        room::present(&self.files.image, self.bytes())
    }

    fn grow(&self, bytes: usize) -> Result<(), Failed> {
        let _growth = self.growth.lock();
        let from = self.bytes.load(Acquire);
        let Some(to) = room::grown(from, bytes, self.reserved)? else { return Ok(()) };
        let (from_bytes, to_bytes) = (from as u64, to as u64);
        let log = log_room(to_bytes, self.written.bytes() as u64 + (to_bytes - from_bytes));
        match self.lengthen(from_bytes, to_bytes, log) {
            Err(Failed(libc::ENOSPC | libc::EDQUOT)) if self.shorten_log(log).is_ok() => {
                self.lengthen(from_bytes, to_bytes, log)?;
            }
            grown => grown?,
        }
        // SAFETY: within the reservation, behind what is in use.
        unsafe {
            let at = self.base.as_ptr().add(from);
            self.files.image.map(at, from as u64, to - from, Mapping::Private).map_err(Failed)?;
            self.written.extend(to).map_err(Failed)?;
        }
        self.bytes.store(to, Release);
        Ok(())
    }

    #[inline]
    fn write_back(&self, _at: usize, _len: usize) {}

    #[inline]
    fn fence(&self) {}

    fn checkpoint_still(&self, still: &dyn Fn(&mut dyn FnMut())) -> Result<(), Failed> {
        self.checkpoint_with(&mut self.state.lock(), still)
    }

    fn settle(&self) -> Result<(), Failed> {
        let mut state = self.state.lock();
        state.check()?;
        self.look_at_names(&mut state)?;
        state.begin_anew(&self.files)
    }

    fn compare_sums(&self, see: &mut dyn FnMut(u64, Mismatch)) -> Result<Standing, Failed> {
        let mut state = self.state.lock();
        state.check()?;
        if state.wal.sums().is_none() {
            return Ok(Standing::Absent);
        }
        // The sums in the file are those of the image then.
        state.begin_anew(&self.files)?;
        let State { wal, buffer, .. } = &mut *state;
        let Some(sums) = wal.sums().filter(|sums| sums.is_complete(wal.point())) else {
            return Ok(Standing::Stale);
        };
        let mut reader = Reader::new(&self.files, buffer.bytes());
        compare(&self.files, sums, &mut |page| reader.hash_of(page), &mut |page, seen, word| {
            let at = sums::FIRST + page * sums::SUM_BYTES as u64;
            let turned = Sum::turned(word).to_le_bytes();
            match seen {
                Seen::Whole => return self.files.write(Which::Sums, at, &turned),
                Seen::Wrong(wrong) => see(page * PAGE_BYTES as u64, wrong),
            }
            match seen {
                Seen::Wrong(Mismatch::Page) => self.files.write(Which::Sums, at, &turned),
                _ => Ok(()),
            }
        })?;
        self.files.sync(Which::Sums)?;
        Ok(Standing::Compared)
    }

    unsafe fn give_back(&self) -> usize {
        // The caller may hold locks that a checkpoint waits for.
        let Some(mut state) = self.state.try_lock() else { return 0 };
        // The checkpoints of one thread keep it: they would fill it again.
        state.buffer.release();
        // SAFETY: passed on from the caller.
        unsafe { self.give_back_with(&mut state) }
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
