//! The protocol under every failure of the power, with logs of other states, and with damaged bits.

use super::*;
use crate::simulator::{Bounds, Disk as Simulated, Outcome, Point, Unit};
use crate::tie::{self, Found};
use spandrel_redolog::head;
use std::cell::RefCell;
use std::prelude::v1::*;
use std::{assert, assert_eq, assert_ne, format, matches, panic, vec};

const PAGES: usize = 4;
const TIE: u64 = (PAGES * 4096) as u64;
const IMAGE_BYTES: usize = PAGES * 4096 + tie::BYTES;
const LOG_BYTES: usize = 128 << 10;
const IDENTITY: u64 = 77;

/// An image as it is open: its bytes, and the log.
struct Store {
    wal: Wal,
    image: Vec<u8>,
    /// Records of some rounds are longer than it, and some are not.
    buffer: Vec<u8>,
}

/// An image of zeroes that says that it is complete, with an empty log.
fn fresh(unit: Unit) -> Simulated {
    let mut both = vec![0; IMAGE_BYTES + LOG_BYTES];
    both[TIE as usize..IMAGE_BYTES].copy_from_slice(&Ties::fresh(IDENTITY, 1, 0));
    let head = head(IDENTITY);
    both[IMAGE_BYTES..IMAGE_BYTES + head.len()].copy_from_slice(&head);
    Simulated::from_image(unit, IMAGE_BYTES, &both)
}

impl Store {
    fn open(disk: &Simulated, epoch: u64) -> Result<Self, Failed> {
        let mut buffer = vec![0; 8192];
        let Found::Ties(ties) = Ties::read(disk, TIE, IDENTITY)? else {
            return Err(Failed::DAMAGED_TIE);
        };
        let wal = Wal::recover(disk, (IDENTITY, epoch), ties, None, &mut buffer, |_| Ok(()))?;
        let mut image = vec![0; PAGES * 4096];
        disk.read(Which::Image, 0, &mut image)?;
        Ok(Self { wal, image, buffer })
    }

    /// Every page that `round` changes, of which it is then full.
    fn change(&mut self, round: u8) -> Vec<u64> {
        // A record that is longer than the one in its place before begins to overwrite the one behind it.
        let pages: Vec<u64> = if round == 1 { vec![0] } else { (0..4).collect() };
        for page in &pages {
            self.image[*page as usize * 4096..][..4096].fill(round);
        }
        pages
    }

    fn checkpoint(&mut self, disk: &Simulated, pages: &[u64]) -> Result<(), Failed> {
        let Self { wal, image, buffer } = self;
        let page = |at: u64| &image[at as usize * 4096..][..4096];
        let mut record = wal.record(disk, buffer);
        record.set_image_bytes(IMAGE_BYTES as u64);
        pages.iter().try_for_each(|at| record.run(at * 4096, page(*at)))?;
        let written = wal.commit(record, disk)?;
        assert_eq!(written.is_kept, pages.len() == 1);
        wal.apply(disk, written, buffer)
    }

    fn round(&mut self, disk: &Simulated, round: u8) -> Result<(), Failed> {
        let pages = self.change(round);
        self.checkpoint(disk, &pages)?;
        disk.note(round.into());
        Ok(())
    }
}

/// The image after each round: what recovery may find.
fn states(rounds: u8) -> Vec<Vec<u8>> {
    let mut store = Store::open(&fresh(Unit::Sector), 1).unwrap();
    let mut states = vec![store.image.clone()];
    for round in 1..=rounds {
        store.change(round);
        states.push(store.image.clone());
    }
    states
}

