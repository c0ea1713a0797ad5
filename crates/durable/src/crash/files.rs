//! The files of a state on a simulated medium: the state, whose length is durable when it was synced; two places for logs; and the name that leads to one of them.
//!
//! What a failure may leave of any of them is enumerated together:
//! - The state has its length by a word of its own. What a file lost of its length is lost, and zero when the file becomes longer again.
//! - The directory is a word: which of the logs has the name, or that none has.
//! - A file without a name is gone.

use std::prelude::v1::*;
use std::sync::{Mutex, PoisonError};
use std::vec;

use spandrel_pmem::Failed;
use spandrel_pmem::disk::{Disk, LogOf, Which};
use spandrel_pmem::simulator::{Journal, SECTOR_BYTES, Unit};
use spandrel_pmem::tie::{Found, Ties};
use spandrel_redolog::{Point, Ring, Shape};

use super::{BASE_BYTES, IDENTITY, MOST_BYTES, TIE};
use crate::error::Error;
use crate::exchange::Names;

/// What is synced by itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    State,
    Directory,
    Log(usize),
}

/// Where the parts lie: the state and its length, the directory, the logs.
const LENGTH: usize = MOST_BYTES;
const NAME: usize = LENGTH + SECTOR_BYTES;
const LOGS: [usize; 2] = [NAME + SECTOR_BYTES, NAME + SECTOR_BYTES + LOG_ROOM];
const LOG_ROOM: usize = 4096 + CAPACITIES[1];
const ALL: usize = LOGS[1] + LOG_ROOM;
/// Bytes for records in each of the places: the second log is the longer one.
const CAPACITIES: [usize; 2] = [8192, 12288];

/// See the head of this file.
pub(super) struct Files {
    unit: Unit,
    /// Bytes that records of a log begin at multiples of.
    align: u64,
    inner: Mutex<Inner>,
}

struct Inner {
    now: Vec<u8>,
    journal: Journal,
    /// What was stored to each part since it was synced.
    unsynced: Vec<(Part, usize, usize)>,
    /// The log that the process has open, whatever its name is.
    open: usize,
    /// Syncs that are done before one fails; `None`: none fails.
    syncs_left: Option<usize>,
    /// What is not synced then is taken for written, as by systems after an error. Else it is written with the next sync, as after a kill.
    forgets: bool,
}

impl Inner {
    fn word(&self, at: usize) -> usize {
        u64::from_le_bytes(self.now[at..at + 8].try_into().unwrap()) as usize
    }

    fn store(&mut self, part: Part, at: usize, bytes: &[u8]) {
        self.now[at..at + bytes.len()].copy_from_slice(bytes);
        self.journal.store(at, bytes);
        self.unsynced.push((part, at, bytes.len()));
    }

    fn sync(&mut self, part: Part) {
        let journal = &mut self.journal;
        self.unsynced.retain(|(of, at, len)| {
            if *of == part {
                journal.write_back(*at, *len);
            }
            *of != part
        });
        journal.fence();
    }
}

impl Files {
    /// A new state and its log, all of it durable.
    pub fn fresh(unit: Unit) -> Self {
        let mut all = vec![0; ALL];
        all[LENGTH..LENGTH + 8].copy_from_slice(&(BASE_BYTES as u64).to_le_bytes());
        all[NAME..NAME + 8].copy_from_slice(&1u64.to_le_bytes());
        let ties = Ties::fresh(IDENTITY, 1, BASE_BYTES as u64);
        all[TIE as usize..TIE as usize + ties.len()].copy_from_slice(&ties);
        let files = Self::left(unit, &all);
        files.make_log(0, (Point { epoch: 1, sequence: 0 }, 2));
        Self::left(unit, &files.journal().last())
    }

    /// What a failure has left.
    pub fn left(unit: Unit, all: &[u8]) -> Self {
        // On a disk records begin at sectors, on persistent memory at lines.
        let align = unit.bytes() as u64;
        let mut inner = Inner {
            now: all.to_vec(),
            journal: Journal::new(unit, vec![]),
            unsynced: vec![],
            open: 0,
            syncs_left: None,
            forgets: false,
        };
        let (length, name) = (inner.word(LENGTH), inner.word(NAME));
        inner.now[length..MOST_BYTES].fill(0);
        for (number, at) in LOGS.into_iter().enumerate() {
            if name != number + 1 {
                inner.now[at..at + LOG_ROOM].fill(0);
            }
        }
        inner.open = name.saturating_sub(1);
        inner.journal = Journal::new(unit, inner.now.clone());
        Self { unit, align, inner: Mutex::new(inner) }
    }

