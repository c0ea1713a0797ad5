//! Recovery of what a log says that was begun and not ended; see [`crate::transaction_log`].
//!
//! Nothing of a damaged log is trusted: each record is checked again before it is used, as one that was restored may have overwritten it.

use spandrel_pmem::Medium;

use crate::error::Error;
use crate::layout::{BLOCK_BYTES, GRANULE_BYTES, SUPERBLOCK};
use crate::pointer::offset_of;
use crate::superblock::{ROOTS, UNDO_LOG};
use crate::transaction_log::{
    BEFORE_AT, CHUNK_HEAD, LEAST_CHUNK, Line, NEXT_BYTES_AT, NEXT_CHECK_AT, RECORD_CHECK_AT,
    RECORD_HEAD, SIZE_AT, UNDONE, WORDS, check, durable_word, load, record_check, restore,
};

const WHAT: &str = "the log of a transaction";

/// A log that is open.
struct Found {
    version: u64,
    /// The last record; 0: it has no record.
    last: usize,
    /// The number of records.
    count: usize,
}

/// Whether a chunk of `bytes` bytes may begin at an offset: its head and all of it lie on the medium.
fn is_chunk(medium: &impl Medium, at: usize, bytes: usize) -> bool {
    let has = medium.bytes();
    at.is_multiple_of(GRANULE_BYTES)
        && at >= BLOCK_BYTES
        && bytes.is_multiple_of(8)
        && (CHUNK_HEAD..=has).contains(&bytes)
        && at <= has - bytes
}

/// The bytes of the record at an offset, which lies before `end`, an offset on the medium; `None`: it is not whole.
fn whole(medium: &impl Medium, record: usize, end: usize, version: u64) -> Option<usize> {
    if !record.is_multiple_of(8) || end.checked_sub(record)? < RECORD_HEAD {
        return None;
    }
    let words = (load(medium, record + SIZE_AT) >> 8) as usize;
    let bytes = words.checked_mul(8)?.checked_add(RECORD_HEAD)?;
    let is_whole = bytes <= end - record
        && load(medium, record + RECORD_CHECK_AT) == record_check(medium, record, version);
    is_whole.then_some(bytes)
}

/// Whether the words that a record names may be changed by a log: roots and their names, or words of objects.
fn is_of_objects(medium: &impl Medium, record: usize) -> bool {
    let (at, words) = (load(medium, record), load(medium, record + SIZE_AT) >> 8);
    let bytes = medium.bytes() as u64;
    let Some(end) = words.checked_mul(8).and_then(|bytes| bytes.checked_add(at)) else {
        return false;
    };
    let is_root = at >= ROOTS as u64 && end <= UNDO_LOG as u64;
    at.is_multiple_of(8) && (is_root || at >= (SUPERBLOCK + BLOCK_BYTES) as u64) && end <= bytes
}

/// Looks at the log that a line names; `None`: none is open.
///
/// # Errors
/// [`Error::Damaged`]: the check of the line does not hold, a durable record is missing, or a record names a place outside of the heap's
/// objects and roots.
fn find(medium: &impl Medium, line: Line) -> Result<Option<Found>, Error> {
    let (bytes, first) = (load(medium, line.bytes_at()), load(medium, line.first_at()));
    let version = load(medium, line.version_at());
    if first == 0 {
        return Ok(None);
    }
    let damaged = |at: usize| Error::Damaged { at: at as u64, what: WHAT };
    if load(medium, line.check_at()) != check(&[bytes, version, first]) {
        return Err(damaged(line.at()));
    }
    let durable = load(medium, line.durable_at());
    let durable_record = (durable & ((1 << 48) - 1)) as usize;
    // A word that does not hold names none.
    let mut is_missing = durable != 0 && durable == durable_word(durable_record, version);
    let mut chunk = offset_of(first).ok_or(damaged(line.at()))?;
    let mut found = Found { version, last: 0, count: 0 };
    let mut bytes = bytes as usize;
    // The bound ends a chain of damaged chunks that leads round in a circle.
    for _ in 0..=medium.bytes() / LEAST_CHUNK {
        if !is_chunk(medium, chunk, bytes) {
            return Err(damaged(line.at()));
        }
        let (mut record, end) = (chunk + CHUNK_HEAD, chunk + bytes);
        while let Some(needs) = whole(medium, record, end, version) {
            let kind = load(medium, record + SIZE_AT) & 0xff;
            if kind != UNDONE && load(medium, record + BEFORE_AT) as usize != found.last {
                break;
            }
            if kind == WORDS && !is_of_objects(medium, record) {
                return Err(damaged(record));
            }
            is_missing &= record != durable_record;
            (found.last, found.count) = (record, found.count + 1);
            record += needs;
        }
        let (next, next_bytes) = (load(medium, chunk), load(medium, chunk + NEXT_BYTES_AT));
        if load(medium, chunk + NEXT_CHECK_AT) != check(&[version, chunk as u64, next, next_bytes])
        {
            break;
        }
        chunk = offset_of(next).ok_or(damaged(chunk))?;
        bytes = next_bytes as usize;
    }
    if is_missing {
        return Err(damaged(line.at()));
    }
    each(medium, &found, |_| ())?;
    Ok(Some(found))
}