fn every_failure_is_survived(unit: Unit) {
    const ROUNDS: u8 = 6;
    let states = states(ROUNDS);
    let disk = fresh(unit);
    let mut store = Store::open(&disk, 1000).unwrap();
    for round in 1..=ROUNDS {
        store.round(&disk, round).unwrap();
        if round % 3 == 0 {
            store.wal.begin_anew(&disk, &mut [0; 1024], 1000 + u64::from(round)).unwrap();
        }
    }
    let seen = RefCell::new(vec![0; states.len()]);
    let mut number = 0;
    let log = image_of(&fresh(unit));
    let check = |image: &[u8], point: &Point<'_>| {
        let least = point.notes.last().map_or(0, |round| *round as usize);
        let after = Simulated::from_image(unit, IMAGE_BYTES, image);
        let store = Store::open(&after, 99).map_err(|why| format!("{why:?}"))?;
        let found = states.iter().position(|state| *state == store.image);
        let found = found.ok_or("a state that never was")?;
        seen.borrow_mut()[found] += 1;
        if found < least {
            return Err(format!("round {found} after {least}"));
        }
        // Without its log it is a state of before, or it is refused.
        if let Ok(alone) = Store::open(&mixed(image, &log), 99)
            && !states.contains(&alone.image)
        {
            return Err("half a record without its log".into());
        }
        // And a failure while it recovers, and of what comes after it: of some, as there are many.
        number += 1;
        if number % 16 != 0 {
            return Ok(());
        }
        let mut store = store;
        store.round(&after, 77).map_err(|why| format!("{why:?}"))?;
        let bounds = Bounds { drawn: 2, most: 64, ..Bounds::default() };
        let again = |image: &[u8], point: &Point<'_>| {
            let after = Simulated::from_image(unit, IMAGE_BYTES, image);
            let again = Store::open(&after, 100).map_err(|why| format!("{why:?}"))?;
            let is_next = again.image == store.image;
            if is_next || point.notes.is_empty() && again.image == states[found] {
                Ok(())
            } else {
                Err("recovery that was cut off".into())
            }
        };
        after.journal().images(&bounds, again).map(|_| ()).map_err(|found| found.to_string())
    };
    let bounds = Bounds { drawn: 64, ..Bounds::default() };
    let outcome =
        disk.journal().images(&bounds, check).unwrap_or_else(|found| std::panic!("{found}"));
    assert!(matches!(outcome, Outcome { points: 8.., images: 400.., .. }), "{outcome:?}");
    assert!(seen.borrow().iter().all(|seen| *seen > 0), "{seen:?}");
}

#[test]
fn every_failure_leaves_the_last_checkpoint_or_the_next() {
    every_failure_is_survived(Unit::Sector);
}

#[test]
fn also_where_sectors_are_torn() {
    every_failure_is_survived(Unit::TornSector);
}

/// A disk had no room for the first line of an epoch, and has some when the log begins anew.
#[test]
fn pages_that_are_written_late_are_announced_as_well() {
    let (disk, log) = (fresh(Unit::Sector), image_of(&fresh(Unit::Sector)));
    let mut store = Store::open(&disk, 1000).unwrap();
    let before = store.image.clone();
    let pages = store.change(2);
    let Store { wal, image, buffer } = &mut store;
    let mut record = wal.record(&disk, buffer);
    record.set_image_bytes(IMAGE_BYTES as u64);
    let page = |at: u64| &image[at as usize * 4096..][..4096];
    pages.iter().try_for_each(|at| record.run(at * 4096, page(*at))).unwrap();
    wal.commit(record, &disk).unwrap();
    wal.fall_behind();
    wal.begin_anew(&disk, &mut [0; 1024], 1001).unwrap();
    let check = |found: &[u8], _: &Point<'_>| match Store::open(&mixed(found, &log), 99) {
        Ok(alone) if alone.image != before && alone.image != *image => {
            Err("half a record without its log".into())
        }
        _ => Ok(()),
    };
    let bounds = Bounds { most: 256, ..Bounds::default() };
    disk.journal().images(&bounds, check).unwrap_or_else(|found| std::panic!("{found}"));
}

