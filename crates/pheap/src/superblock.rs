//! What a heap says of itself: the identity line, which never changes and has a copy, and two records.
//!
//! The identity is the last thing that creation writes (section 11.1), its copy before the line. A damaged line is taken from the
//! copy.
//!
//! Whatever a record says is written to both of two places, the older one first: the newer one stays whole meanwhile, and afterwards
//! damage to one of them changes nothing. The higher sequence number is the newer one's; whether a record is whole its checksum
//! says.

use core::hash::Hasher;

use spandrel_pmem::{Choice, LINE_BYTES, Medium, loan};
use twox_hash::XxHash64;

use crate::error::Error;
use crate::layout::{BLOCK_BYTES, LEAST_BYTES, SUPERBLOCK};
use crate::sums::Sums;

/// The version of the format.
pub const VERSION: u64 = 2;
/// The version that has no sums and no copy of the identity. Opening such a heap makes it one of [`VERSION`].
pub const OLD_VERSION: u64 = 1;
/// "SPANHEAP", as a file shows it.
const MAGIC: u64 = u64::from_le_bytes(*b"SPANHEAP");
/// Block, region and granule sizes as powers of two, and the number of classes: a program with others reads other things.
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

/// Where another process asks for a copy: a line on a page of its own, which means nothing when none asks. See
/// [`spandrel_pmem::loan`].
pub const ASKING: usize = SUPERBLOCK + 12 * 4096;

/// Where two pages lie that tie a heap on a file to its log: the medium's own. See [`spandrel_pmem::tie`].
pub const TIE: usize = SUPERBLOCK + 13 * 4096;

/// Where the copy of the identity line lies: on the superblock's last page.
pub const IDENTITY_COPY: usize = SUPERBLOCK + 15 * 4096;

/// Where in an identity line the first word of the UUID lies.
pub const UUID_AT: u64 = 3 * 8;

const _: () = assert!(
    NAMES + ROOT_COUNT * 64 == UNDO_LOG
        && UNDO_LOG + 4096 == ASKING
        && ASKING + 4096 == TIE
        && TIE + spandrel_pmem::tie::BYTES == IDENTITY_COPY
        && IDENTITY_COPY + 4096 == SUPERBLOCK + BLOCK_BYTES
);

/// What never changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// A number that no other heap has.
    pub uuid: [u64; 2],
    /// The address that it belongs at; 0: any.
    pub base: u64,
    /// What it was made to lie on; [`Choice::Auto`]: whatever suits the file. An opening that names no medium follows it.
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
    /// The generation that has closed it last: sums of regions that a later one has stamped are void.
    pub closed: u64,
    /// Sums of the metadata; they hold if it was closed.
    pub sums: Sums,
}

const RECORD_WORDS: usize = 16;

fn checksum(words: &[u64]) -> u64 {
    let mut hasher = XxHash64::with_seed(MAGIC);
    words.iter().for_each(|word| hasher.write_u64(*word));
    hasher.finish()
}

/// Words of a medium, from an offset on.
fn words<const N: usize>(medium: &impl Medium, at: usize) -> [u64; N] {
    // SAFETY: the callers have looked that the medium is long enough; no other thread writes there meanwhile.
    core::array::from_fn(|word| unsafe {
        medium.base().as_ptr().add(at + word * 8).cast::<u64>().read_volatile()
    })
}

/// The words of a line that was read from a file.
pub fn line_words(line: &[u8; LINE_BYTES]) -> [u64; LINE_BYTES / 8] {
    let (words, _) = line.as_chunks::<8>();
    core::array::from_fn(|number| words.get(number).copied().map_or(0, u64::from_le_bytes))
}

/// Stores words of a medium from an offset on, and waits until they are durable.
fn store<const N: usize>(medium: &impl Medium, at: usize, words: [u64; N]) {
    for (number, word) in words.into_iter().enumerate() {
        // SAFETY: within the superblock, which every heap has; no other thread reads or writes it meanwhile.
        unsafe { medium.store_word(at + number * 8, word) };
    }
    medium.write_back(at, N * 8);
    medium.fence();
}

impl Identity {
    fn words(&self) -> [u64; 8] {
        self.words_of(VERSION)
    }

    fn words_of(&self, version: u64) -> [u64; 8] {
        let medium = MEDIA.iter().position(|choice| *choice == self.medium).unwrap_or(0) as u64;
        let [first, second] = self.uuid;
        let mut words = [MAGIC, version, GEOMETRY, first, second, self.base, medium, 0];
        words[7] = checksum(&words[..7]);
        words
    }