/// Calls `call` for each record of a log, the last first. Ends, whatever `call` changes.
fn each(medium: &impl Medium, found: &Found, mut call: impl FnMut(usize)) -> Result<(), Error> {
    let (mut record, mut left) = (found.last, found.count);
    while record != 0 {
        let is_whole = left > 0
            && record >= BLOCK_BYTES
            && whole(medium, record, medium.bytes(), found.version).is_some()
            && (load(medium, record + SIZE_AT) & 0xff != WORDS || is_of_objects(medium, record));
        if !is_whole {
            return Err(Error::Damaged { at: record as u64, what: WHAT });
        }
        // Before the call, which may overwrite it.
        let before = load(medium, record + BEFORE_AT) as usize;
        call(record);
        (record, left) = (before, left - 1);
    }
    Ok(())
}

/// Whether a transaction or a large change is open.
///
/// # Errors
/// As for [`replay`].
pub fn is_open(medium: &impl Medium) -> Result<bool, Error> {
    Line::ALL.into_iter().try_fold(false, |is, line| Ok(is | find(medium, line)?.is_some()))
}

/// Undoes the transaction and the large change that are open. It is idempotent: a failure meanwhile has recovery begin it anew.
///
/// # Errors
/// [`Error::Damaged`]: a log is damaged. No word has changed then, unless a record of a forged log names the log itself.
pub fn replay(medium: &impl Medium) -> Result<(), Error> {
    is_open(medium)?;
    for line in Line::ALL {
        let Some(found) = find(medium, line)? else { continue };
        each(medium, &found, |record| {
            if load(medium, record + SIZE_AT) & 0xff == WORDS {
                restore(medium, record);
            }
        })?;
        medium.fence();
        line.close(medium);
    }
    Ok(())
}

/// Clears the lines of a heap that was closed, of which no log is open. Returns whether one was damaged.
pub fn forget_closed(medium: &impl Medium) -> bool {
    let mut is_any = false;
    for line in Line::ALL {
        if load(medium, line.first_at()) != 0 {
            line.close(medium);
            is_any = true;
        }
    }
    is_any
}

/// Discards damaged logs.
pub fn wipe(medium: &impl Medium) {
    Line::ALL.into_iter().for_each(|line| line.close(medium));
}

#[cfg(test)]
mod tests {
    use std::prelude::v1::*;

    use spandrel_pmem::simulator::Memory;

    use super::*;
    use crate::collections::{HashMap, MapHead, Vector, VectorHead};
    use crate::layout::LEAST_BYTES;
    use crate::transaction_log::store;
    use crate::{Heap, RootType};

