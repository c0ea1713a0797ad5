//! The tie of an image to its log: a line in the image that names the state of the image. So a log is applied to the state that it
//! continues and to no other (a copy of the image, an older one that was put back, one that was used elsewhere meanwhile).
//!
//! ```text
//! a line of 64 bytes                   all numbers are little-endian
//!  0  magic "SPNDTIE2"
//!  8  identity     of the image
//! 16  counter      the line with the highest one is the newest
//! 24  epoch        \ the state: after that number of records of an epoch of the log
//! 32  sequence     /
//! 40  1: complete, the image needs no log; 2: under way, the image may have parts of records, and the log has them all
//! 48  bytes        that the image had at least; 0: not known
//! 56  checksum     XXH64 of the 56 bytes before it
//! ```
//!
//! Three lines lie in two pages of their own. The first two are written in turns: the one that is known to be durable stays until the
//! other one is durable. The third is a second copy of a complete state, for a page that a disk has lost. It is written when the first
//! copy is durable, and nothing waits for it.

use core::hash::Hasher;

use spandrel_redolog::{Point, word};
use twox_hash::XxHash64;

use crate::disk::{Disk, Which};
use crate::medium::Failed;

const MAGIC: u64 = u64::from_le_bytes(*b"SPNDTIE2");
/// Bytes of the two pages.
pub const BYTES: usize = 8192;
/// Bytes of a line.
const LINE: usize = 64;
/// Where the lines lie.
const PLACES: [u64; 3] = [0, 2048, 4096];
const SECOND: usize = 2;
const COMPLETE: u64 = 1;
const UNDER_WAY: u64 = 2;

/// What a line says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tie {
    counter: u64,
    /// The state of the image.
    pub point: Point,
    /// The image needs no log.
    pub is_complete: bool,
    /// Bytes that the image had in that state, at least; 0: not known. One that is shorter was cut off.
    pub image_bytes: u64,
}

fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = XxHash64::with_seed(MAGIC);
    hasher.write(bytes);
    hasher.finish()
}