    /// Writes it and its copy, which makes the medium a heap.
    pub fn write(&self, medium: &impl Medium) {
        self.write_at(medium, IDENTITY_COPY);
        self.write_at(medium, 0);
    }

    /// Makes the line and its copy what they should be. How many of them were not.
    pub fn mend(&self, medium: &impl Medium) -> u64 {
        let damaged = self.damaged(medium);
        damaged.into_iter().flatten().map(|at| self.write_at(medium, at)).count() as u64
    }

    /// Where the line or its copy is not what it should be.
    pub fn damaged(&self, medium: &impl Medium) -> [Option<usize>; 2] {
        let is_wrong = |at: &usize| words::<8>(medium, *at) != self.words();
        [IDENTITY_COPY, 0].map(|at| Some(at).filter(is_wrong))
    }

    fn write_at(&self, medium: &impl Medium, at: usize) {
        let mut words = self.words();
        // The line is a heap's once its first word is.
        let magic = core::mem::take(&mut words[0]);
        store(medium, at, words);
        store(medium, at, [magic]);
    }

    /// Reads it, from its copy where the line is damaged.
    ///
    /// # Errors
    /// The medium is no heap, or one that cannot be read by this version.
    pub fn read(medium: &impl Medium) -> Result<Self, Error> {
        Self::find(medium).map(|(identity, _)| identity)
    }

    /// The same, with the version that it was written by.
    ///
    /// # Errors
    /// As for [`Identity::read`].
    pub fn find(medium: &impl Medium) -> Result<(Self, u64), Error> {
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
        match Self::choose(found, words(medium, IDENTITY_COPY)) {
            // Of zeroes only the records say that the creation of a heap began.
            Err(Error::NotAHeap) if found == [0; 8] && record_at(medium, RECORDS[0]).is_some() => {
                Err(Error::Unfinished)
            }
            parsed => parsed,
        }
    }

    /// What a line says, or its copy if the line is damaged, and the version of it.
    ///
    /// # Errors
    /// As for [`Identity::read`], of the line: the copy is none either.
    pub fn choose(line: [u64; 8], copy: [u64; 8]) -> Result<(Self, u64), Error> {
        // A line that is whole and cannot be read is no damage: a program of another version has written it.
        let is_whole = line[0] == MAGIC && line[7] == checksum(&line[..7]);
        match Self::parse(line) {
            Ok(identity) => Ok((identity, line[1])),
            Err(why) if is_whole => Err(why),
            // Before there was a copy there were no lines of this version.
            Err(why) => match Self::parse(copy) {
                Ok(identity) if copy[1] == VERSION => Ok((identity, VERSION)),
                _ => Err(why),
            },
        }
    }

