//! Every failure of a simulated medium leaves a state that recovery completes: the last batch that was acknowledged, or a later one, as a whole. Batches make the state longer, and the log
//! is replaced by a longer one, while failures are enumerated.
//!
//! The medium is a disk (sectors that are durable in any order, whole or torn) or persistent memory (lines of the cache, torn between any two words).

mod caches;
mod files;
mod seeded;
mod verified;

use std::cell::RefCell;
use std::prelude::v1::*;
use std::println;

use spandrel_pmem::disk::{Disk as _, LogOf, Which};
use spandrel_pmem::simulator::{Bounds, Outcome, Point as Moment, Unit};
use spandrel_pmem::tie;

use crate::control::Control;
use crate::exchange::exchange;
use crate::front::Front;
use crate::recovery::recover;
use crate::replica::Replica;
use crate::write_buffer::WriteBuffer;
use files::{Directory, Files};

const IDENTITY: u64 = 77;
/// Pages of a new state, in front of the tie.
const PAGES: usize = 3;
const TIE: u64 = (PAGES * 4096) as u64;
const BASE_BYTES: usize = PAGES * 4096 + tie::BYTES;
/// A state may become as long: two pages behind the tie.
const MOST_BYTES: usize = BASE_BYTES + 2 * 4096;
/// Numbers of epochs that logs are made with: others than those of lives.
const MISSING: u64 = 1 << 32;
const REPLACED: u64 = 2 << 32;

/// A state in memory, and what makes it durable.
struct Life<'a> {
    /// As long as the state; zero where the tie lies, which is the file's own.
    state: Vec<u8>,
    front: Front<'a, Files>,
    replica: Replica<'a, Files>,
    control: &'a Control,
    disk: &'a Files,
    /// What the replica gathers in.
    pages: usize,
    /// Batches are as short as they can be.
    is_small: bool,
}

impl<'a> Life<'a> {
    /// `pages`: what the replica gathers in; 0: it gathers nothing.
    fn open(
        disk: &'a Files,
        control: &'a Control,
        epoch: u64,
        pages: usize,
    ) -> Result<Self, String> {
        disk.make_missing_log(MISSING + epoch)?;
        let lengthen = |bytes| disk.lengthen(bytes);
        let recovered = recover(disk, (IDENTITY, TIE), &lengthen, &mut |_, _| ());
        let recovered = recovered.map_err(|why| format!("{why:?}"))?;
        let mut ring = recovered.ring;
        ring.begin(&LogOf(disk), epoch).unwrap();
        let mut state = vec![0; disk.bytes(Which::Image).unwrap() as usize];
        disk.read(Which::Image, 0, &mut state).unwrap();
        state[TIE as usize..BASE_BYTES].fill(0);
        let replica = Replica::gathering(disk, &ring, recovered.ties, gathered(pages)).unwrap();
        let front = Front::new(disk, control, ring).unwrap();
        Ok(Self { state, front, replica, control, disk, pages, is_small: false })
    }

    /// What batch `round` changes: pieces of all pages, of lengths that differ. Some make the state a page longer.
    fn change(&mut self, round: u8) -> Vec<(usize, usize)> {
        let number = usize::from(round);
        let mut runs = vec![(number * 96 % 4096, 32), (4096 + number * 32, 64)];
        if self.is_small {
            runs = vec![(number % 3 * 4096 + number * 8, 8)];
        } else if number % 3 == 0 {
            runs.push((8192 + number, 1500));
        }
        let grows = if self.is_small { number % 2 == 0 } else { number % 6 == 4 };
        let end = self.state.len();
        if grows && end < MOST_BYTES {
            self.state.resize(end + 4096, 0);
            if self.is_small {
                runs = vec![(end + 4088, 8)];
            } else {
                runs.extend([(end + number * 7, 300), (end + 4080, 16)]);
            }
        }
        for (at, len) in &runs {
            self.state[*at..at + len].fill(round);
        }
        runs
    }

    fn batch(&mut self, round: u8) {
        let runs = self.change(round);
        self.commit(&runs, round.into());
    }

