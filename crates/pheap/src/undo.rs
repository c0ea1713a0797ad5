//! The undo log (section 8). With it, several words of metadata or of objects change together, or none of them does.
//!
//! An entry is a line with four words: the offset, the old word, a check of both, and the log's version. A line becomes durable in the order of
//! its stores, so an entry that has the version is whole. The version of the log is one word. A change ends when the version is raised: all
//! entries are void then.
//!
//! Stale entries are never undone: the version and each entry have a check, and opening a heap that was closed wipes a log with an entry above
//! the version ([`forget`]).
//!
//! A header is one word ([`crate::header`]), and needs no log.

use spandrel_pmem::Medium;

use crate::error::Error;
use crate::header::check;
use crate::layout::BlockId;
use crate::sums::mix;
use crate::superblock::UNDO_LOG;

/// Entries of the log. The paper needs 20.
pub const ENTRIES: usize = 63;
const ENTRY_BYTES: usize = 64;
const LOG: core::ops::Range<usize> = UNDO_LOG..UNDO_LOG + (ENTRIES + 1) * ENTRY_BYTES;
/// Words of an entry: where, what was there, the check, the version.
const BEFORE_AT: usize = 8;
const CHECK_AT: usize = 16;
const VERSION_AT: usize = 24;
/// Where format version 1 has the log's version in an entry, which has no check.
const OLD_VERSION_AT: usize = 16;

/// How a log is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Of this version.
    Checked,
    /// Of version 1, without checks.
    Old,
}

fn word(medium: &impl Medium, at: usize) -> u64 {
    // SAFETY: in the superblock, which every heap has; the thread that changes it has `&mut` or the heap's lock.
    unsafe { medium.base().as_ptr().add(at).cast::<u64>().read_volatile() }
}

fn entry(number: usize) -> usize {
    UNDO_LOG + (number + 1) * ENTRY_BYTES
}

/// A version as a word: with a check in its upper 16 bits; 0 for 0, as a fresh log has it.
fn sealed(version: u64) -> u64 {
    let low = version & ((1 << 48) - 1);
    if low == 0 { 0 } else { low | check(low, BlockId(u32::MAX)) << 48 }
}

/// Whether a word is a version with its check.
pub fn is_version(word: u64) -> bool {
    word == sealed(word & ((1 << 48) - 1))
}

/// The log's version.
fn version(medium: &impl Medium, format: Format) -> Result<u64, Error> {
    let word = word(medium, UNDO_LOG);
    match format {
        Format::Old => Ok(word),
        Format::Checked if is_version(word) => Ok(word & ((1 << 48) - 1)),
        Format::Checked => {
            Err(Error::Damaged { at: UNDO_LOG as u64, what: "the version of the undo log" })
        }
    }
}

/// The check of an entry.
fn check_of(at: u64, before: u64, version: u64) -> u64 {
    mix(0, at) ^ mix(8, before) ^ mix(16, version) ^ mix(24, !0)
}

/// Changes several words, all or none of which are durable (`start_nvm_atomic` to `end_nvm_atomic`). No other thread changes words of that heap so
/// meanwhile.
///
/// Where the paper waits for each entry before it stores the word, all entries are written here before one fence: three
/// fences for any number of words.
///
/// # Panics
/// There are more than [`ENTRIES`]: a mistake in this crate.
pub fn change(medium: &impl Medium, words: &[(usize, u64)]) {
    assert!(words.len() <= ENTRIES, "an undo log holds {ENTRIES} entries");
    if medium.is_atomic() {
        // SAFETY: the callers have them to change.
        words.iter().for_each(|(at, new)| unsafe { medium.store_word(*at, *new) });
        return;
    }
    // The version was found whole when the heap was opened.
    let version = word(medium, UNDO_LOG) & ((1 << 48) - 1);
    for (number, (at, _)) in words.iter().enumerate() {
        let (entry, before) = (entry(number), word(medium, *at));
        // Not 0, which a fresh log is full of.
        let next = version + 1;
        // SAFETY: in the superblock, and no other thread's meanwhile.
        unsafe {
            medium.store_word(entry, *at as u64);
            medium.store_word(entry + BEFORE_AT, before);
            medium.store_word(entry + CHECK_AT, check_of(*at as u64, before, next));
            medium.store_word(entry + VERSION_AT, next);
        }
        medium.write_back(entry, VERSION_AT + 8);
    }
    medium.fence();
    for (at, new) in words {
        // SAFETY: the callers have them to change.
        unsafe { medium.store_word(*at, *new) };
        medium.write_back(*at, 8);
    }
    medium.fence();
    set_version(medium, sealed(version + 1));
}

fn set_version(medium: &impl Medium, word: u64) {
    // SAFETY: in the superblock, and no other thread's meanwhile.
    unsafe { medium.store_word(UNDO_LOG, word) };
    medium.write_back(UNDO_LOG, 8);
    medium.fence();
}

/// The entries of a change that was begun and not ended, the last first; `Err`: an entry is damaged.
///
/// Before the first fence of a change any of its entries may be missing; no word has changed then.
fn open_entries(
    medium: &impl Medium,
    format: Format,
) -> Result<impl Iterator<Item = Result<(usize, u64), Error>>, Error> {
    let next = version(medium, format)?.wrapping_add(1);
    let version_at = if format == Format::Old { OLD_VERSION_AT } else { VERSION_AT };
    let is_open = move |number: &usize| word(medium, entry(*number) + version_at) == next;
    Ok((0..ENTRIES).rev().filter(is_open).map(move |number| {
        let (place, before) =
            (word(medium, entry(number)), word(medium, entry(number) + BEFORE_AT));
        let at = place as usize;
        let is_word = at.is_multiple_of(8) && at >= crate::superblock::ROOTS && !LOG.contains(&at);
        let is_whole = format == Format::Old
            || word(medium, entry(number) + CHECK_AT) == check_of(place, before, next);
        if !is_word || !is_whole || at > medium.bytes() - 8 {
            return Err(Error::Damaged {
                at: entry(number) as u64,
                what: "an entry of the undo log",
            });
        }
        Ok((at, before))
    }))
}