impl Tie {
    fn bytes(&self, identity: u64) -> [u8; LINE] {
        let Point { epoch, sequence } = self.point;
        let state = if self.is_complete { COMPLETE } else { UNDER_WAY };
        let words = [MAGIC, identity, self.counter, epoch, sequence, state, self.image_bytes];
        let mut bytes = [0; LINE];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let sum = checksum(&bytes[..56]);
        bytes[56..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn parse(bytes: &[u8], identity: u64) -> Option<Self> {
        let mut words = bytes.get(..LINE)?.chunks_exact(8).map(word);
        let [magic, of, counter, epoch, sequence, state, image_bytes, sum] =
            core::array::from_fn(|_| words.next().unwrap_or(0));
        let is_line = magic == MAGIC
            && of == identity
            && (state == COMPLETE || state == UNDER_WAY)
            && sum == checksum(&bytes[..56]);
        let point = Point { epoch, sequence };
        let is_complete = state == COMPLETE;
        is_line.then_some(Self { counter, point, is_complete, image_bytes })
    }
}

/// The lines of an image.
#[derive(Clone, Copy, Debug)]
pub struct Ties {
    /// Where in the image they lie.
    at: u64,
    identity: u64,
    newest: Tie,
    /// Which of the first two is written next: the other one is durable, or will be with the next sync of the image before this one is.
    next: usize,
}

/// What the pages of an image hold.
#[derive(Clone, Copy, Debug)]
pub enum Found {
    /// Zeroes: the image has never had a log of this kind.
    Nothing,
    /// Lines.
    Ties(Ties),
}

impl Ties {
    /// Reads them.
    ///
    /// # Errors
    /// The disk's; [`Failed::DAMAGED_TIE`]: there is something, and none of it is a line of this image.
    pub fn read(disk: &impl Disk, at: u64, identity: u64) -> Result<Found, Failed> {
        let (mut newest, mut place, mut is_zero) = (None::<Tie>, 0, true);
        for (number, line) in PLACES.iter().enumerate() {
            let mut bytes = [0; LINE];
            disk.read(Which::Image, at + line, &mut bytes)?;
            is_zero &= bytes.iter().all(|byte| *byte == 0);
            let Some(found) = Tie::parse(&bytes, identity) else { continue };
            if newest.is_none_or(|newest| newest.counter < found.counter) {
                (newest, place) = (Some(found), number);
            }
        }
        match newest {
            // One that lies in the third place only: both others are lost, and either may be written.
            Some(newest) => {
                Ok(Found::Ties(Self { at, identity, newest, next: usize::from(place == 0) }))
            }
            None if is_zero => Ok(Found::Nothing),
            None => Err(Failed::DAMAGED_TIE),
        }
    }

    /// Those of an image that has none yet, in a state that no log continues.
    pub fn new(at: u64, identity: u64, epoch: u64) -> Self {
        let point = Point { epoch, sequence: 0 };
        let newest = Tie { counter: 0, point, is_complete: true, image_bytes: 0 };
        Self { at, identity, newest, next: 0 }
    }

    /// What the newest says.
    pub fn newest(&self) -> Tie {
        self.newest
    }

    /// Writes the newest line once more, in its own place: what was read may be in the system's cache only, after a sync that has failed or
    /// that a process did not live to see. A sync alone would not write what the cache takes for written. It is durable after a sync of the image.
    ///
    /// # Errors
    /// The disk's.
    pub fn write_again(&self, disk: &impl Disk) -> Result<(), Failed> {
        // An image without lines has none to write.
        if self.newest.counter == 0 {
            return Ok(());
        }
        let place = self.at + PLACES[1 - self.next % 2];
        disk.write(Which::Image, place, &self.newest.bytes(self.identity))
    }

    /// Whether an image of that number of bytes was cut off.
    pub fn is_cut(&self, bytes: u64) -> bool {
        bytes < self.newest.image_bytes
    }

    /// Writes a state, and the bytes that the image has in it ([`Tie::image_bytes`]). It is durable after a sync of the image, which [`Ties::synced`] is called after.
    ///
    /// # Errors
    /// The disk's.
    pub fn write(
        &mut self,
        disk: &impl Disk,
        (point, is_complete): (Point, bool),
        image_bytes: u64,
    ) -> Result<(), Failed> {
        let counter = self.newest.counter.wrapping_add(1);
        let tie = Tie { counter, point, is_complete, image_bytes };
        disk.write(Which::Image, self.at + PLACES[self.next % 2], &tie.bytes(self.identity))?;
        self.newest = tie;
        Ok(())
    }

    /// The image was synced: what was written last stays until the next one is durable. A complete state gets its second copy.
    pub fn synced(&mut self, disk: &impl Disk) {
        self.next = 1 - self.next % 2;
        if self.newest.is_complete {
            // Of use only if a page is lost: a failure of this one loses nothing.
            let bytes = self.newest.bytes(self.identity);
            let _ = disk.write(Which::Image, self.at + PLACES[SECOND], &bytes);
        }
    }

    /// An image that is complete is about to be cut to `to` bytes: it says so first, durably.
    ///
    /// # Errors
    /// The disk's, and those of [`Ties::read`]: it is not to be cut.
    pub fn shorten(disk: &impl Disk, at: u64, identity: u64, to: u64) -> Result<(), Failed> {
        match Self::read(disk, at, identity)? {
            Found::Ties(mut ties) if ties.is_cut(to) => {
                let Tie { point, is_complete, .. } = ties.newest;
                ties.write(disk, (point, is_complete), to)?;
                disk.sync(Which::Image)?;
                ties.synced(disk);
                disk.sync(Which::Image)
            }
            _ => Ok(()),
        }
    }

    /// The bytes of the two pages of an image that is complete, in a state that no log continues. `image_bytes`: see [`Tie`].
    pub fn fresh(identity: u64, epoch: u64, image_bytes: u64) -> [u8; BYTES] {
        let mut all = [0; BYTES];
        let point = Point { epoch, sequence: 0 };
        for (place, counter) in [(PLACES[0], 2), (PLACES[1], 1), (PLACES[SECOND], 2)] {
            let line = Tie { counter, point, is_complete: true, image_bytes }.bytes(identity);
            let place = place as usize;
            all[place..place + LINE].copy_from_slice(&line);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulator::{Disk as Simulated, Unit};

    const IDENTITY: u64 = 5;

    fn read(disk: &Simulated) -> Ties {
        match Ties::read(disk, 4096, IDENTITY).unwrap() {
            Found::Ties(ties) => ties,
            Found::Nothing => panic!("no line"),
        }
    }

    #[test]
    fn the_newest_line_counts_and_any_one_bit_of_it_leaves_a_state() {
        let disk = Simulated::new(Unit::Sector, 16384, 4096);
        assert!(matches!(Ties::read(&disk, 4096, IDENTITY), Ok(Found::Nothing)));
        let mut ties = Ties::new(4096, IDENTITY, 9);
        let point = |sequence| Point { epoch: 9, sequence };
        for sequence in 1..=3 {
            ties.write(&disk, (point(sequence), sequence == 3), 16384).unwrap();
            ties.synced(&disk);
            assert_eq!(read(&disk).newest(), ties.newest());
        }
        for bit in 0..BYTES * 8 {
            let mut image = disk.journal().last();
            image[4096 + bit / 8] ^= 1 << (bit % 8);
            let found = read(&Simulated::from_image(Unit::Sector, 16384, &image)).newest();
            assert_eq!((found.point, found.is_complete), (point(3), true), "bit {bit}");
        }
        for page in [4096, 8192] {
            let mut image = disk.journal().last();
            image[page..page + 4096].fill(0);
            let found = read(&Simulated::from_image(Unit::Sector, 16384, &image)).newest();
            assert_eq!(found.point, point(3), "page {page}");
        }
        assert!(matches!(Ties::read(&disk, 4096, 6), Err(Failed::DAMAGED_TIE)));
        assert!(read(&disk).is_cut(16383) && !read(&disk).is_cut(16384));
    }

    #[test]
    fn a_line_that_is_known_to_be_durable_is_not_written_before_another_is() {
        let disk = Simulated::new(Unit::Sector, 16384, 4096);
        let mut ties = Ties::new(4096, IDENTITY, 1);
        ties.write(&disk, (Point { epoch: 1, sequence: 0 }, true), 0).unwrap();
        ties.synced(&disk);
        let before = disk.journal().last();
        for sequence in 1..5 {
            ties.write(&disk, (Point { epoch: 2, sequence }, false), 0).unwrap();
        }
        let after = disk.journal().last();
        assert_eq!(before[4096..4096 + 64], after[4096..4096 + 64]);
        assert_eq!(read(&disk).newest().point.sequence, 4);
    }
}
