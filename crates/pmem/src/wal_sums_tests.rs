//! The sums of an image's pages beside the protocol of its log: failures at every write, damage, disks that are full.

use spandrel_redolog::head;
use std::cell::Cell;
use std::prelude::v1::*;

use super::*;
use crate::compare::{Mismatch, Reader, Seen, compare};
use crate::simulator::{Bounds, Disk as Simulated, Outcome, Point as Moment, Unit};
use crate::sums::{self, Sum};
use crate::tie::{self, Found};

const PAGES: usize = 4;
const TIE: u64 = (PAGES * 4096) as u64;
const IMAGE_BYTES: usize = PAGES * 4096 + tie::BYTES;
const LOG_BYTES: usize = 96 << 10;
const SUMS_AT: usize = IMAGE_BYTES + LOG_BYTES;
const SUMS_BYTES: usize = 4096 + 512;
const IDENTITY: u64 = 77;
const BUFFER: usize = 8192;

fn disk_of(unit: Unit, all: &[u8]) -> Simulated {
    Simulated::with_sums(unit, IMAGE_BYTES, SUMS_AT, all)
}

/// An image of zeroes that is complete, an empty log, and sums.
fn fresh(unit: Unit) -> Simulated {
    let mut all = vec![0; SUMS_AT + SUMS_BYTES];
    all[TIE as usize..IMAGE_BYTES].copy_from_slice(&Ties::fresh(IDENTITY, 1, 0));
    let log = head(IDENTITY);
    all[IMAGE_BYTES..IMAGE_BYTES + log.len()].copy_from_slice(&log);
    let pages = IMAGE_BYTES as u64 / 4096;
    let lines = sums::fresh(IDENTITY, Point { epoch: 1, sequence: 0 }, pages);
    all[SUMS_AT..SUMS_AT + lines.len()].copy_from_slice(&lines);
    for page in 0..pages {
        let word = sums::sum(page, sums::hash_of_zeroes()).to_le_bytes();
        all[SUMS_AT + 4096 + page as usize * 8..][..8].copy_from_slice(&word);
    }
    disk_of(unit, &all)
}

fn open(disk: &impl Disk, epoch: u64) -> Result<Wal, Failed> {
    let Found::Ties(ties) = Ties::read(disk, TIE, IDENTITY)? else {
        return Err(Failed::DAMAGED_TIE);
    };
    let sums = Sums::read(disk, IDENTITY, (TIE, TIE))?;
    Wal::recover(disk, (IDENTITY, epoch), ties, sums, &mut [0; BUFFER], |_| Ok(()))
}

/// A checkpoint of pages that are full of `byte`.
fn checkpoint(wal: &mut Wal, disk: &impl Disk, pages: &[u64], byte: u8) -> Result<(), Failed> {
    let mut buffer = vec![0; BUFFER];
    let mut record = wal.record(disk, &mut buffer);
    record.set_image_bytes(IMAGE_BYTES as u64);
    pages.iter().try_for_each(|page| record.run(page * 4096, &[byte; 4096]))?;
    let written = wal.commit(record, disk)?;
    wal.apply(disk, written, &mut buffer)
}

/// What a comparison finds once the log has begun anew. `None`: the sums are not those of the image.
fn found(wal: &Wal, disk: &impl Disk) -> Option<Vec<(u64, Mismatch)>> {
    let sums = wal.sums().filter(|sums| sums.is_complete(wal.point()))?;
    let mut buffer = [0; BUFFER];
    let (mut reader, mut all) = (Reader::new(disk, &mut buffer), Vec::new());
    compare(disk, sums, &mut |page| reader.hash_of(page), &mut |page, seen, _| {
        if let Seen::Wrong(wrong) = seen {
            all.push((page, wrong));
        }
        Ok(())
    })
    .unwrap();
    Some(all)
}

fn is_sound(wal: &Wal, disk: &impl Disk) -> Result<(), String> {
    match found(wal, disk) {
        Some(wrong) if wrong.is_empty() => Ok(()),
        Some(wrong) => Err(format!("{wrong:?}")),
        None => Err("the sums are not those of the image".into()),
    }
}

fn rounds(disk: &Simulated) {
    let mut wal = open(disk, 1000).unwrap();
    for round in 1..=5u8 {
        let pages = [u64::from(round % 4), 3];
        checkpoint(&mut wal, disk, &pages[..1 + usize::from(round % 2)], round).unwrap();
        if round % 2 == 0 {
            wal.begin_anew(disk, &mut [0; BUFFER], 1000 + u64::from(round)).unwrap();
        }
        disk.note(round.into());
    }
}