    fn with<R>(&self, work: impl FnOnce(&mut Inner) -> R) -> R {
        work(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// All that was done so far.
    pub fn journal(&self) -> Journal {
        self.with(|inner| inner.journal.clone())
    }

    /// The sync behind that number of others fails, and no later one. What it was to write is read from here on, and a failure may take it.
    pub fn fail_sync(&self, after: usize, forgets: bool) {
        self.with(|inner| (inner.syncs_left, inner.forgets) = (Some(after), forgets));
    }

    /// Notes how far the workload is.
    pub fn note(&self, number: u64) {
        self.with(|inner| inner.journal.note(number));
    }

    /// Makes the state's file longer. The length is durable when the file was synced.
    pub fn lengthen(&self, bytes: u64) -> Result<(), Failed> {
        if bytes > MOST_BYTES as u64 {
            return Err(Failed(libc::ENOSPC));
        }
        self.with(|inner| {
            if bytes as usize > inner.word(LENGTH) {
                inner.store(Part::State, LENGTH, &bytes.to_le_bytes());
            }
        });
        Ok(())
    }

    /// Makes a log in that place, durably. It has no name.
    fn make_log(&self, place: usize, (base, epoch): (Point, u64)) -> Ring {
        self.with(|inner| inner.open = place);
        let shape = Shape { capacity: CAPACITIES[place] as u64, align: self.align };
        Ring::create(&LogOf(self), IDENTITY, shape, (base, epoch)).unwrap()
    }

    /// Whether a log has the name.
    pub fn has_log(&self) -> bool {
        self.with(|inner| inner.word(NAME)) != 0
    }

    /// As an opening does it: a state that needs no log, and has none, gets one. `epoch` is a number that no log of the state has had.
    pub fn make_missing_log(&self, epoch: u64) -> Result<(), String> {
        if self.with(|inner| inner.word(NAME)) != 0 {
            return Ok(());
        }
        let Ok(Found::Ties(ties)) = Ties::read(self, TIE, IDENTITY) else {
            return Err("a state without a tie".into());
        };
        if !ties.newest().is_complete {
            return Err("a state that needs its log, which is missing".into());
        }
        self.make_log(0, (ties.newest().point, epoch));
        self.name(1);
        Ok(())
    }

    fn name(&self, number: u64) {
        self.with(|inner| {
            inner.store(Part::Directory, NAME, &number.to_le_bytes());
            inner.sync(Part::Directory);
        });
    }

    /// A file that a name may lead to, and where its part of the medium is.
    fn place(inner: &Inner, which: Which) -> (Part, usize, usize) {
        match which {
            Which::Image => (Part::State, 0, inner.word(LENGTH)),
            _ => {
                let (at, bytes) = (LOGS[inner.open], 4096 + CAPACITIES[inner.open]);
                (Part::Log(inner.open), at, at + bytes)
            }
        }
    }
}

impl Disk for Files {
    fn read(&self, which: Which, at: u64, into: &mut [u8]) -> Result<usize, Failed> {
        self.with(|inner| {
            let (_, start, end) = Self::place(inner, which);
            let from = (start + at as usize).min(end);
            let count = into.len().min(end - from);
            into[..count].copy_from_slice(&inner.now[from..from + count]);
            Ok(count)
        })
    }

    /// Not beyond the end: what makes a file longer says so before.
    fn write(&self, which: Which, at: u64, bytes: &[u8]) -> Result<(), Failed> {
        self.with(|inner| {
            let (part, start, end) = Self::place(inner, which);
            let from = start + at as usize;
            if from + bytes.len() > end {
                return Err(Failed(libc::ENOSPC));
            }
            inner.store(part, from, bytes);
            Ok(())
        })
    }

    fn allow(&self, _: Which, _: u64) -> Result<(), Failed> {
        Ok(())
    }

    fn sync(&self, which: Which) -> Result<(), Failed> {
        self.with(|inner| {
            let (part, ..) = Self::place(inner, which);
            inner.syncs_left = match inner.syncs_left {
                Some(0) => {
                    inner.syncs_left = None;
                    let forgets = inner.forgets;
                    inner.unsynced.retain(|(of, ..)| !forgets || *of != part);
                    return Err(Failed(libc::EIO));
                }
                left => left.map(|left| left - 1),
            };
            inner.sync(part);
            Ok(())
        })
    }

    fn bytes(&self, which: Which) -> Result<u64, Failed> {
        self.with(|inner| {
            let (_, start, end) = Self::place(inner, which);
            Ok((end - start) as u64)
        })
    }
}

/// The names of the files, for another log in the place of the one before. `epoch` is a number that no log of the state has had.
pub(super) struct Directory<'a> {
    pub files: &'a Files,
    pub epoch: u64,
}

impl Names for Directory<'_> {
    fn begin(&mut self, base: Point) -> Result<Ring, Error> {
        let other = 1 - self.files.with(|inner| inner.open);
        // A place that had another log is a file of zeroes.
        self.files.with(|inner| {
            let blank = inner.now[LOGS[other]..][..LOG_ROOM].iter().all(|byte| *byte == 0);
            if !blank {
                inner.store(Part::Log(other), LOGS[other], &[0; LOG_ROOM]);
            }
        });
        Ok(self.files.make_log(other, (base, self.epoch)))
    }

    fn sync(&mut self) -> Result<(), Error> {
        self.files.with(|inner| inner.sync(Part::Directory));
        Ok(())
    }

    fn remove(&mut self) -> Result<(), Error> {
        self.files.with(|inner| inner.store(Part::Directory, NAME, &[0; 8]));
        Ok(())
    }

    fn is_there(&mut self) -> Result<bool, Error> {
        Ok(self.files.with(|inner| inner.word(NAME)) != 0)
    }

    fn publish(&mut self) -> Result<(), Error> {
        if self.is_there()? {
            return Err(Error::System(libc::EEXIST));
        }
        self.files.name(self.files.with(|inner| inner.open) as u64 + 1);
        Ok(())
    }
}