/// A sync fails, and the next process goes on from what it reads, which may be in a cache only: a power failure after that takes it from there.
fn what_a_cache_has_is_written_again(unit: Unit, after: usize, forgets: bool) {
    let disk = fresh(unit);
    let mut store = Store::open(&disk, 1000).unwrap();
    let mut states = vec![store.image.clone()];
    for round in 1..=3 {
        store.round(&disk, round).unwrap();
        states.push(store.image.clone());
    }
    disk.fail_sync(after, forgets);
    let mut round = 4;
    while store.round(&disk, round).is_ok() {
        states.push(store.image.clone());
        if store.wal.begin_anew(&disk, &mut [0; 1024], 1000 + u64::from(round)).is_err() {
            break;
        }
        round += 1;
    }
    // The round that has failed may be there.
    states.push(store.image.clone());
    let mut store = Store::open(&disk, 2000).unwrap();
    assert!(states.contains(&store.image));
    for round in [50, 51] {
        let pages = store.change(round);
        store.checkpoint(&disk, &pages).unwrap();
        states.push(store.image.clone());
        disk.note(states.len() as u64 - 1);
    }
    let check = |image: &[u8], point: &Point<'_>| {
        let least = point.notes.last().map_or(0, |round| *round as usize);
        let after = Simulated::from_image(unit, IMAGE_BYTES, image);
        let store = Store::open(&after, 99).map_err(|why| format!("{why:?}"))?;
        match states.iter().rposition(|state| *state == store.image) {
            None => Err("a state that never was".into()),
            Some(found) if found < least => Err(format!("round {found} after {least}")),
            Some(_) => Ok(()),
        }
    };
    let bounds = Bounds { drawn: 32, most: 256, ..Bounds::default() };
    let outcome = disk.journal().images(&bounds, check);
    outcome.unwrap_or_else(|found| std::panic!("sync {after}, {forgets}: {found}"));
}

#[test]
fn recovery_relies_on_nothing_that_a_cache_may_lose() {
    for unit in [Unit::Sector, Unit::TornSector] {
        for after in 0..6 {
            for forgets in [false, true] {
                what_a_cache_has_is_written_again(unit, after, forgets);
            }
        }
    }
}

fn image_of(disk: &Simulated) -> Vec<u8> {
    disk.journal().last()
}

/// The image of one disk with the log of another.
fn mixed(image: &[u8], log: &[u8]) -> Simulated {
    let both = [&image[..IMAGE_BYTES], &log[IMAGE_BYTES..]].concat();
    Simulated::from_image(Unit::Sector, IMAGE_BYTES, &both)
}

/// Images and logs of one life are put together in every way: what comes of it is a state of that life, at least as new as the image and as
/// the log say that they are, or a refusal.
#[test]
fn a_log_is_applied_to_the_state_that_it_continues_and_to_no_other() {
    let disk = fresh(Unit::Sector);
    let states = states(6);
    // Each moment: the oldest state that may be found then, whether the image was complete, and the image.
    let mut moments = vec![(0usize, true, image_of(&disk))];
    let mut store = Store::open(&disk, 500).unwrap();
    for round in 1..=6u8 {
        store.round(&disk, round).unwrap();
        moments.push((round.into(), false, image_of(&disk)));
        if round % 2 == 0 {
            store.wal.begin_anew(&disk, &mut [0; 1024], 500 + u64::from(round)).unwrap();
            moments.push((round.into(), true, image_of(&disk)));
        }
    }
    let mut applied = 0;
    for (number, (round, is_complete, image)) in moments.iter().enumerate() {
        for (other, (log_round, _, log)) in moments.iter().enumerate() {
            let Ok(store) = Store::open(&mixed(image, log), 900) else {
                assert_ne!(number, other);
                continue;
            };
            let found = states.iter().position(|state| *state == store.image);
            let found = found.unwrap_or_else(|| panic!("{number} with {other}: a mixture"));
            assert!(found >= *round, "{number} with {other}: {found} after {round}");
            let is_one = found == *round && *is_complete || found == *log_round || number == other;
            assert!(is_one, "{number} with {other}: {found}");
            applied += 1;
        }
    }
    assert!(applied > moments.len(), "{applied}");
}

