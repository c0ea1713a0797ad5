//! Whether all that a batch has changed was noted: the blocks that differ from a copy of the state are compared with what was noted.
//!
//! For tests and for trust in a program's first hours: a batch costs as much as where pages are compared, and the state takes its memory twice.

use spandrel_os::message::say;
use spandrel_pmem::Failed;

use crate::runs::Runs;
use crate::shadow::Pages;

/// What was found so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Verdict {
    /// Bytes that batches have changed, in whole blocks.
    pub changed: u64,
    /// Those of them that were not noted.
    pub missed: u64,
    /// Those of these in batches whose commands have begun, woken or awaited other threads.
    pub met: u64,
}

/// Bytes that were changed and not noted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Place {
    /// Their address.
    pub at: usize,
    /// Their number; 0: there is no such place.
    pub bytes: usize,
}

/// Places that are remembered.
pub const MOST_PLACES: usize = 32;

/// See the head of this file.
pub struct Oracle {
    pages: Pages,
    noted: Runs,
    changed: Runs,
    missed: Runs,
    verdict: Verdict,
    places: [Place; MOST_PLACES],
    /// The batch's commands have met other threads.
    has_met: bool,
}

impl Oracle {
    /// Of a state that is not read yet.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(block_bytes: usize) -> Result<Self, Failed> {
        let (noted, changed, missed) = (Runs::new()?, Runs::new()?, Runs::new()?);
        let (pages, verdict) = (Pages::new(block_bytes), Verdict::default());
        let (places, has_met) = ([Place::default(); MOST_PLACES], false);
        Ok(Self { pages, noted, changed, missed, verdict, places, has_met })
    }

    /// What compares.
    pub fn pages(&mut self) -> &mut Pages {
        &mut self.pages
    }

    /// A command is about to begin, to wake or to await another thread.
    pub fn meet(&mut self) {
        self.has_met = true;
    }

    /// The first places that were missed.
    pub fn places(&self) -> [Place; MOST_PLACES] {
        self.places
    }

    /// A batch is about to name its runs.
    pub fn begin(&mut self) {
        self.noted.clear();
    }

    /// A run was noted. They come in order of address.
    pub fn note(&mut self, at: *const u8, len: usize) {
        self.noted.push(at, len);
    }

    /// All runs were noted: compares them with what has changed, and calls `see` with what was not noted.
    pub fn judge(&mut self, see: &mut dyn FnMut(*const u8, usize)) {
        self.take_changed();
        self.missed.clear();
        let (noted, missed, verdict) = (self.noted.all(), &mut self.missed, &mut self.verdict);
        self.changed.each(&mut |at, len| {
            let (mut from, end) = (at as usize, at as usize + len);
            verdict.changed += len as u64;
            while from < end {
                // The last run that begins at or before it; where it ends, or where the next one begins.
                let next = noted.partition_point(|run| run.0 <= from);
                let covered = next.checked_sub(1).and_then(|last| noted.get(last));
                let covered = covered.map_or(from, |run| run.0 + run.1).max(from);
                if covered > from {
                    from = covered;
                } else {
                    let to = noted.get(next).map_or(end, |run| run.0).min(end);
                    verdict.missed += (to - from) as u64;
                    missed.push(from as *const u8, to - from);
                    from = to;
                }
            }
        });
        let has_met = core::mem::take(&mut self.has_met);
        self.missed.each(&mut |at, bytes| {
            if has_met {
                self.verdict.met += bytes as u64;
                return;
            }
            let at = at as usize;
            // A place that is missed again is the same one.
            let place = self.places.iter_mut().find(|place| place.at == at || place.bytes == 0);
            if let Some(place) = place {
                *place = Place { at, bytes: place.bytes.max(bytes) };
            }
        });
        if let Some((at, _)) = self.missed.all().first().filter(|_| !has_met) {
            say(format_args!(
                "a command of a durable state has changed {at:#x}, and that was not noted: it is durable all the same. What other threads and handlers of signals store is stored by commands of their own, or the stores are found by pages"
            ));
        }
        self.missed.each(see);
        self.accept();
    }

    /// Memory is what it is to be: a batch was undone.
    pub fn restart(&mut self) {
        self.take_changed();
        self.accept();
    }

    fn take_changed(&mut self) {
        self.changed.clear();
        let changed = &mut self.changed;
        self.pages.end(&mut |at, len| changed.push(at, len));
    }

    fn accept(&mut self) {
        let pages = &mut self.pages;
        // SAFETY: runs of the state.
        self.changed.each(&mut |at, len| unsafe {
            pages.keep(at, len);
        });
    }

    /// What was found so far.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spandrel_os::vm;

    const BYTES: usize = 1 << 16;

    #[test]
    fn what_is_not_noted_is_missed() {
        let at = vm::reserve_small(BYTES).unwrap().as_ptr();
        // SAFETY: reserved by the call above; this thread alone uses it.
        unsafe {
            assert!(vm::open(at, BYTES));
            let mut oracle = Oracle::new(32).unwrap();
            oracle.pages().watch(at, BYTES, BYTES).unwrap();
            let mut batch = |stored: &[usize], noted: &[(usize, usize)]| {
                stored.iter().for_each(|offset| *at.add(*offset) += 1);
                let before = oracle.verdict();
                oracle.begin();
                noted.iter().for_each(|(offset, len)| oracle.note(at.add(*offset), *len));
                let mut told = 0;
                oracle.judge(&mut |_, len| told += len as u64);
                let now = oracle.verdict();
                assert_eq!(told, now.missed - before.missed);
                (now.changed - before.changed, told)
            };
            assert_eq!(batch(&[0, 40, 5000], &[(0, 64), (4992, 32)]), (96, 0));
            assert_eq!(batch(&[0, 40, 5000], &[(0, 64)]), (96, 32));
            assert_eq!(batch(&[0, 40, 5000], &[(32, 64), (5024, 32)]), (96, 64));
            assert_eq!(batch(&[31, 32, 63, 64], &[(32, 32)]), (96, 64));
            // What was noted and has not changed is no fault.
            assert_eq!(batch(&[], &[(0, BYTES)]), (0, 0));
            let bytes = |place: &Place| place.bytes;
            assert_eq!(oracle.places().iter().map(bytes).sum::<usize>(), 3 * 32);
            assert_eq!(oracle.verdict().met, 0);
            vm::release(at, BYTES);
        }
    }
}
