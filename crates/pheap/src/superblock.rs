//! What a heap says of itself: the identity line, which never changes, and two records that are written in turns.
//!
//! The identity is the last thing that creation writes (section 11.1). A record is written over the older one of two, so that
//! the newer one stays whole whatever happens meanwhile; which is newer its sequence number says, and whether it is whole its
//! checksum.

use core::hash::Hasher;

use spandrel_pmem::{Choice, Medium, loan};
use twox_hash::XxHash64;

use crate::error::Error;
use crate::layout::{BLOCK_BYTES, LEAST_BYTES, SUPERBLOCK};

/// The version of the format.
pub const VERSION: u64 = 1;
/// "SPANHEAP", as a file shows it.
const MAGIC: u64 = u64::from_le_bytes(*b"SPANHEAP");
/// Block, region and granule sizes as powers of two, and the number of classes: who has others reads other things.
const GEOMETRY: u64 = 16 | 26 << 8 | 4 << 16 | (crate::class::CLASSES as u64) << 24;
/// Features that a program must know to read a heap; none so far.
const KNOWN_FEATURES: u64 = 0;

/// Where the records lie: on pages of their own.
const RECORDS: [usize; 2] = [SUPERBLOCK, SUPERBLOCK + 4096];
/// Where the roots lie.
pub const ROOTS: usize = SUPERBLOCK + 2 * 4096;
/// How many there are (section 5.4).
pub const ROOT_COUNT: usize = 512;
/// Where their names lie, a line each.
pub const NAMES: usize = SUPERBLOCK + 3 * 4096;
/// Where the undo log lies.
pub const UNDO_LOG: usize = SUPERBLOCK + 11 * 4096;

/// Where somebody may ask for a copy who does not have the heap: a line on a page of its own, which means nothing once nobody asks. See
/// [`spandrel_pmem::loan`].
pub const ASKING: usize = SUPERBLOCK + 12 * 4096;

const _: () = assert!(
    NAMES + ROOT_COUNT * 64 == UNDO_LOG
        && UNDO_LOG + 4096 == ASKING
        && ASKING + 4096 <= SUPERBLOCK + BLOCK_BYTES
);

/// What never changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// A number that no other heap has.
    pub uuid: [u64; 2],
    /// The address that it belongs at; 0: any.
    pub base: u64,
    /// What it was made to lie on; [`Choice::Auto`]: whatever suits the file. Who opens it and says nothing follows it.
    pub medium: Choice,
}

/// The word that stands for what a heap lies on, in the order of the numbers.
const MEDIA: [Choice; 3] = [Choice::Auto, Choice::Mapped, Choice::Logged];

/// Whether a heap was closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum State {
    /// Its mark bits say what is free.
    Clean = 1,
    /// It is open, or was not closed.
    Dirty = 2,
}

/// What changes: a record of two lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// The newer one has the higher number.
    pub sequence: u64,
    /// Whether it was closed.
    pub state: State,
    /// Bytes of the heap.
    pub bytes: u64,
    /// How often it was opened for writing.
    pub generation: u64,
    /// The layout of the user's types, as the user numbers it.
    pub layout: u64,
    /// Features that a program must know to read it.
    pub features: u64,
}

const RECORD_WORDS: usize = 16;

fn checksum(words: &[u64]) -> u64 {
    let mut hasher = XxHash64::with_seed(MAGIC);
    words.iter().for_each(|word| hasher.write_u64(*word));
    hasher.finish()
}

/// Words of a medium, from an offset on.
fn words<const N: usize>(medium: &impl Medium, at: usize) -> [u64; N] {
    // SAFETY: the callers have looked that the medium is long enough; nobody writes there meanwhile.
    core::array::from_fn(|word| unsafe {
        medium.base().as_ptr().add(at + word * 8).cast::<u64>().read_volatile()
    })
}

fn store<const N: usize>(medium: &impl Medium, at: usize, words: [u64; N]) {
    for (number, word) in words.into_iter().enumerate() {
        // SAFETY: as above.
        unsafe { medium.store_word(at + number * 8, word) };
    }
    medium.write_back(at, N * 8);
    medium.fence();
}

impl Identity {
    fn words(&self) -> [u64; 8] {
        let medium = MEDIA.iter().position(|choice| *choice == self.medium).unwrap_or(0) as u64;
        let [first, second] = self.uuid;
        let mut words = [MAGIC, VERSION, GEOMETRY, first, second, self.base, medium, 0];
        words[7] = checksum(&words[..7]);
        words
    }

    /// Writes it, which makes the medium a heap.
    pub fn write(&self, medium: &impl Medium) {
        let mut words = self.words();
        // The line is a heap's once its first word is.
        let magic = core::mem::take(&mut words[0]);
        store(medium, 0, words);
        store(medium, 0, [magic]);
    }

    /// Reads it.
    ///
    /// # Errors
    /// The medium is no heap, or one that cannot be read by this version.
    pub fn read(medium: &impl Medium) -> Result<Self, Error> {
        let has = medium.bytes();
        if has < 64 {
            return Err(Error::NotAHeap);
        }
        let found = words(medium, 0);
        if has < LEAST_BYTES {
            // The line is written last: there was more.
            let is_rest = Self::parse(found).is_ok();
            let cut_off = Error::Truncated { has: has as u64, needs: LEAST_BYTES as u64 };
            return Err(if is_rest { cut_off } else { Error::NotAHeap });
        }
        match Self::parse(found) {
            // Of zeroes only the records say that somebody began to make a heap.
            Err(Error::NotAHeap) if found == [0; 8] && record_at(medium, RECORDS[0]).is_some() => {
                Err(Error::Unfinished)
            }
            parsed => parsed,
        }
    }

