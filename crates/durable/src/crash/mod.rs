//! Every failure of a simulated disk leaves a state that recovery completes: the last batch that was acknowledged, or a later one, as a whole.

mod seeded;
mod verified;

use std::cell::RefCell;
use std::prelude::v1::*;

use spandrel_pmem::disk::{Disk as _, LogOf, Which};
use spandrel_pmem::simulator::{Bounds, Disk, Outcome, Point as Moment, Unit};
use spandrel_pmem::tie::{self, Ties};
use spandrel_redolog::{Point, Ring, Shape};

use crate::control::Control;
use crate::front::Front;
use crate::recovery::recover;
use crate::replica::Replica;
use crate::write_buffer::WriteBuffer;

const IDENTITY: u64 = 77;
const PAGES: usize = 3;
const TIE: u64 = (PAGES * 4096) as u64;
const IMAGE_BYTES: usize = PAGES * 4096 + tie::BYTES;
const SHAPE: Shape = Shape { capacity: 8192, align: 512 };
const LOG_BYTES: usize = 4096 + 8192;

/// A state in memory, and what makes it durable.
struct Life<'a> {
    state: Vec<u8>,
    front: Front<'a, Disk>,
    replica: Replica<'a, Disk>,
    control: &'a Control,
    disk: &'a Disk,
}

fn fresh(unit: Unit) -> Disk {
    let mut both = vec![0; IMAGE_BYTES + LOG_BYTES];
    both[TIE as usize..IMAGE_BYTES].copy_from_slice(&Ties::fresh(IDENTITY, 1));
    let disk = Disk::from_image(unit, IMAGE_BYTES, &both);
    Ring::create(&LogOf(&disk), IDENTITY, SHAPE, (Point { epoch: 1, sequence: 0 }, 2)).unwrap();
    Disk::from_image(unit, IMAGE_BYTES, &disk.journal().last())
}

impl<'a> Life<'a> {
    /// `pages`: what the replica gathers in; 0: it gathers nothing.
    fn open(
        disk: &'a Disk,
        control: &'a Control,
        epoch: u64,
        pages: usize,
    ) -> Result<Self, String> {
        let recovered = recover(disk, (IDENTITY, TIE), &|_| Ok(()), &mut |_, _| ());
        let recovered = recovered.map_err(|why| format!("{why:?}"))?;
        let mut ring = recovered.ring;
        ring.begin(&LogOf(disk), epoch).unwrap();
        let mut state = vec![0; PAGES * 4096];
        disk.read(Which::Image, 0, &mut state).unwrap();
        let gathered = (pages > 0).then(|| WriteBuffer::new(pages).unwrap());
        let replica = Replica::gathering(disk, &ring, recovered.ties, gathered).unwrap();
        let front = Front::new(disk, control, ring).unwrap();
        Ok(Self { state, front, replica, control, disk })
    }

    /// What batch `round` changes: pieces of all pages, of lengths that differ.
    fn change(&mut self, round: u8) -> Vec<(usize, usize)> {
        let number = usize::from(round);
        let mut runs = vec![(number * 96 % 4096, 32), (4096 + number * 32, 64)];
        if number % 3 == 0 {
            runs.push((8192 + number, 1500));
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
        // SAFETY: the runs lie in the state, which no thread stores to.
        unsafe { self.front.commit((base, IMAGE_BYTES as u64), size, each) }.unwrap();
        self.disk.note(number);
    }

    /// The replica brings up to that number of records into the file.
    fn follow(&mut self, most: usize, settles: bool) {
        for _ in 0..most {
            if self.replica.at() < self.control.tail() {
                self.replica.step(&|_| Ok(()), None).unwrap();
            }
        }
        if settles {
            self.control.release(self.replica.settle(false).unwrap());
        }
    }

    /// Whether the ring has room for another batch.
    fn has_room(&self) -> bool {
        self.front.ring().has_room(2560, self.control.head())
    }
}

/// The state after each batch.
fn states(rounds: u8) -> Vec<Vec<u8>> {
    let (disk, control) = (fresh(Unit::Sector), Control::default());
    let mut life = Life::open(&disk, &control, 3, 0).unwrap();
    let mut states = vec![life.state.clone()];
    for round in 1..=rounds {
        life.change(round);
        states.push(life.state.clone());
    }
    states
}

/// Failures during a recovery, which has made `life` of a disk, and of a batch and the replica after it: the number of images.
fn fails_again(
    (disk, unit): (&Disk, Unit),
    life: &mut Life<'_>,
    settles: bool,
    bounds: &Bounds,
) -> Result<usize, String> {
    let before = life.state.clone();
    life.batch(200);
    life.follow(1, settles);
    let check = |image: &[u8], moment: &Moment<'_>| {
        let (after, control) = (Disk::from_image(unit, IMAGE_BYTES, image), Control::default());
        verified::sound(&after)?;
        let again = Life::open(&after, &control, 100, 1)?;
        let is_next = again.state == life.state;
        let is_before = moment.notes.is_empty() && again.state == before;
        if is_next || is_before { Ok(()) } else { Err("recovery that was cut off".into()) }
    };
    let outcome = disk.journal().images(bounds, check).map_err(|found| found.to_string())?;
    Ok(outcome.images)
}

/// `pace`: how far the replica is behind; `pages`: what it gathers in.
fn every_failure_is_survived(unit: Unit, (pace, pages): (usize, usize), seed: u64) {
    const ROUNDS: u8 = 12;
    let states = states(ROUNDS);
    let (disk, control) = (fresh(unit), Control::default());
    let mut life = Life::open(&disk, &control, 1000, pages).unwrap();
    for round in 1..=ROUNDS {
        if !life.has_room() {
            life.follow(64, true);
        }
        life.batch(round);
        life.follow(pace, usize::from(round) % (pace + 2) == 0);
    }
    let seen = RefCell::new(vec![0; states.len()]);
    let mut number = 0;
    let check = |image: &[u8], moment: &Moment<'_>| {
        let least = moment.notes.last().map_or(0, |round| *round as usize);
        let (after, control) = (Disk::from_image(unit, IMAGE_BYTES, image), Control::default());
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
        if number % 32 != 0 {
            return Ok(());
        }
        let bounds = Bounds { drawn: 4, most: 16, ..Bounds::default() };
        fails_again((&after, unit), &mut life, true, &bounds).map(drop)
    };
    let bounds = Bounds { drawn: 48, most: 1024, seed, ..Bounds::default() };
    let outcome =
        disk.journal().images(&bounds, check).unwrap_or_else(|found| std::panic!("{found}"));
    assert!(matches!(outcome, Outcome { points: 12.., images: 100.., .. }), "{outcome:?}");
    assert!(seen.borrow().iter().all(|seen| *seen > 0), "{:?}", seen.borrow());
}

#[test]
fn every_failure_leaves_the_last_batch_or_the_next() {
    for (pace, pages) in [(0, 0), (1, 0), (2, 0), (3, 0), (1, 1), (2, 1), (3, 8)] {
        every_failure_is_survived(Unit::Sector, (pace, pages), 1);
    }
}

#[test]
fn also_where_sectors_are_torn() {
    for (pace, pages) in [(0, 0), (1, 0), (3, 0), (2, 1), (3, 8)] {
        every_failure_is_survived(Unit::TornSector, (pace, pages), 2);
    }
}