#[test]
fn an_image_that_went_on_elsewhere_refuses_the_log_that_it_left() {
    let disk = fresh(Unit::Sector);
    Store::open(&disk, 500).unwrap().round(&disk, 2).unwrap();
    let left = image_of(&disk);
    // Without its log it is refused, whatever it holds.
    let empty = image_of(&fresh(Unit::Sector));
    let alone = Store::open(&mixed(&left, &empty), 600);
    // The simulated log has a fixed length, so that there is something in it.
    assert_eq!(alone.err(), Some(Failed::DAMAGED_LOG));
    // With its log it goes on, is closed, and comes back to a log of before.
    let away = mixed(&left, &left);
    let mut store = Store::open(&away, 600).unwrap();
    store.round(&away, 3).unwrap();
    store.wal.begin_anew(&away, &mut [0; 1024], 700).unwrap();
    let home = Store::open(&mixed(&image_of(&away), &left), 800);
    assert_eq!(home.err(), Some(Failed::STALE_LOG));
}

#[test]
fn no_bit_of_a_log_is_lost_in_silence() {
    let disk = fresh(Unit::Sector);
    let mut store = Store::open(&disk, 500).unwrap();
    for round in 1..=3 {
        store.round(&disk, round).unwrap();
    }
    let (sound, states) = (image_of(&disk), states(3));
    let newest = store.wal.ties.newest();
    let log = Log::open(&LogOf(&disk), IDENTITY, newest.point, &mut [0; 1024]).unwrap();
    let used = IMAGE_BYTES + 4096 + log.bytes() as usize;
    // All of the headers, and some of the rest.
    let bytes = (IMAGE_BYTES..used).filter(|at| at % 4096 < 200 || at % 97 == 0);
    for (number, byte) in bytes.enumerate() {
        let mut damaged = sound.clone();
        damaged[byte] ^= 1 << (number % 8);
        let after = Simulated::from_image(Unit::Sector, IMAGE_BYTES, &damaged);
        match Store::open(&after, 900) {
            Ok(store) => assert!(store.image == states[3], "byte {byte}"),
            Err(why) => assert!(why.is_of_log(), "byte {byte}: {why:?}"),
        }
    }
}

/// The image on the disk is still that with which the log began: its line that says more was never waited for.
#[test]
fn no_bit_of_a_first_record_is_lost_in_silence_if_there_is_a_second() {
    let disk = fresh(Unit::Sector);
    let image = image_of(&disk);
    let mut store = Store::open(&disk, 500).unwrap();
    (1..=3).for_each(|round| store.round(&disk, round).unwrap());
    let (log, states) = (image_of(&disk), states(3));
    assert!(Store::open(&mixed(&image, &log), 900).unwrap().image == states[3]);
    let first = IMAGE_BYTES + 4096;
    for byte in (first..first + 200).chain((first + 200..first + 8000).step_by(97)) {
        let mut damaged = log.clone();
        damaged[byte] ^= 1 << (byte % 8);
        match Store::open(&mixed(&image, &damaged), 900) {
            Ok(store) => assert!(store.image == states[3], "byte {byte}"),
            Err(why) => assert_eq!(why, Failed::DAMAGED_LOG, "byte {byte}"),
        }
    }
}

#[test]
fn a_log_of_another_image_is_refused() {
    let disk = fresh(Unit::Sector);
    Store::open(&disk, 500).unwrap().round(&disk, 2).unwrap();
    let (mut buffer, tie) = ([0; 1024], Ties::new(TIE, IDENTITY, 1).newest());
    assert_eq!(
        Log::open(&LogOf(&disk), 78, tie.point, &mut buffer).err(),
        Some(Failed::FOREIGN_LOG)
    );
    for foreign in [&b"a text of another program"[..], b"SPANHEAP", &[0; 100]] {
        let mut both = image_of(&disk);
        both[IMAGE_BYTES..IMAGE_BYTES + foreign.len()].copy_from_slice(foreign);
        let after = Simulated::from_image(Unit::Sector, IMAGE_BYTES, &both);
        let opened = Log::open(&LogOf(&after), IDENTITY, tie.point, &mut buffer);
        assert_eq!(opened.err(), Some(Failed::NOT_A_LOG));
    }
}
