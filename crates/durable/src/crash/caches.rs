//! What a process reads may lie in a cache only, of the system or of the processor: a sync has failed, or a process was killed before it. The next process relies on it, and a power failure takes it from
//! there.

use std::prelude::v1::*;
use std::vec;

use spandrel_pmem::simulator::{Bounds, Point as Moment, Unit};

use super::files::Files;
use super::{Life, verified};
use crate::control::Control;

const UNITS: [Unit; 3] = [Unit::Sector, Unit::TornSector, Unit::Line];

/// Each image has one of these states, and not an earlier one than was acknowledged.
fn every_image_recovers(disk: &Files, states: &[Vec<u8>]) {
    let check = |image: &[u8], moment: &Moment<'_>| {
        let least = moment.notes.last().map_or(0, |round| *round as usize);
        let (after, control) = (Files::left(disk.unit(), image), Control::default());
        verified::sound(&after)?;
        let life = Life::open(&after, &control, 99, 1)?;
        match states.iter().rposition(|state| *state == life.state) {
            None => Err("a state that never was".into()),
            Some(found) if found < least => Err(format!("batch {found} after {least}")),
            Some(_) => Ok(()),
        }
    };
    let bounds = Bounds { drawn: 64, most: 1024, ..Bounds::default() };
    let outcome =
        disk.journal().images(&bounds, check).unwrap_or_else(|found| std::panic!("{found}"));
    assert!(outcome.images > 20, "{outcome:?}");
}

/// Three batches, of which the file has all.
fn begun<'a>(disk: &'a Files, control: &'a Control) -> (Life<'a>, Vec<Vec<u8>>) {
    let mut life = Life::open(disk, control, 1000, 0).unwrap();
    let mut states = vec![life.state.clone()];
    for round in 1..=3 {
        life.batch(round);
        states.push(life.state.clone());
    }
    life.follow(64, true);
    (life, states)
}

/// What the end of a process has written of a state, and the disk has refused to sync.
#[test]
fn a_tie_that_is_in_a_cache_only() {
    for (unit, forgets) in UNITS.into_iter().flat_map(|unit| [(unit, false), (unit, true)]) {
        let (disk, control) = (Files::fresh(unit), Control::default());
        let (mut life, mut states) = begun(&disk, &control);
        // The data, and then the tie.
        disk.fail_sync(1, forgets);
        life.replica.settle(true).unwrap_err();
        drop(life);
        let control = Control::default();
        let mut life = Life::open(&disk, &control, 1001, 0).unwrap();
        for round in 4..=5 {
            life.batch(round);
            states.push(life.state.clone());
        }
        every_image_recovers(&disk, &states);
    }
}

/// A record that a process was about to make durable.
#[test]
fn a_record_that_is_in_a_cache_only() {
    for (unit, forgets) in UNITS.into_iter().flat_map(|unit| [(unit, false), (unit, true)]) {
        let (disk, control) = (Files::fresh(unit), Control::default());
        let (mut life, mut states) = begun(&disk, &control);
        life.batch(4);
        states.push(life.state.clone());
        let runs = life.change(5);
        states.push(life.state.clone());
        disk.fail_sync(0, forgets);
        let (base, bytes) = (life.state.as_ptr(), runs.iter().map(|(_, len)| *len as u64).sum());
        let each = |see: &mut dyn FnMut(*const u8, usize)| {
            runs.iter().for_each(|(at, len)| see(base.wrapping_add(*at), *len));
        };
        let image = (base, life.state.len() as u64);
        // SAFETY: the runs lie in the state, which no thread stores to.
        unsafe { life.front.commit(image, (runs.len() as u64, bytes), each) }.unwrap_err();
        drop(life);
        let control = Control::default();
        let life = Life::open(&disk, &control, 1001, 0).unwrap();
        assert_eq!(Some(&life.state), states.last());
        every_image_recovers(&disk, &states);
    }
}