fn sums_fit_after_every_failure(unit: Unit) {
    let disk = fresh(unit);
    rounds(&disk);
    let number = Cell::new(0);
    let check = |image: &[u8], _: &Moment<'_>| {
        let after = disk_of(unit, image);
        let mut wal = open(&after, 99).map_err(|why| format!("{why:?}"))?;
        is_sound(&wal, &after)?;
        number.set(number.get() + 1);
        if number.get() % 24 != 0 {
            return Ok(());
        }
        // Of some: a failure of the recovery, and of what comes after it.
        checkpoint(&mut wal, &after, &[1], 200).map_err(|why| format!("{why:?}"))?;
        wal.begin_anew(&after, &mut [0; BUFFER], 101).map_err(|why| format!("{why:?}"))?;
        is_sound(&wal, &after)?;
        let bounds = Bounds { drawn: 2, most: 64, ..Bounds::default() };
        let again = |image: &[u8], _: &Moment<'_>| {
            let after = disk_of(unit, image);
            let wal = open(&after, 102).map_err(|why| format!("{why:?}"))?;
            is_sound(&wal, &after)
        };
        after.journal().images(&bounds, again).map(drop).map_err(|found| found.to_string())
    };
    let bounds = Bounds { drawn: 64, most: 256, ..Bounds::default() };
    let outcome =
        disk.journal().images(&bounds, check).unwrap_or_else(|found| std::panic!("{found}"));
    assert!(matches!(outcome, Outcome { points: 8.., images: 400.., .. }), "{outcome:?}");
}

#[test]
fn sums_fit_after_every_failure_of_the_power() {
    sums_fit_after_every_failure(Unit::Sector);
}

#[test]
fn sums_fit_also_where_sectors_are_torn() {
    sums_fit_after_every_failure(Unit::TornSector);
}

/// The image of one moment with the sums of another: they fit, or they are not believed.
#[test]
fn sums_of_another_state_accuse_no_page() {
    let disk = fresh(Unit::Sector);
    let (mut moments, mut complete) = (Vec::new(), vec![disk.journal().last()]);
    let mut wal = open(&disk, 1000).unwrap();
    for round in 1..=6u8 {
        checkpoint(&mut wal, &disk, &[u64::from(round % 4), 3], round).unwrap();
        if round % 2 == 0 {
            wal.begin_anew(&disk, &mut [0; BUFFER], 1000 + u64::from(round)).unwrap();
            // Without its log: a backup of a file that was closed.
            let mut closed = disk.journal().last();
            closed[IMAGE_BYTES + 4096..SUMS_AT].fill(0);
            complete.push(closed);
        }
    }
    let seen = |image: &[u8], _: &Moment<'_>| {
        moments.push(image.to_vec());
        Ok(())
    };
    disk.journal().images(&Bounds { drawn: 1, ..Bounds::default() }, seen).unwrap();
    let moments: Vec<_> = moments.iter().step_by(moments.len().div_ceil(150)).collect();
    let (mut fit, mut not) = (0, 0);
    for image in complete.iter().chain(moments.iter().copied()) {
        for sums in complete.iter().chain(moments.iter().copied()) {
            let all = [&image[..SUMS_AT], &sums[SUMS_AT..]].concat();
            let after = disk_of(Unit::Sector, &all);
            let wal = open(&after, 900).unwrap();
            match found(&wal, &after) {
                Some(wrong) => {
                    assert_eq!(wrong, []);
                    fit += 1;
                }
                None => not += 1,
            }
        }
    }
    assert!(fit > 1000 && not > 1000, "{fit} {not}");
}

