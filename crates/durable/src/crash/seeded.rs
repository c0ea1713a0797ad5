//! Lives that are drawn: batches of any shape, some of which make the state longer, logs that are replaced, a replica of any pace, endings and failures in between. Of each moment some images of both files are drawn, and of the recovery of some of
//! these again.
//!
//! 10,000 images in CI; `SPANDREL_SOAK` says how many hundreds else. A failure names the seed of its life: `SPANDREL_TEST_SEED=<seed>` lives that one again.

use std::cell::Cell;
use std::prelude::v1::*;
use std::{env, println, vec};

use spandrel_pmem::simulator::{Bounds, Drawn, Point as Moment, Unit};

use super::files::Files;
use super::{BASE_BYTES, Life, MOST_BYTES, TIE, fails_again, verified};
use crate::control::Control;

fn is_one_in(drawn: &mut Drawn, count: usize) -> bool {
    drawn.below(count) == 0
}

/// Runs of a batch that is shorter than a quarter of the ring, in a state of that length.
fn runs(drawn: &mut Drawn, bytes: usize) -> Vec<(usize, usize)> {
    let mut runs = vec![];
    for _ in 0..1 + drawn.below(5) {
        let len = if is_one_in(drawn, 4) { 1 + drawn.below(1200) } else { 1 + drawn.below(64) };
        // In front of the tie, or behind it.
        let is_behind = bytes > BASE_BYTES && is_one_in(drawn, 2);
        let (from, end) = if is_behind { (BASE_BYTES, bytes) } else { (0, TIE as usize) };
        let run = (from + drawn.below(end - from - len), len);
        // Runs of a record do not touch.
        if runs.iter().all(|(at, len)| run.0 + run.1 < *at || at + len < run.0) {
            runs.push(run);
        }
    }
    if runs.iter().map(|(_, len)| len).sum::<usize>() > 1500 { vec![runs[0]] } else { runs }
}

/// One life: the images that were looked at.
fn live(seed: u64) -> Result<u64, String> {
    let mut drawn = Drawn::new(seed);
    let unit = [Unit::Sector, Unit::TornSector, Unit::Line][drawn.below(3)];
    let (disk, mut epoch) = (Files::fresh(unit), 1000);
    let mut control = Control::default();
    let mut states: Vec<Vec<u8>> = vec![vec![0; BASE_BYTES]];
    let lives = 1 + drawn.below(3);
    for _ in 0..lives {
        epoch += 1;
        control.reopen();
        let pages = [0, 1, 2, 8][drawn.below(4)];
        let mut life = Life::open(&disk, &control, epoch, pages)?;
        if Some(&life.state) != states.last() {
            return Err("another state than that of the last batch".into());
        }
        let pace = drawn.below(4);
        for _ in 0..1 + drawn.below(6) {
            if !life.has_room() {
                life.follow(64, true);
            }
            if is_one_in(&mut drawn, 12) {
                epoch += 1;
                life.replace_log(epoch);
            }
            let (round, bytes) = (states.len(), life.state.len());
            if is_one_in(&mut drawn, 6) && bytes < MOST_BYTES {
                life.state.resize(bytes + 4096, 0);
            }
            let runs = runs(&mut drawn, life.state.len());
            for (at, len) in &runs {
                let byte = drawn.below(256) as u8;
                life.state[*at..at + len].fill(byte);
            }
            states.push(life.state.clone());
            life.commit(&runs, round as u64);
            let settles = is_one_in(&mut drawn, 4);
            life.follow(pace, settles);
            if is_one_in(&mut drawn, 8) {
                life.replica.flush().map_err(|why| format!("{why:?}"))?;
            }
        }
        // An ending in order; else a failure with all that was written.
        if is_one_in(&mut drawn, 3) {
            life.follow(64, true);
            life.replica.settle(true).map_err(|why| format!("{why:?}"))?;
        }
        drop(life);
        control = Control::default();
    }
    looked_at(&disk, seed, &states)
}

fn looked_at(disk: &Files, seed: u64, states: &[Vec<u8>]) -> Result<u64, String> {
    let (nested, mut number) = (Cell::new(0), seed);
    let check = |image: &[u8], moment: &Moment<'_>| {
        let least = moment.notes.last().map_or(0, |round| *round as usize);
        let (after, control) = (Files::left(disk.unit(), image), Control::default());
        let said = verified::sound(&after)?;
        let mut life = Life::open(&after, &control, 99, 1)?;
        if said != life.state {
            return Err("verification finds another state than recovery".into());
        }
        let found = states.iter().rposition(|state| *state == life.state);
        let found = found.ok_or("a state that never was")?;
        if found < least {
            return Err(format!("batch {found} after {least}"));
        }
        number += 1;
        if !number.is_multiple_of(8) {
            return Ok(());
        }
        let bounds = Bounds { drawn: 2, most: 4, seed, ..Bounds::default() };
        let images = fails_again(&after, &mut life, number.is_multiple_of(16), &bounds)?;
        nested.set(nested.get() + images as u64);
        Ok(())
    };
    let bounds = Bounds { drawn: 4, most: 8, seed, ..Bounds::default() };
    let outcome = disk.journal().images(&bounds, check).map_err(|found| found.to_string())?;
    Ok(outcome.images as u64 + nested.get())
}

#[test]
fn images_of_drawn_lives_recover() {
    let number = |name| env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    if let Some(seed) = number("SPANDREL_TEST_SEED") {
        let images = live(seed).unwrap_or_else(|why| std::panic!("seed {seed}: {why}"));
        return println!("seed {seed}: {images} images");
    }
    let wanted = number("SPANDREL_SOAK").unwrap_or(100) * 100;
    // Others each time; the same in CI, so that a change is what makes a difference.
    let first =
        if env::var_os("SPANDREL_SOAK").is_some() { spandrel_os::clock::nanos() } else { 1 };
    let (mut images, mut lives) = (0, 0);
    while images < wanted {
        let seed = first.wrapping_add(lives);
        images += live(seed)
            .unwrap_or_else(|why| std::panic!("{why}; SPANDREL_TEST_SEED={seed} shows it again"));
        lives += 1;
    }
    println!("{images} images of {lives} lives from seed {first} on");
    assert!(images >= wanted && lives >= 10);
}