    const TYPES: &[RootType<'_>] =
        &[RootType::of::<MapHead<u64, u64>>("m"), RootType::of::<VectorHead<u64>>("v")];

    type State = (Vec<(u64, u64)>, Vec<u64>);

    fn state(heap: &Heap<&Memory>) -> Result<State, Error> {
        let map = HashMap::<u64, u64>::open(heap, "m")?;
        let mut pairs: Vec<_> = map.iter().collect();
        pairs.sort_unstable();
        Ok((pairs, Vector::<u64>::open(heap, "v")?.iter().collect()))
    }

    /// The image of a heap with an open transaction, what it was before, and its log's line, its first chunk and the end of the records.
    fn unclosed() -> (Vec<u8>, State, usize, usize) {
        let memory = Memory::new(LEAST_BYTES + 20 * BLOCK_BYTES);
        let heap = Heap::create(&memory, [1, 2], 0, 0).unwrap();
        let mut map = HashMap::<u64, u64>::open(&heap, "m").unwrap();
        let mut vector = Vector::<u64>::open(&heap, "v").unwrap();
        map.insert(1, 10).unwrap();
        vector.push(1).unwrap();
        let before = (vec![(1, 10)], vec![1]);
        let mut found = (Vec::new(), 0, 0);
        let outcome = heap.transaction(|| {
            map.insert(1, 11)?;
            map.insert(2, 20)?;
            vector.push(2)?;
            let inner = heap.transaction(|| {
                map.remove(&1)?;
                Err::<(), _>(Error::Full)
            });
            assert_eq!(inner, Err(Error::Full));
            vector.push(3)?;
            let first = load(&&memory, Line::TRANSACTION.first_at());
            let open = find(&&memory, Line::TRANSACTION)?.unwrap();
            found = (memory.journal().last(), offset_of(first).unwrap(), open.last);
            Err::<(), _>(Error::Full)
        });
        assert_eq!(outcome, Err(Error::Full));
        (found.0, before, found.1, found.2 + 64)
    }

    /// What a heap holds after its opening.
    fn opened(image: &[u8]) -> Result<State, Error> {
        let memory = Memory::from_image(image);
        let (heap, _) = Heap::open(&memory, 0, Some(TYPES))?;
        let found = state(&heap);
        heap.abandon();
        found
    }

    #[test]
    fn no_damaged_byte_of_an_open_log_leaves_a_part_of_its_transaction() {
        let (image, before, chunk, end) = unclosed();
        assert_eq!(opened(&image), Ok(before.clone()));
        let line = Line::TRANSACTION;
        let mut refused = 0;
        for at in (line.durable_at()..line.check_at() + 8).chain(chunk..end) {
            for flip in [1, 0x80, 0xff] {
                let mut image = image.clone();
                image[at] ^= flip;
                match opened(&image) {
                    Ok(found) => assert_eq!(found, before, "{flip:#x} at {at:#x}"),
                    Err(Error::Damaged { .. }) => refused += 1,
                    Err(why) => std::panic!("{why} after {flip:#x} at {at:#x}"),
                }
            }
        }
        assert!(refused > 500, "{refused}");
    }

    /// Makes a record whole again that was forged.
    fn seal(medium: &&Memory, record: usize) {
        let version = load(medium, Line::TRANSACTION.version_at());
        store(medium, record + RECORD_CHECK_AT, record_check(medium, record, version));
    }

    #[test]
    fn a_forged_log_that_names_itself_or_leads_round_in_a_circle_is_refused() {
        let (image, before, chunk, _) = unclosed();
        let first = chunk + CHUNK_HEAD;
        let version_at = Line::TRANSACTION.version_at();
        let forge = |forge: &dyn Fn(&&Memory, Found)| {
            let memory = Memory::from_image(&image);
            let found = find(&&memory, Line::TRANSACTION).unwrap().unwrap();
            forge(&&memory, found);
            opened(&memory.journal().last())
        };
        let records = |medium: &&Memory, found: &Found| {
            let mut all = Vec::new();
            each(medium, found, |record| all.push(record)).unwrap();
            all
        };
        // The last record of words names the record before, which it makes void, or one that leads forward.
        let names_itself = forge(&|medium, found| {
            let all = records(medium, &found);
            let is_words = |record: &&usize| load(medium, **record + SIZE_AT) & 0xff == WORDS;
            let last = **all.iter().filter(is_words).collect::<Vec<_>>().first().unwrap();
            store(medium, last, (all[all.len() - 2] + BEFORE_AT) as u64);
            seal(medium, last);
        });
        assert!(matches!(names_itself, Err(Error::Damaged { .. })), "{names_itself:?}");
        // A record that was undone leads to itself.
        let circle = forge(&|medium, found| {
            let all = records(medium, &found);
            let undone = *all
                .iter()
                .find(|record| load(medium, **record + SIZE_AT) & 0xff == UNDONE)
                .unwrap();
            store(medium, undone + BEFORE_AT, undone as u64);
            seal(medium, undone);
        });
        assert!(matches!(circle, Err(Error::Damaged { .. })), "{circle:?}");
        // And far out of the heap.
        let far = forge(&|medium, found| {
            let all = records(medium, &found);
            let undone = *all
                .iter()
                .find(|record| load(medium, **record + SIZE_AT) & 0xff == UNDONE)
                .unwrap();
            store(medium, undone + BEFORE_AT, u64::MAX - 7);
            seal(medium, undone);
        });
        assert!(matches!(far, Err(Error::Damaged { .. })), "{far:?}");
        // A record names the heap's own structures.
        for place in [0, SUPERBLOCK as u64, UNDO_LOG as u64, u64::MAX - 7] {
            let own = forge(&|medium, _| {
                let is_words = load(medium, first + SIZE_AT) & 0xff == WORDS;
                let size = if is_words { load(medium, first + SIZE_AT) } else { 1 << 8 | WORDS };
                store(medium, first, place);
                store(medium, first + SIZE_AT, size);
                seal(medium, first);
            });
            assert!(matches!(own, Err(Error::Damaged { .. })), "{place:#x}: {own:?}");
        }
        // The chain of chunks leads to its begin.
        let chain = forge(&|medium, _| {
            let (pointer, bytes) = (
                load(medium, Line::TRANSACTION.first_at()),
                load(medium, Line::TRANSACTION.bytes_at()),
            );
            let sum = check(&[load(medium, version_at), chunk as u64, pointer, bytes]);
            store(medium, chunk, pointer);
            store(medium, chunk + NEXT_BYTES_AT, bytes);
            store(medium, chunk + NEXT_CHECK_AT, sum);
        });
        assert!(chain.is_err() || chain == Ok(before), "{chain:?}");
    }
}