#[test]
fn every_bit_of_a_page_and_of_the_sums_is_found_as_what_it_is() {
    let disk = fresh(Unit::Sector);
    rounds(&disk);
    let mut wal = open(&disk, 2000).unwrap();
    wal.begin_anew(&disk, &mut [0; BUFFER], 2001).unwrap();
    let mut sound = disk.journal().last();
    // Without its records, from which recovery writes pages anew.
    sound[IMAGE_BYTES + 4096..SUMS_AT].fill(0);
    let after_flip = |bit: usize| {
        let mut all = sound.clone();
        all[bit / 8] ^= 1 << (bit % 8);
        let after = disk_of(Unit::Sector, &all);
        found(&open(&after, 3000).unwrap(), &after)
    };
    for bit in (0..PAGES * 4096 * 8).step_by(5) {
        assert_eq!(after_flip(bit), Some(vec![((bit / 32768) as u64, Mismatch::Page)]), "{bit}");
    }
    let (mut damaged, mut refused) = (0, 0);
    for bit in SUMS_AT * 8..(SUMS_AT + SUMS_BYTES) * 8 {
        match after_flip(bit) {
            None => refused += 1,
            Some(wrong) if wrong.is_empty() => {}
            Some(wrong) => {
                let page = (bit / 8 - SUMS_AT - 4096) as u64 / 8;
                assert_eq!(wrong, [(page, Mismatch::Sum)], "{bit}");
                damaged += 1;
            }
        }
    }
    // Each bit of the newest line, and of the sums of pages that have one.
    assert_eq!((damaged, refused), (PAGES * 64, 72 * 8));
}

/// A disk on which no sum can be written.
struct Full<'a> {
    disk: &'a Simulated,
    is_full: Cell<bool>,
}

impl Disk for Full<'_> {
    fn read(&self, which: Which, at: u64, into: &mut [u8]) -> Result<usize, Failed> {
        self.disk.read(which, at, into)
    }

    fn write(&self, which: Which, at: u64, bytes: &[u8]) -> Result<(), Failed> {
        // There is room for the line, and for no sums.
        if which == Which::Sums && self.is_full.get() && at >= sums::FIRST {
            return Err(Failed(libc::ENOSPC));
        }
        self.disk.write(which, at, bytes)
    }

    fn allow(&self, which: Which, end: u64) -> Result<(), Failed> {
        self.disk.allow(which, end)
    }

    fn sync(&self, which: Which) -> Result<(), Failed> {
        self.disk.sync(which)
    }

    fn bytes(&self, which: Which) -> Result<u64, Failed> {
        self.disk.bytes(which)
    }
}

#[test]
fn a_full_disk_costs_no_checkpoint_and_the_sums_only_until_there_is_room() {
    let inner = fresh(Unit::Sector);
    let disk = Full { disk: &inner, is_full: Cell::new(true) };
    let mut wal = open(&disk, 1000).unwrap();
    for round in 1..=2u8 {
        checkpoint(&mut wal, &disk, &[round.into()], round).unwrap();
        wal.begin_anew(&disk, &mut [0; BUFFER], 1000 + u64::from(round)).unwrap();
        assert_eq!(found(&wal, &disk), None);
    }
    // What is there now is not believed after a failure, and no page is accused.
    let copy = disk_of(Unit::Sector, &inner.journal().last());
    assert_eq!(found(&open(&copy, 50).unwrap(), &copy), None);
    disk.is_full.set(false);
    checkpoint(&mut wal, &disk, &[3], 3).unwrap();
    wal.begin_anew(&disk, &mut [0; BUFFER], 1003).unwrap();
    is_sound(&wal, &disk).unwrap();
    let copy = disk_of(Unit::Sector, &inner.journal().last());
    is_sound(&open(&copy, 50).unwrap(), &copy).unwrap();
}

#[test]
fn a_page_that_was_found_damaged_stays_so_until_it_is_what_it_was() {
    let disk = fresh(Unit::Sector);
    disk.write(Which::Image, 2 * 4096 + 7, &[1]).unwrap();
    let mut bytes = [0; 8];
    disk.read(Which::Sums, sums::FIRST + 16, &mut bytes).unwrap();
    let word = Sum::turned(u64::from_le_bytes(bytes));
    disk.write(Which::Sums, sums::FIRST + 16, &word.to_le_bytes()).unwrap();
    let mut wal = open(&disk, 1000).unwrap();
    assert_eq!(found(&wal, &disk), Some(vec![(2, Mismatch::Known)]));
    // The same bytes twice, too.
    for (round, byte) in [(1, 5), (2, 5), (3, 6), (4, 0)] {
        checkpoint(&mut wal, &disk, &[1, 2], byte).unwrap();
        wal.begin_anew(&disk, &mut [0; BUFFER], 1000 + round).unwrap();
        let expected = if byte == 0 { vec![] } else { vec![(2, Mismatch::Known)] };
        assert_eq!(found(&wal, &disk), Some(expected));
    }
}
