//! The undo log (section 8): several words change together, or not at all, of core metadata or of objects.
//!
//! An entry is a line: where, what was there, and the log's version, which is stored last. A line is durable from its first
//! store on, so that an entry with the version is whole. The version is one word; raising it makes all entries void.
//!
//! What one word says ([`crate::header`]) needs no log.

use spandrel_pmem::Medium;

use crate::error::Error;
use crate::superblock::UNDO_LOG;

/// Entries of the log. The paper needs 20.
pub const ENTRIES: usize = 63;
const ENTRY_BYTES: usize = 64;
const LOG: core::ops::Range<usize> = UNDO_LOG..UNDO_LOG + (ENTRIES + 1) * ENTRY_BYTES;

fn word(medium: &impl Medium, at: usize) -> u64 {
    // SAFETY: in the superblock, which every heap has; who changes it has `&mut` or the heap's lock.
    unsafe { medium.base().as_ptr().add(at).cast::<u64>().read_volatile() }
}

fn entry(number: usize) -> usize {
    UNDO_LOG + (number + 1) * ENTRY_BYTES
}

/// Changes several words, all or none of which are durable (`start_nvm_atomic` to `end_nvm_atomic`). Nobody else changes words of that heap so meanwhile.
///
/// Where the paper waits for each entry before it stores the word, all entries are written here before one fence: three
/// fences for any number of words.
///
/// # Panics
/// There are more than [`ENTRIES`]: a mistake in this crate.
pub fn change(medium: &impl Medium, words: &[(usize, u64)]) {
    assert!(words.len() <= ENTRIES, "an undo log holds {ENTRIES} entries");
    let version = word(medium, UNDO_LOG);
    for (number, (at, _)) in words.iter().enumerate() {
        let entry = entry(number);
        // SAFETY: in the superblock, and nobody else's meanwhile.
        unsafe {
            medium.store_word(entry, *at as u64);
            medium.store_word(entry + 8, word(medium, *at));
            // Not 0, which a fresh log is full of.
            medium.store_word(entry + 16, version.wrapping_add(1));
        }
        medium.write_back(entry, 24);
    }
    medium.fence();
    for (at, new) in words {
        // SAFETY: the callers have them to change.
        unsafe { medium.store_word(*at, *new) };
        medium.write_back(*at, 8);
    }
    medium.fence();
    end(medium, version);
}

fn end(medium: &impl Medium, version: u64) {
    // SAFETY: as in `Change::store`.
    unsafe { medium.store_word(UNDO_LOG, version.wrapping_add(1)) };
    medium.write_back(UNDO_LOG, 8);
    medium.fence();
}

/// The entries of a change that was begun and not ended, the last first; `Err`: one names what is no word of the heap.
///
/// Of entries that were not waited for any may be missing; then no word was stored yet.
fn open_entries(medium: &impl Medium) -> impl Iterator<Item = Result<(usize, u64), Error>> {
    let version = word(medium, UNDO_LOG);
    let is_open =
        move |number: &usize| word(medium, entry(*number) + 16) == version.wrapping_add(1);
    (0..ENTRIES).rev().filter(is_open).map(|number| {
        let at = word(medium, entry(number)) as usize;
        let is_word = at.is_multiple_of(8) && at >= crate::superblock::ROOTS && !LOG.contains(&at);
        if !is_word || at > medium.bytes() - 8 {
            return Err(Error::Damaged {
                at: entry(number) as u64,
                what: "an entry of the undo log",
            });
        }
        Ok((at, word(medium, entry(number) + 8)))
    })
}

/// Whether a change was begun and not ended.
///
/// # Errors
/// As for [`replay`].
pub fn is_open(medium: &impl Medium) -> Result<bool, Error> {
    open_entries(medium).try_fold(false, |_, entry| entry.map(|_| true))
}

/// Undoes what was begun and not ended (section 11.4, step 1). May be cut off and begun again. Whether there was anything.
///
/// # Errors
/// An entry names what is no word of the heap: the log is damaged. Nothing has changed then.
pub fn replay(medium: &impl Medium) -> Result<bool, Error> {
    if !is_open(medium)? {
        return Ok(false);
    }
    for (at, before) in open_entries(medium).map_while(Result::ok) {
        // SAFETY: a word of the heap, and nobody else has it yet.
        unsafe { medium.store_word(at, before) };
        medium.write_back(at, 8);
    }
    medium.fence();
    end(medium, word(medium, UNDO_LOG));
    Ok(true)
}

/// Empties a log that is damaged: no entry is of this version or of a later one.
pub fn wipe(medium: &impl Medium) {
    for number in 0..ENTRIES {
        // SAFETY: of the log, and nobody else has it.
        unsafe { medium.store_word(entry(number) + 16, 0) };
    }
    // SAFETY: as above.
    unsafe { medium.store_word(UNDO_LOG, 0) };
    medium.write_back(UNDO_LOG, LOG.len());
    medium.fence();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::LEAST_BYTES;
    use crate::superblock::ROOTS;
    use spandrel_pmem::simulator::{Bounds, Memory, Outcome, Point};
    use std::prelude::v1::*;

    #[test]
    fn every_failure_leaves_all_words_or_none() {
        let memory = Memory::new(LEAST_BYTES);
        // Words of three lines, two of them of one.
        let places = [ROOTS, ROOTS + 8, ROOTS + 640, ROOTS + 2048];
        for round in 1..=3u64 {
            change(&memory, &places.map(|at| (at, round)));
            memory.note(round);
        }
        let words = |memory: &Memory| places.map(|at| word(memory, at));
        let check = |image: &[u8], point: &Point<'_>| {
            let after = Memory::from_image(image);
            replay(&after).map_err(|why| format!("{why}"))?;
            let found = words(&after);
            let least = point.notes.last().copied().unwrap_or(0);
            if found.iter().any(|word| *word != found[0])
                || found[0] < least
                || found[0] > least + 1
            {
                return Err(format!("{found:?} after {least}"));
            }
            // And a failure while it is undone.
            let again = |image: &[u8], _: &Point<'_>| {
                let after = Memory::from_image(image);
                replay(&after).map_err(|why| format!("{why}"))?;
                if words(&after) == found { Ok(()) } else { Err("undone in part".into()) }
            };
            let bounds = Bounds { most: 64, drawn: 4, ..Bounds::default() };
            after.journal().images(&bounds, again).map(|_| ()).map_err(|found| found.to_string())
        };
        let outcome = memory.journal().images(&Bounds::default(), check);
        let outcome = outcome.unwrap_or_else(|found| std::panic!("{found}"));
        assert!(matches!(outcome, Outcome { points: 9.., .. }), "{outcome:?}");
        assert_eq!(outcome.points, outcome.exhaustive);
    }

    #[test]
    fn a_damaged_log_is_an_error() {
        let memory = Memory::new(LEAST_BYTES);
        // SAFETY: the test's own.
        unsafe {
            memory.store_word(entry(0), u64::MAX - 7);
            memory.store_word(entry(0) + 16, 1);
        }
        assert!(matches!(replay(&memory), Err(Error::Damaged { .. })));
    }
}
