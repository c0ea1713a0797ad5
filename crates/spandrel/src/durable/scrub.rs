//! A comparison of memory with the state's file that goes on all the time, where commands are translated: it finds what native code has stored, which nothing notes. A command that
//! reads and changes what is behind a lock does that, and a thread that works for a command and was never asleep.
//!
//! The thread that follows the log compares some of the state each second. A page that differs may be one that a batch has just changed: so it is looked at again when the file
//! has more records. What differs still is looked at by the thread that runs the next batch, while nothing changes.

use std::mem;
use std::prelude::v1::*;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use spandrel_durable::differences;
use spandrel_durable::replica::Replica;
use spandrel_durable::store::Files;
use spandrel_pages::PAGE_BYTES;
use spandrel_pmem::Failed;

/// A part of the state is compared as often as this.
const TURN: Duration = Duration::from_secs(1);
/// Bytes of that part: about a hundredth of a processor's time, and of its bandwidth to memory.
const PART_BYTES: usize = 16 << 20;
/// Bytes that are compared before the log is looked at again: about half a millisecond.
const PIECE_BYTES: usize = 1 << 20;
/// Time between two looks at a page that differs.
const PAUSE: Duration = Duration::from_millis(5);
/// Looks at a page before it is in doubt.
const LOOKS: u32 = 3;
/// Pages that a batch looks at, at most: it waits for a millisecond.
const MOST_DOUBTS: usize = 1024;

/// Pages, by their offsets, that the next batch looks at.
#[derive(Clone, Default)]
pub(super) struct Doubts(Arc<Inner>);

#[derive(Default)]
struct Inner {
    pages: Mutex<Vec<usize>>,
    are_some: AtomicBool,
    /// Commands have ended since the last part of the comparison began.
    has_run: AtomicBool,
}

/// Marks a command that reads when it ends: it may have changed the state all the same.
pub(super) struct Reading<'d>(&'d Doubts);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.note_run();
    }
}

impl Doubts {
    /// A command has ended. One that has changed nothing, as far as is known, may have had others do so.
    pub fn note_run(&self) {
        if !self.0.has_run.load(Relaxed) {
            self.0.has_run.store(true, Relaxed);
        }
    }

    /// A command that reads begins, which has ended when the value is dropped.
    pub fn reading(&self) -> Reading<'_> {
        Reading(self)
    }

    /// Takes all pages.
    pub fn take(&self) -> Vec<usize> {
        if !self.are_some() {
            return Vec::new();
        }
        let mut pages = self.0.pages.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.are_some.store(false, Relaxed);
        mem::take(&mut *pages)
    }

    /// Whether there are some.
    pub fn are_some(&self) -> bool {
        self.0.are_some.load(Relaxed)
    }

    fn put(&self, pages: Vec<usize>) {
        let mut all = self.0.pages.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(pages);
        self.0.are_some.store(true, Relaxed);
    }
}

/// See the head of this file. The thread that follows the log has it.
pub(super) struct Scrub {
    doubts: Doubts,
    base: usize,
    /// Where the comparison goes on, and how many bytes were compared since anything ran.
    at: usize,
    covered: usize,
    /// Bytes that are left of the present part.
    left: usize,
    /// Pages that differ, and how often they were looked at.
    suspects: Vec<usize>,
    looks: u32,
    /// When something is to be done.
    next: Instant,
}

impl Scrub {
    /// Of a state that begins at an address, and stays mapped as far as its file is long while the value lives.
    pub fn new(base: usize, doubts: Doubts) -> Self {
        let (suspects, next) = (Vec::new(), Instant::now() + TURN);
        Self { doubts, base, at: 0, covered: 0, left: 0, suspects, looks: 0, next }
    }

    /// How long there is nothing to do, in milliseconds.
    pub fn idle_ms(&self) -> u32 {
        let ms = self.next.saturating_duration_since(Instant::now()).as_millis();
        if self.left > 0 { 0 } else { u32::try_from(ms).unwrap_or(u32::MAX).max(1) }
    }

    /// Whether there is something to do.
    pub fn is_due(&mut self) -> bool {
        if self.left > 0 {
            return true;
        }
        let now = Instant::now();
        if now < self.next {
            return false;
        }
        if !self.suspects.is_empty() {
            return true;
        }
        self.next = now + TURN;
        if self.doubts.0.has_run.swap(false, Relaxed) {
            self.covered = 0;
        }
        // The last pages are still waited for.
        self.left = if self.doubts.are_some() { 0 } else { PART_BYTES };
        self.left > 0
    }

    /// Does a part of it: half a millisecond's work, or as much as writes to the file take. What cannot be read is not compared.
    ///
    /// # Errors
    /// The disk's, of a write.
    pub fn step(&mut self, files: &Files, replica: &mut Replica<'_, Files>) -> Result<(), Failed> {
        let end = usize::try_from(replica.bytes()).unwrap_or(0);
        if self.left == 0 {
            return self.look_again(files, replica, end);
        }
        if self.covered >= end {
            self.left = 0;
            return Ok(());
        }
        if self.at >= end {
            self.at = 0;
        }
        let bytes = PIECE_BYTES.min(end - self.at).min(end - self.covered);
        let piece = self.at..self.at + bytes.next_multiple_of(PAGE_BYTES).min(end - self.at);
        (self.at, self.covered) = (piece.end, self.covered + bytes);
        self.left = self.left.saturating_sub(PIECE_BYTES);
        let suspects = &mut self.suspects;
        // SAFETY: the memory is mapped as far as the file is long.
        let _ = unsafe {
            differences::each(files, self.base as *const u8, piece, &mut |at, _| {
                let page = at / PAGE_BYTES * PAGE_BYTES;
                if suspects.last() != Some(&page) {
                    suspects.push(page);
                }
            })
        };
        if self.left == 0 && !self.suspects.is_empty() {
            (self.looks, self.next) = (0, Instant::now() + PAUSE);
        }
        Ok(())
    }

    /// Looks at pages again that have differed, in a file that has all records that were read.
    fn look_again(
        &mut self,
        files: &Files,
        replica: &mut Replica<'_, Files>,
        end: usize,
    ) -> Result<(), Failed> {
        replica.flush()?;
        let base = self.base as *const u8;
        self.suspects.retain(|page| {
            let mut differs = false;
            // SAFETY: as in `step`.
            let _ = unsafe {
                let pages = *page..(page + PAGE_BYTES).min(end);
                differences::each(files, base, pages, &mut |_, _| differs = true)
            };
            differs
        });
        self.looks += 1;
        let is_over = self.looks >= LOOKS;
        if is_over && !self.suspects.is_empty() && !self.doubts.are_some() {
            let rest = self.suspects.split_off(self.suspects.len().min(MOST_DOUBTS));
            self.doubts.put(mem::replace(&mut self.suspects, rest));
        }
        self.next = Instant::now() + if is_over { TURN } else { PAUSE };
        Ok(())
    }
}