    /// What a line says.
    ///
    /// # Errors
    /// As for [`Identity::read`].
    pub fn parse(found: [u64; 8]) -> Result<Self, Error> {
        let [magic, version, geometry, first, second, base, medium, sum] = found;
        let is_known = matches!(version, OLD_VERSION | VERSION);
        if magic != MAGIC {
            let is_begun = magic == 0 && is_known && geometry == GEOMETRY;
            return Err(if is_begun { Error::Unfinished } else { Error::NotAHeap });
        }
        if !is_known {
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

/// Forgets a question for a copy that was asked of an earlier owner. Before anything else changes.
pub fn forget_asking(medium: &impl Medium) {
    for at in (ASKING..ASKING + loan::LINE_BYTES).step_by(8) {
        let [left] = words(medium, at);
        if left != 0 {
            // SAFETY: of the superblock; only a process that asks stores there as well, and only the question depends on the word.
            unsafe { medium.store_word(at, 0) };
        }
    }
}

fn record_at(medium: &impl Medium, at: usize) -> Option<Record> {
    parse(&words(medium, at))
}

fn parse(words: &[u64; RECORD_WORDS]) -> Option<Record> {
    let [sequence, state, bytes, generation, layout, features, closed, ..] = *words;
    let state = match state {
        1 => State::Clean,
        2 => State::Dirty,
        _ => return None,
    };
    let is_whole = words[RECORD_WORDS - 1] == checksum(&words[..RECORD_WORDS - 1]);
    let sums = Sums { regions: words[7], roots: words[8], names: words[9], undo: words[10] };
    is_whole.then_some(Record {
        sequence,
        state,
        bytes,
        generation,
        layout,
        features,
        closed,
        sums,
    })
}

/// A record that one flipped bit has made none: where, and what it was. One that a failure has torn is none of these.
pub fn flipped_records(medium: &impl Medium) -> impl Iterator<Item = (usize, [u64; RECORD_WORDS])> {
    RECORDS.into_iter().filter_map(|at| {
        let found: [u64; RECORD_WORDS] = words(medium, at);
        let mut flips = (0..RECORD_WORDS * 64).map(|bit| {
            let mut flipped = found;
            flipped[bit / 64] ^= 1 << (bit % 64);
            flipped
        });
        let is_none = record_at(medium, at).is_none() && found != [0; RECORD_WORDS];
        let was = if is_none { flips.find(|words| parse(words).is_some()) } else { None };
        was.map(|words| (at, words))
    })
}

/// Puts records right of which one bit was flipped, and calls `report` with the offset of each.
pub fn mend_records(medium: &impl Medium, mut report: impl FnMut(usize)) {
    for (at, words) in flipped_records(medium) {
        store(medium, at, words);
        report(at);
    }
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
        record.check_features()?;
        let has = medium.bytes() as u64;
        if record.bytes > has {
            return Err(Error::Truncated { has, needs: record.bytes });
        }
        Ok(record)
    }

    /// Whether this version knows all features that the heap needs.
    ///
    /// # Errors
    /// [`Error::Features`].
    pub fn check_features(&self) -> Result<(), Error> {
        match self.features & !KNOWN_FEATURES {
            0 => Ok(()),
            unknown => Err(Error::Features(unknown)),
        }
    }

    /// The newer of the two records of a file that no process has open; `None`: neither is whole. `read` reads bytes from an offset on.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn of_file(
        read: impl Fn(&mut [u8], u64) -> Result<usize, i32>,
    ) -> Result<Option<Self>, i32> {
        let mut newest: Option<Self> = None;
        for at in RECORDS {
            // What the file does not have stays zero, and is no record.
            let mut bytes = [0; RECORD_WORDS * 8];
            read(&mut bytes, at as u64)?;
            let (words, _) = bytes.as_chunks::<8>();
            let word = |number: usize| words.get(number).copied().map_or(0, u64::from_le_bytes);
            let found = parse(&core::array::from_fn(word));
            newest = newest.into_iter().chain(found).max_by_key(|record| record.sequence);
        }
        Ok(newest)
    }

    /// Writes it over both, the older one first, and waits for each. It has the number of the second then.
    pub fn put(&mut self, medium: &impl Medium) {
        for _ in 0..RECORDS.len() {
            // A damaged record may have the last number.
            self.sequence = self.sequence.wrapping_add(1);
            store(medium, RECORDS[self.sequence as usize % 2], self.words());
        }
    }

    /// Whether the other place does not have the same with the number before this one's: a failure, or damage, has met it.
    pub fn is_alone(&self, medium: &impl Medium) -> bool {
        let other = record_at(medium, self.other());
        let before = Self { sequence: self.sequence.wrapping_sub(1), ..*self };
        other != Some(before)
    }

    /// Where the other record lies.
    pub fn other(&self) -> usize {
        RECORDS[(self.sequence as usize + 1) % 2]
    }

    fn words(&self) -> [u64; RECORD_WORDS] {
        let Self { sequence, state, bytes, generation, layout, features, closed, sums } = *self;
        let mut words = [0; RECORD_WORDS];
        let of_record =
            [sequence, state as u64, bytes, generation, layout, features, closed, sums.regions];
        words[..8].copy_from_slice(&of_record);
        words[8..11].copy_from_slice(&[sums.roots, sums.names, sums.undo]);
        words[RECORD_WORDS - 1] = checksum(&words[..RECORD_WORDS - 1]);
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spandrel_pmem::simulator::Memory;

    #[test]
    fn a_replica_that_needs_features_of_a_newer_version_is_refused() {
        use crate::replicated::Replica;
        use spandrel_os::image::{Access, Image};
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a.heap");
        let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        crate::Options::new().fixed().create(path.to_bytes()).unwrap().close().unwrap();
        let image = Image::open(&path, Access::Write).unwrap();
        assert!(Replica::of(&image).is_ok());
        let mut record = Record::of_file(|into, at| image.read_at(into, at)).unwrap().unwrap();
        (record.features, record.sequence) = (6, record.sequence + 1);
        let bytes = record.words().map(u64::to_le_bytes).concat();
        image.write_at(&bytes, RECORDS[record.sequence as usize % 2] as u64).unwrap();
        assert_eq!(Replica::of(&image), Err(Error::Features(6)));
    }

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
