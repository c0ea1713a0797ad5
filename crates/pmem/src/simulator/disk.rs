//! A disk with an image, its log and its sums that writes down what is done to it.

use std::prelude::v1::*;
use std::sync::{Mutex, PoisonError};

use super::journal::{Journal, Unit};
use crate::disk::Which;
use crate::medium::Failed;

/// Files of fixed room on one disk: the image, behind it the log, and behind that the sums.
pub struct Disk {
    image_bytes: usize,
    /// Where the log ends.
    log_end: usize,
    state: Mutex<State>,
}

struct State {
    now: Vec<u8>,
    journal: Journal,
    /// Sectors of each file that were written since it was synced.
    unsynced: [Vec<(usize, usize)>; 3],
    /// Syncs that are done before one fails; `None`: none fails.
    syncs_left: Option<usize>,
    /// What is not synced then is taken for written, as by systems after an error. Else it is written with the next sync, as after a kill.
    forgets: bool,
}

impl Disk {
    /// Files of zeroes, all of it durable. `unit` is [`Unit::Sector`] or [`Unit::TornSector`].
    ///
    /// # Panics
    /// The image does not end with a sector.
    pub fn new(unit: Unit, image_bytes: usize, log_bytes: usize) -> Self {
        Self::from_image(unit, image_bytes, &vec![0; image_bytes + log_bytes])
    }

    /// Both files as a power failure has left them, the image first.
    ///
    /// # Panics
    /// The image does not end with a sector.
    pub fn from_image(unit: Unit, image_bytes: usize, both: &[u8]) -> Self {
        Self::with_sums(unit, image_bytes, both.len(), both)
    }

    /// As [`Disk::from_image`], with sums behind the log, which ends at `log_end`.
    ///
    /// # Panics
    /// The image or the log does not end with a sector.
    pub fn with_sums(unit: Unit, image_bytes: usize, log_end: usize, all: &[u8]) -> Self {
        assert!(image_bytes.is_multiple_of(unit.bytes()) && image_bytes <= log_end);
        assert!(log_end == all.len() || log_end.is_multiple_of(unit.bytes()));
        let journal = Journal::new(unit, all.to_vec());
        let unsynced = [const { Vec::new() }; 3];
        let now = all.to_vec();
        let state = State { now, journal, unsynced, syncs_left: None, forgets: false };
        Self { image_bytes, log_end, state: Mutex::new(state) }
    }

    /// All that was done so far.
    pub fn journal(&self) -> Journal {
        self.with(|state| state.journal.clone())
    }

    /// The sync behind that number of others fails, and no later one. What it was to write is read from here on, and a failure may take it.
    pub fn fail_sync(&self, after: usize, forgets: bool) {
        self.with(|state| (state.syncs_left, state.forgets) = (Some(after), forgets));
    }

    /// Notes how far the workload is; see [`Journal::note`].
    pub fn note(&self, number: u64) {
        self.with(|state| state.journal.note(number));
    }

    fn with<R>(&self, work: impl FnOnce(&mut State) -> R) -> R {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Where a file begins and ends.
    fn place(&self, which: Which, state: &State) -> (usize, usize) {
        match which {
            Which::Image => (0, self.image_bytes),
            Which::Log => (self.image_bytes, self.log_end),
            Which::Sums => (self.log_end, state.now.len()),
        }
    }
}

impl crate::disk::Disk for Disk {
    fn read(&self, which: Which, at: u64, into: &mut [u8]) -> Result<usize, Failed> {
        self.with(|state| {
            let (start, end) = self.place(which, state);
            let from = usize::try_from(at).map_or(end, |at| start.saturating_add(at).min(end));
            let count = into.len().min(end - from);
            into[..count].copy_from_slice(&state.now[from..from + count]);
            Ok(count)
        })
    }

    fn write(&self, which: Which, at: u64, bytes: &[u8]) -> Result<(), Failed> {
        self.with(|state| {
            let (start, end) = self.place(which, state);
            let from = usize::try_from(at).ok().and_then(|at| start.checked_add(at));
            let from = from.filter(|from| from.saturating_add(bytes.len()) <= end);
            let from = from.ok_or(Failed(libc::ENOSPC))?;
            state.now[from..from + bytes.len()].copy_from_slice(bytes);
            state.journal.store(from, bytes);
            state.unsynced[which as usize].push((from, bytes.len()));
            Ok(())
        })
    }

    fn bytes(&self, which: Which) -> Result<u64, Failed> {
        self.with(|state| {
            let (start, end) = self.place(which, state);
            Ok((end - start) as u64)
        })
    }

    fn allow(&self, _: Which, _: u64) -> Result<(), Failed> {
        Ok(())
    }

    fn sync(&self, which: Which) -> Result<(), Failed> {
        self.with(|state| {
            state.syncs_left = match state.syncs_left {
                Some(0) => {
                    state.syncs_left = None;
                    if state.forgets {
                        state.unsynced[which as usize].clear();
                    }
                    return Err(Failed(libc::EIO));
                }
                left => left.map(|left| left - 1),
            };
            for (at, len) in state.unsynced[which as usize].drain(..) {
                state.journal.write_back(at, len);
            }
            state.journal.fence();
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Disk as _;
    use crate::simulator::{Bounds, Point};

    #[test]
    fn a_sync_is_of_one_file() {
        let disk = Disk::new(Unit::Sector, 1024, 1024);
        disk.write(Which::Image, 0, &[1; 512]).unwrap();
        disk.write(Which::Log, 512, &[2; 512]).unwrap();
        disk.sync(Which::Log).unwrap();
        disk.note(1);
        let mut seen = Vec::new();
        let see = |image: &[u8], point: &Point<'_>| {
            seen.push((image[0], image[1536], point.notes.len()));
            Ok(())
        };
        disk.journal().images(&Bounds::default(), see).unwrap();
        seen.sort_unstable();
        assert_eq!(seen, [(0, 0, 0), (0, 2, 0), (0, 2, 1), (1, 0, 0), (1, 2, 0), (1, 2, 1)]);
        assert_eq!(disk.write(Which::Image, 1000, &[0; 100]), Err(Failed(libc::ENOSPC)));
        let mut bytes = [0; 600];
        assert_eq!(disk.read(Which::Log, 512, &mut bytes), Ok(512));
    }
}