    /// What lies in these runs becomes durable, as the batch of that number.
    fn commit(&mut self, runs: &[(usize, usize)], number: u64) {
        let bytes = runs.iter().map(|(_, len)| *len as u64).sum();
        let base = self.state.as_ptr();
        let size = (runs.len() as u64, bytes);
        let each = |see: &mut dyn FnMut(*const u8, usize)| {
            runs.iter().for_each(|(at, len)| see(base.wrapping_add(*at), *len));
        };
        let image = (base, self.state.len() as u64);
        // SAFETY: the runs lie in the state, which no thread stores to.
        unsafe { self.front.commit(image, size, each) }.unwrap();
        self.disk.note(number);
    }

    /// The replica brings up to that number of records into the file.
    fn follow(&mut self, most: usize, settles: bool) {
        let disk = self.disk;
        for _ in 0..most {
            if self.replica.at() < self.control.tail() {
                self.replica.step(&|bytes| disk.lengthen(bytes), None).unwrap();
            }
        }
        if settles {
            let settled = self.replica.settle(false).unwrap();
            self.control.release(settled, settled);
        }
    }

    /// The replica ends, the log is replaced, and another replica begins: as for a command that is longer than the log.
    fn replace_log(&mut self, epoch: u64) {
        self.follow(64, true);
        self.replica.settle(true).unwrap();
        let disk = self.disk;
        let lengthen = |bytes| disk.lengthen(bytes);
        let recovered = recover(disk, (IDENTITY, TIE), &lengthen, &mut |_, _| ()).unwrap();
        let mut names = Directory { files: disk, epoch: REPLACED + epoch };
        let mut ring = exchange(&mut names, recovered.ring.last()).unwrap().unwrap();
        ring.begin(&LogOf(disk), epoch).unwrap();
        let gathered = gathered(self.pages);
        self.replica = Replica::gathering(disk, &ring, recovered.ties, gathered).unwrap();
        self.front = Front::new(disk, self.control, ring).unwrap();
    }

    /// Whether the ring has room for another batch.
    fn has_room(&self) -> bool {
        self.front.ring().has_room(2560, self.control.free())
    }
}

fn gathered(pages: usize) -> Option<WriteBuffer> {
    (pages > 0).then(|| WriteBuffer::new(pages).unwrap())
}

/// The state after each batch.
fn states(rounds: u8, is_small: bool) -> Vec<Vec<u8>> {
    let (disk, control) = (Files::fresh(Unit::Sector), Control::default());
    let mut life = Life::open(&disk, &control, 3, 0).unwrap();
    life.is_small = is_small;
    let mut states = vec![life.state.clone()];
    for round in 1..=rounds {
        life.change(round);
        states.push(life.state.clone());
    }
    assert_eq!(states.last().map(Vec::len), Some(MOST_BYTES), "no batch has made it longer");
    states
}

/// Failures during a recovery, which has made `life` of a medium, and of a batch and the replica after it: the number of images.
fn fails_again(
    disk: &Files,
    life: &mut Life<'_>,
    settles: bool,
    bounds: &Bounds,
) -> Result<usize, String> {
    let before = life.state.clone();
    // One that makes the state longer, if there is room.
    life.batch(202);
    life.follow(1, settles);
    let check = |image: &[u8], moment: &Moment<'_>| {
        let (after, control) = (Files::left(disk.unit(), image), Control::default());
        verified::sound(&after)?;
        let again = Life::open(&after, &control, 100, 1)?;
        let is_next = again.state == life.state;
        let is_before = moment.notes.is_empty() && again.state == before;
        if is_next || is_before { Ok(()) } else { Err("recovery that was cut off".into()) }
    };
    let outcome = disk.journal().images(bounds, check).map_err(|found| found.to_string())?;
    Ok(outcome.images)
}

/// How a story goes.
#[derive(Clone, Copy)]
struct Plot {
    unit: Unit,
    rounds: u8,
    is_small: bool,
    /// How far the replica is behind; what it gathers in.
    pace: usize,
    pages: usize,
    /// The round that the log is replaced after.
    replaces: u8,
    /// One image in this number has failures of its recovery as well.
    again: usize,
}