/// Whether a change was begun and not ended.
///
/// # Errors
/// As for [`replay`].
pub fn is_open(medium: &impl Medium, format: Format) -> Result<bool, Error> {
    open_entries(medium, format)?.try_fold(false, |_, entry| entry.map(|_| true))
}

/// Undoes a change that was begun and not ended (section 11.4, step 1). A failure in between is harmless: the undo begins again. False: there
/// was no such change.
///
/// # Errors
/// The version or an entry of the log is damaged. Nothing has changed then.
pub fn replay(medium: &impl Medium, format: Format) -> Result<bool, Error> {
    if !is_open(medium, format)? {
        return Ok(false);
    }
    for (at, before) in open_entries(medium, format)?.map_while(Result::ok) {
        // SAFETY: a word of the heap, and no other thread has it yet.
        unsafe { medium.store_word(at, before) };
        medium.write_back(at, 8);
    }
    medium.fence();
    let next = version(medium, format)?.wrapping_add(1);
    set_version(medium, if format == Format::Old { next } else { sealed(next) });
    Ok(true)
}

/// Corrects the log's version if its check determines one flipped bit. False: nothing was corrected.
pub fn mend_version(medium: &impl Medium) -> bool {
    let found = word(medium, UNDO_LOG);
    let mut flips = (0..64).map(|bit| found ^ 1 << bit).filter(|word| is_version(*word));
    // More than one is left once in a thousand times: then it is not known.
    let (Some(right), None, false) = (flips.next(), flips.next(), is_version(found)) else {
        return false;
    };
    set_version(medium, right);
    true
}

/// Whether the log of a heap that was closed has the version of the closing record, and no entry above it.
pub fn is_settled(medium: &impl Medium, at_closing: u64) -> bool {
    let is_past = |version: u64| {
        (0..ENTRIES).all(|number| word(medium, entry(number) + VERSION_AT) <= version)
    };
    word(medium, UNDO_LOG) == at_closing && version(medium, Format::Checked).is_ok_and(is_past)
}

/// Empties the log of a heap that was closed, if it is not settled: no change is under way in such a heap. `at_closing` is the version of the
/// closing record, which [`is_version`] has accepted.
pub fn forget(medium: &impl Medium, at_closing: u64) {
    if !is_settled(medium, at_closing) {
        wipe(medium);
        set_version(medium, at_closing);
    }
}

/// Empties a log: no entry is of its version or of a later one.
pub fn wipe(medium: &impl Medium) {
    for number in 0..ENTRIES {
        for at in (entry(number)..entry(number) + ENTRY_BYTES).step_by(8) {
            // SAFETY: of the log, and no other thread has it.
            unsafe { medium.store_word(at, 0) };
        }
    }
    medium.write_back(entry(0), ENTRIES * ENTRY_BYTES);
    // Entries before the version: none of them is open under the new one.
    medium.fence();
    set_version(medium, 0);
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
            replay(&after, Format::Checked).map_err(|why| format!("{why}"))?;
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
                replay(&after, Format::Checked).map_err(|why| format!("{why}"))?;
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
        let damaged =
            |memory: &Memory| matches!(replay(memory, Format::Checked), Err(Error::Damaged { .. }));
        let at = u64::MAX - 7;
        // SAFETY: the test's own.
        let store = |at: usize, word: u64| unsafe { memory.store_word(at, word) };
        store(entry(0), at);
        store(entry(0) + CHECK_AT, check_of(at, 0, 1));
        store(entry(0) + VERSION_AT, 1);
        assert!(damaged(&memory), "a place that is none");
        store(entry(0), ROOTS as u64);
        assert!(damaged(&memory), "a check of another place");
        store(entry(0) + VERSION_AT, 0);
        assert_eq!(replay(&memory, Format::Checked), Ok(false));
        store(UNDO_LOG, 1);
        assert!(damaged(&memory), "a version without its check");
    }

    #[test]
    fn no_bit_of_the_version_brings_back_what_is_past() {
        let memory = Memory::new(LEAST_BYTES);
        for round in 1..=70u64 {
            change(&memory, &[(ROOTS + round as usize % 3 * 8, round)]);
        }
        let settled = word(&memory, UNDO_LOG);
        assert!(is_settled(&memory, settled) && !mend_version(&memory));
        let mut mended = 0;
        for bit in 0..64 {
            // SAFETY: the test's own.
            unsafe { memory.store_word(UNDO_LOG, settled ^ 1 << bit) };
            assert!(!is_settled(&memory, settled));
            let outcome = replay(&memory, Format::Checked);
            assert!(matches!(outcome, Err(Error::Damaged { .. })), "{bit}: {outcome:?}");
            if mend_version(&memory) {
                assert_eq!(word(&memory, UNDO_LOG), settled, "{bit}");
                mended += 1;
            }
        }
        assert!(mended > 60, "{mended}");
        // SAFETY: the test's own.
        unsafe { memory.store_word(UNDO_LOG, 5) };
        forget(&memory, settled);
        assert!(is_settled(&memory, settled));
        assert_eq!(replay(&memory, Format::Checked), Ok(false));
    }
}
