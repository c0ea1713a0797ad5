//! What comparisons have found about the notes of a state's commands, as a file for each state that a program opens: `spandrel durable verify -- PROGRAM` reads them.

use core::ffi::CStr;

use spandrel_os::image::{Access, Image};
use spandrel_redolog::word;

use crate::oracle::{MOST_PLACES, Place, Verdict};
use crate::sealed::{is_sealed, sealed};

/// The variable of the environment with the directory of such files.
pub const VARIABLE: &str = "SPANDREL_DURABLE_VERIFY";

/// The extension of a file beside it: a line for each instruction that has stored what was missed, with the offset behind it, a tab, and the module's file.
pub const STORES: &str = "stores";

const MAGIC: u64 = u64::from_le_bytes(*b"SPNDVER1");
const HEAD: usize = 8;
const WORDS: usize = HEAD + 2 * MOST_PLACES;
/// Bytes of the file: words, and XXH64 of them.
const BYTES: usize = (WORDS + 1) * size_of::<u64>();

/// What was found about one state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The number that the state is known by.
    pub identity: u64,
    /// Batches that have changed something.
    pub batches: u64,
    /// Commands that write.
    pub commands: u64,
    /// What was compared and what was missed.
    pub verdict: Verdict,
    /// The first places that were missed.
    pub places: [Place; MOST_PLACES],
}

impl Finding {
    fn to_bytes(self) -> [u8; BYTES] {
        let Verdict { changed, missed, met } = self.verdict;
        let head = [MAGIC, self.identity, self.batches, self.commands, changed, missed, met, 0];
        let places = self.places.iter().flat_map(|place| [place.at as u64, place.bytes as u64]);
        sealed(MAGIC, head.into_iter().chain(places))
    }

    fn of_bytes(bytes: &[u8; BYTES]) -> Option<Self> {
        if !is_sealed(MAGIC, bytes) {
            return None;
        }
        let at = |index: usize| bytes.get(index * 8..).map_or(0, word);
        let place = |number: usize| Place {
            at: at(HEAD + 2 * number) as usize,
            bytes: at(HEAD + 2 * number + 1) as usize,
        };
        Some(Self {
            identity: at(1),
            batches: at(2),
            commands: at(3),
            verdict: Verdict { changed: at(4), missed: at(5), met: at(6) },
            places: core::array::from_fn(place),
        })
    }

    /// Reads the file of a path. `None`: there is none, or none that is whole.
    pub fn read(path: &CStr) -> Option<Self> {
        let mut bytes = [0; BYTES];
        let read = Image::open(path, Access::Read).ok()?.read_at(&mut bytes, 0).ok()?;
        (read == BYTES).then(|| Self::of_bytes(&bytes)).flatten()
    }
}

/// Writes the file of a state that is open.
pub struct Findings(Image);

impl Findings {
    /// A new file of that path.
    ///
    /// # Errors
    /// The error's number.
    pub fn new(path: &CStr) -> Result<Self, i32> {
        Image::create(path).map(Self)
    }

    /// Writes what was found. The program goes on whether or not the disk takes it: the file says how far it goes.
    pub fn write(&self, finding: Finding) {
        let _ = self.0.write_at(&finding.to_bytes(), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_as_it_was_written_or_not_at_all() {
        let places = core::array::from_fn(|number| Place { at: number + 7, bytes: number });
        let verdict = Verdict { changed: 4, missed: 5, met: 6 };
        let finding = Finding { identity: 1, batches: 2, commands: 3, verdict, places };
        let bytes = finding.to_bytes();
        assert_eq!(Finding::of_bytes(&bytes), Some(finding));
        for bit in 0..BYTES * 8 {
            let mut other = bytes;
            other[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Finding::of_bytes(&other), None, "bit {bit}");
        }
    }
}