fn every_failure_is_survived(plot: Plot, bounds: &Bounds) -> Outcome {
    let Plot { unit, rounds, is_small, pace, pages, replaces, again } = plot;
    let states = states(rounds, is_small);
    let (disk, control) = (Files::fresh(unit), Control::default());
    let mut life = Life::open(&disk, &control, 1000, pages).unwrap();
    life.is_small = is_small;
    for round in 1..=rounds {
        if !life.has_room() {
            life.follow(64, true);
        }
        life.batch(round);
        life.follow(pace, usize::from(round) % (pace + 2) == 0);
        if round == replaces {
            life.replace_log(1001);
        }
    }
    let seen = RefCell::new(vec![0; states.len()]);
    let mut number = 0;
    let check = |image: &[u8], moment: &Moment<'_>| {
        let least = moment.notes.last().map_or(0, |round| *round as usize);
        let (after, control) = (Files::left(unit, image), Control::default());
        let said = verified::sound(&after)?;
        let mut life = Life::open(&after, &control, 99, 2)?;
        if said != life.state {
            return Err("verification finds another state than recovery".into());
        }
        let found = states.iter().position(|state| *state == life.state);
        let found = found.ok_or("a state that never was")?;
        seen.borrow_mut()[found] += 1;
        if found < least {
            return Err(format!("batch {found} after {least}"));
        }
        // And a failure during recovery and of a batch after it: of some, as there are many.
        number += 1;
        if number % again != 0 {
            return Ok(());
        }
        let bounds = Bounds { drawn: 4, most: 16, ..Bounds::default() };
        fails_again(&after, &mut life, true, &bounds).map(drop)
    };
    let outcome =
        disk.journal().images(bounds, check).unwrap_or_else(|found| std::panic!("{found}"));
    assert!(seen.borrow().iter().all(|seen| *seen > 0), "{:?}", seen.borrow());
    outcome
}

/// Twelve batches of any length, with a replica of several paces.
fn batches_of_any_length(unit: Unit, paces: &[(usize, usize)], seed: u64) {
    for (pace, pages) in paces.iter().copied() {
        let plot = Plot { unit, rounds: 12, is_small: false, pace, pages, replaces: 6, again: 32 };
        let bounds = Bounds { drawn: 48, most: 1024, seed, ..Bounds::default() };
        let outcome = every_failure_is_survived(plot, &bounds);
        println!("{unit:?} {pace} {pages}: {outcome:?}");
        assert!(matches!(outcome, Outcome { points: 12.., images: 100.., .. }), "{outcome:?}");
    }
}

#[test]
fn every_failure_leaves_the_last_batch_or_the_next() {
    let paces = [(0, 0), (1, 0), (2, 0), (3, 0), (1, 1), (2, 1), (3, 8)];
    batches_of_any_length(Unit::Sector, &paces, 1);
}

#[test]
fn also_where_sectors_are_torn() {
    batches_of_any_length(Unit::TornSector, &[(0, 0), (1, 0), (3, 0), (2, 1), (3, 8)], 2);
}

/// Persistent memory has no sectors: lines of the cache are durable one by one, and a line that is stored to may be there up to any word.
#[test]
fn also_where_lines_of_the_cache_are_durable() {
    batches_of_any_length(Unit::Line, &[(0, 0), (1, 0), (3, 0), (2, 1), (3, 8)], 3);
}

/// Four batches, of which two make the state longer, and another log in between: every image of every moment.
#[test]
fn each_image_of_short_batches_of_growth_and_of_another_log_recovers() {
    for unit in [Unit::Sector, Unit::TornSector, Unit::Line] {
        for (pace, pages) in [(0, 0), (1, 0), (1, 1)] {
            let plot =
                Plot { unit, rounds: 4, is_small: true, pace, pages, replaces: 3, again: 256 };
            let bounds = Bounds { lines: 32, ..Bounds::default() };
            let outcome = every_failure_is_survived(plot, &bounds);
            println!("{unit:?} {pace} {pages}: {outcome:?}");
            assert_eq!(outcome.exhaustive, outcome.points, "{outcome:?}");
            assert!(matches!(outcome, Outcome { points: 12.., images: 40.., .. }), "{outcome:?}");
        }
    }
}