    /// What a line says.
    ///
    /// # Errors
    /// As for [`Identity::read`].
    pub fn parse(found: [u64; 8]) -> Result<Self, Error> {
        let [magic, version, geometry, first, second, base, medium, sum] = found;
        if magic != MAGIC {
            let is_begun = magic == 0 && version == VERSION && geometry == GEOMETRY;
            return Err(if is_begun { Error::Unfinished } else { Error::NotAHeap });
        }
        if version != VERSION {
            return Err(Error::Version(version));
        }
        if sum != checksum(&found[..7]) || geometry != GEOMETRY {
            return Err(Error::Damaged { at: 0, what: "the heap's identity" });
        }
        let choice = usize::try_from(medium).ok().and_then(|number| MEDIA.get(number));
        let medium = *choice.ok_or(Error::Medium(medium))?;
        Ok(Self { uuid: [first, second], base, medium })
    }
}

/// Nobody asks for a copy yet: whoever does was somebody else's guest. Before anything else changes.
pub fn forget_asking(medium: &impl Medium) {
    for at in (ASKING..ASKING + loan::LINE_BYTES).step_by(8) {
        let [left] = words(medium, at);
        if left != 0 {
            // SAFETY: of the superblock, and nobody else stores there but who asks, a word of which nothing but the asking depends.
            unsafe { medium.store_word(at, 0) };
        }
    }
}

fn record_at(medium: &impl Medium, at: usize) -> Option<Record> {
    let words: [u64; RECORD_WORDS] = words(medium, at);
    let [sequence, state, bytes, generation, layout, features, ..] = words;
    let state = match state {
        1 => State::Clean,
        2 => State::Dirty,
        _ => return None,
    };
    let is_whole = words[RECORD_WORDS - 1] == checksum(&words[..RECORD_WORDS - 1]);
    is_whole.then_some(Record { sequence, state, bytes, generation, layout, features })
}

impl Record {
    /// Reads the newer of the two.
    ///
    /// # Errors
    /// Neither is whole, or it needs what this version does not know, or the medium is shorter than the heap.
    pub fn read(medium: &impl Medium) -> Result<Self, Error> {
        let records = RECORDS.iter().filter_map(|at| record_at(medium, *at));
        let newest = records.max_by_key(|record| record.sequence);
        let damaged = Error::Damaged { at: RECORDS[0] as u64, what: "both of the heap's records" };
        let record = newest.ok_or(damaged)?;
        let unknown = record.features & !KNOWN_FEATURES;
        if unknown != 0 {
            return Err(Error::Features(unknown));
        }
        let has = medium.bytes() as u64;
        if record.bytes > has {
            return Err(Error::Truncated { has, needs: record.bytes });
        }
        Ok(record)
    }

    /// Writes it over the older one, and waits for it.
    pub fn write(&self, medium: &impl Medium) {
        let Self { sequence, state, bytes, generation, layout, features } = *self;
        let mut words = [0; RECORD_WORDS];
        words[..6].copy_from_slice(&[sequence, state as u64, bytes, generation, layout, features]);
        words[RECORD_WORDS - 1] = checksum(&words[..RECORD_WORDS - 1]);
        store(medium, RECORDS[sequence as usize % 2], words);
    }

    /// The next one after it.
    pub fn next(&self) -> Self {
        Self { sequence: self.sequence + 1, ..*self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spandrel_pmem::simulator::Memory;

    #[test]
    fn a_medium_is_a_word_of_the_identity_and_none_that_is_not_known() {
        for (number, medium) in MEDIA.into_iter().enumerate() {
            let identity = Identity { uuid: [1, 2], base: 3, medium };
            let mut words = identity.words();
            assert_eq!(words[6], number as u64);
            assert_eq!(Identity::parse(words), Ok(identity));
            words[6] ^= 1;
            let damaged = Error::Damaged { at: 0, what: "the heap's identity" };
            assert_eq!(Identity::parse(words), Err(damaged));
        }
        let mut words = Identity { uuid: [1, 2], base: 0, medium: Choice::Auto }.words();
        words[6] = 7;
        words[7] = checksum(&words[..7]);
        assert_eq!(Identity::parse(words), Err(Error::Medium(7)));
    }

    #[test]
    fn what_is_left_of_a_heap_is_cut_off_and_anything_else_no_heap() {
        let image = |bytes: usize, words: [u64; 8]| {
            let mut image = std::vec![0; bytes];
            for (place, word) in image.chunks_exact_mut(8).zip(words) {
                place.copy_from_slice(&word.to_le_bytes());
            }
            Identity::read(&Memory::from_image(&image)).err()
        };
        let words = Identity { uuid: [1, 2], base: 0, medium: Choice::Auto }.words();
        let needs = LEAST_BYTES as u64;
        assert_eq!(image(4096, words), Some(Error::Truncated { has: 4096, needs }));
        assert_eq!(image(4096, [0; 8]), Some(Error::NotAHeap));
    }
}
