//! Sums of an image's pages, in a file of their own beside the image: a bit that flips in what users store is found by a comparison.
//!
//! ```text
//! lines at 0 and at 2048               all numbers are little-endian; the whole line with the higher counter is valid
//!  0  magic "SPNDSUM1"
//!  8  identity     of the image
//! 16  counter
//! 24  epoch        \ the state of the image that the sums are of
//! 32  sequence     /
//! 40  epoch        \ the same: the sums are complete; another one: they are being written for that state, and some are of it already
//! 48  sequence     /
//! 56  pages        the number of sums
//! 64  checksum     XXH64 of the 64 bytes before it, seeded with the magic
//! 4096 sums        8 bytes for each page: 48 bits of the page's hash, which the page's number is mixed into, and behind them, in the lower 16
//!                  bits, a check of these 48 bits and of the number
//! ```
//!
//! A checkpoint only computes sums, of the record's one copy of each page. They are written when the log begins anew, before the image says that
//! it is complete ([`Sums::write`]). Until then the log has all records since the state that the file's sums are of, and recovery computes the
//! sums of their pages again. What is torn then is a sum of such a page: a sum is one word, so that no word says anything of another page.
//!
//! The check tells damage of a sum from damage of its page: any one bit, and all but one in 65,536 of other damages.

use core::hash::Hasher;

use spandrel_pages::PAGE_BYTES;
use spandrel_redolog::Log;
use twox_hash::XxHash64;

use crate::disk::{Disk, Which};
use crate::medium::Failed;
use crate::room::Buffer;
use crate::tie::{self, Tie};
use spandrel_redolog::{Point, word};

const MAGIC: u64 = u64::from_le_bytes(*b"SPNDSUM1");
/// Where the sums begin.
pub const FIRST: u64 = 4096;
/// Bytes of a sum.
pub const SUM_BYTES: usize = 8;
/// Bytes of a line.
const LINE: usize = 72;
const PLACES: [u64; 2] = [0, 2048];
/// Sums of a page of the file, which are read and written together.
pub const GROUP: u64 = (PAGE_BYTES / SUM_BYTES) as u64;
/// A sum with this in its check is that of a page that was found damaged.
const MARK: u64 = 0xffff;
const CHECK: u64 = 0xffff;

/// What a word of the file says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sum {
    /// The sum of the page.
    Of(u64),
    /// The page was found damaged before; the sum is that of what it held before the damage.
    Marked(u64),
    /// The word is no sum of that page.
    Damaged,
}

/// The hash of a page, wherever it lies.
pub fn hash(page: &[u8]) -> u64 {
    XxHash64::oneshot(0, page)
}

/// The hash of a page of zeroes.
pub fn hash_of_zeroes() -> u64 {
    hash(&[0; PAGE_BYTES])
}

/// The word for a page with that number and that hash.
pub fn sum(page: u64, hash: u64) -> u64 {
    // For each page a permutation of hashes: as many differ as before.
    let mixed =
        (hash ^ page.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let bits = (mixed ^ mixed >> 32) & !CHECK;
    bits | check(page, bits)
}

/// Each of the 48 bits is in one bit of the check.
fn check(page: u64, bits: u64) -> u64 {
    let of_page = page.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
    (bits >> 16 ^ bits >> 32 ^ bits >> 48 ^ of_page) & CHECK
}

impl Sum {
    /// Reads the word for a page.
    pub fn parse(page: u64, word: u64) -> Self {
        let bits = word & !CHECK;
        match (word ^ check(page, bits)) & CHECK {
            0 => Self::Of(word),
            MARK => Self::Marked(word ^ MARK),
            _ => Self::Damaged,
        }
    }

    /// The word with the mark of a page that was found damaged, or without it if it has one.
    pub fn turned(word: u64) -> u64 {
        word ^ MARK
    }
}

/// What a line says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Line {
    counter: u64,
    from: Point,
    to: Point,
    pages: u64,
}

fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = XxHash64::with_seed(MAGIC);
    hasher.write(bytes);
    hasher.finish()
}

impl Line {
    fn bytes(&self, identity: u64) -> [u8; LINE] {
        let Self { counter, from, to, pages } = *self;
        let words =
            [MAGIC, identity, counter, from.epoch, from.sequence, to.epoch, to.sequence, pages];
        let mut bytes = [0; LINE];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let sum = checksum(&bytes[..LINE - 8]);
        bytes[LINE - 8..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn parse(bytes: &[u8], identity: u64) -> Option<Self> {
        let (head, sum) = bytes.split_at_checked(LINE - 8)?;
        let mut words = head.chunks_exact(8).map(word);
        let mut next = || words.next().unwrap_or(0);
        let (magic, of, counter) = (next(), next(), next());
        let from = Point { epoch: next(), sequence: next() };
        let to = Point { epoch: next(), sequence: next() };
        let is_line = magic == MAGIC && of == identity && word(sum) == checksum(head);
        is_line.then_some(Self { counter, from, to, pages: next() })
    }
}

/// Bytes of the file with the sums of that number of pages.
pub fn bytes(pages: u64) -> u64 {
    FIRST.saturating_add(pages.saturating_mul(SUM_BYTES as u64))
}

/// Both lines of a file whose sums are complete, for its creation.
pub fn fresh(identity: u64, point: Point, pages: u64) -> [u8; FIRST as usize] {
    let mut all = [0; FIRST as usize];
    for (place, counter) in PLACES.into_iter().zip(1..) {
        let line = Line { counter, from: point, to: point, pages }.bytes(identity);
        let place = place as usize;
        all[place..place + LINE].copy_from_slice(&line);
    }
    all
}

/// The sums of an image that is open.
pub struct Sums {
    identity: u64,
    /// What the newest line of the file says.
    line: Line,
    /// Which of the lines is written next.
    next: usize,
    /// Pages of the image that change without a record: their sums mean nothing.
    except: [u64; EXCEPT],
    noted: Noted,
    /// There was no memory for a sum: the file stays one of an earlier state.
    is_lost: bool,
    /// The image has fewer pages than the file has sums.
    is_cut: bool,
}

/// The pages of the tie, and the one with the line in which another process requests a copy.
const EXCEPT: usize = tie::BYTES / PAGE_BYTES + 1;

impl Sums {
    /// Reads the lines of a file. `None`: the file has none of an image with that identity. `tie` and `asking` are the offsets of the pages that
    /// have no sum.
    ///
    /// # Errors
    /// The disk's; `ENOMEM`.
    pub fn read(
        disk: &impl Disk,
        identity: u64,
        (tie, asking): (u64, u64),
    ) -> Result<Option<Self>, Failed> {
        let mut newest = None::<(usize, Line)>;
        for (number, place) in PLACES.into_iter().enumerate() {
            let mut bytes = [0; LINE];
            disk.read(Which::Sums, place, &mut bytes)?;
            let Some(line) = Line::parse(&bytes, identity) else { continue };
            if newest.is_none_or(|(_, newest)| newest.counter < line.counter) {
                newest = Some((number, line));
            }
        }
        let Some((number, line)) = newest else { return Ok(None) };
        let page = |at: u64| at / PAGE_BYTES as u64;
        let except = [page(tie), page(tie) + 1, page(asking)];
        let noted = Noted::new()?;
        Ok(Some(Self {
            identity,
            line,
            next: 1 - number,
            except,
            noted,
            is_lost: false,
            is_cut: false,
        }))
    }

    /// Whether the sums are those of an image with that tie and log, once all records of the log are written again if `is_replayed` is set.
    pub fn fits(&self, tie: &Tie, log: &Log, is_replayed: bool) -> bool {
        let Line { from, to, .. } = self.line;
        match log.last().filter(|_| is_replayed) {
            Some(last) => {
                let is_passed = |of: Point| of.epoch == last.epoch && of.sequence <= last.sequence;
                (from == log.base() || is_passed(from)) && (to == from || is_passed(to))
            }
            None => tie.is_complete && from == tie.point && to == from,
        }
    }

    /// The number of sums in the file.
    pub fn pages(&self) -> u64 {
        self.line.pages
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> u64 {
        bytes(self.line.pages)
    }

    /// Takes no more sums than the image has pages: it was cut since.
    pub fn limit(&mut self, pages: u64) {
        self.is_cut |= pages < self.line.pages;
        self.line.pages = self.line.pages.min(pages);
    }

    /// Has the file say so as well, if that is the case: it can be cut then.
    ///
    /// # Errors
    /// The disk's.
    pub fn cut(&mut self, disk: &impl Disk) -> Result<bool, Failed> {
        if self.is_cut {
            self.put(disk, self.line)?;
        }
        Ok(core::mem::take(&mut self.is_cut))
    }

    /// Whether the sum of a page means something.
    pub fn is_of(&self, page: u64) -> bool {
        !self.except.contains(&page)
    }

    /// Whether the file has all sums of an image in that state.
    pub fn is_complete(&self, point: Point) -> bool {
        !self.is_lost && self.line.from == point && self.line.to == point
    }

    /// Computes the sums of whole pages, which a record has for the image at an offset.
    pub fn note(&mut self, at: u64, bytes: &[u8]) {
        let (pages, rest) = bytes.as_chunks::<PAGE_BYTES>();
        let first = at / PAGE_BYTES as u64;
        for (page, bytes) in (first..).zip(pages) {
            self.is_lost |= !self.noted.set(page, sum(page, hash(bytes)));
        }
        // Records have whole pages, and hand them out as such.
        self.is_lost |= !rest.is_empty() || !at.is_multiple_of(PAGE_BYTES as u64);
    }

    /// Writes the sums that were noted, for a state of the image that is not complete yet. All of them are durable then. A full disk is no
    /// error: the file says that it is of an earlier state, until another call has written all of them.
    ///
    /// # Errors
    /// The disk's.
    pub fn write(&mut self, disk: &impl Disk, to: Point, buffer: &mut [u8]) -> Result<(), Failed> {
        if self.is_lost {
            return Ok(());
        }
        match self.try_write(disk, to, buffer) {
            Err(why) if why.is_full() => Ok(()),
            written => written,
        }
    }

    fn try_write(&mut self, disk: &impl Disk, to: Point, buffer: &mut [u8]) -> Result<(), Failed> {
        let pages = disk.bytes(Which::Image)? / PAGE_BYTES as u64;
        for page in (self.line.pages / GROUP * GROUP..pages).step_by(GROUP as usize) {
            if !self.noted.touch(page) {
                self.is_lost = true;
                return Ok(());
            }
        }
        disk.allow(Which::Sums, bytes(pages.max(self.line.pages)))?;
        // Durable before any sum changes: with an image of the old state, and without the log, the sums are not believed.
        self.put(disk, Line { to, ..self.line })?;
        let zeroes = hash_of_zeroes();
        let most = (buffer.len() / PAGE_BYTES) as u64 * GROUP;
        let mut at = 0;
        while let Some((from, to)) = self.noted.next_touched(at, most.max(1)) {
            let to = to.min(pages);
            at = to.max(from + 1);
            if from < to {
                self.write_some(disk, (from, to), zeroes, buffer)?;
            }
        }
        self.put(disk, Line { from: to, to, pages, ..self.line })?;
        self.noted.untouch();
        Ok(())
    }

    /// Writes the sums of the pages from `from` to `to`: those that were noted, those of zeroes of pages that are new, and all others as the
    /// file has them.
    fn write_some(
        &self,
        disk: &impl Disk,
        (from, to): (u64, u64),
        zeroes: u64,
        buffer: &mut [u8],
    ) -> Result<(), Failed> {
        let place = FIRST + from * SUM_BYTES as u64;
        let bytes = (to - from) as usize * SUM_BYTES;
        let words = buffer.get_mut(..bytes).ok_or(Failed(libc::EINVAL))?;
        let read = disk.read(Which::Sums, place, words)?;
        words.get_mut(read..).unwrap_or(&mut []).fill(0);
        for (page, bytes) in (from..to).zip(words.chunks_exact_mut(SUM_BYTES)) {
            let is_new = page >= self.line.pages;
            let was = Sum::parse(page, word(bytes));
            let word = match self.noted.get(page) {
                0 if is_new => sum(page, zeroes),
                0 => continue,
                noted => match was {
                    // What was found damaged stays so, unless it is again what it was before.
                    Sum::Marked(before) if !is_new && before != noted => continue,
                    _ => noted,
                },
            };
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        disk.write(Which::Sums, place, words)
    }

    /// Says that the sums are those of no state any more: the image changes without them from now on.
    ///
    /// # Errors
    /// The disk's.
    pub fn give_up(&mut self, disk: &impl Disk, epoch: u64) -> Result<(), Failed> {
        self.put(disk, Line { to: Point { epoch, sequence: 0 }, ..self.line })
    }

    /// Writes a line, and waits for it and for all that was written before.
    fn put(&mut self, disk: &impl Disk, line: Line) -> Result<(), Failed> {
        let line = Line { counter: self.line.counter.wrapping_add(1), ..line };
        disk.write(Which::Sums, PLACES[self.next % 2], &line.bytes(self.identity))?;
        disk.sync(Which::Sums)?;
        (self.line, self.next) = (line, 1 - self.next % 2);
        Ok(())
    }
}

/// Sums that were computed and perhaps not written, by the number of the page. Zero: none.
struct Noted {
    sums: Buffer,
    /// For each group a byte: something of it is to be written.
    touched: Buffer,
}

impl Noted {
    fn new() -> Result<Self, Failed> {
        Ok(Self { sums: Buffer::new(PAGE_BYTES)?, touched: Buffer::new(1)? })
    }

    /// Makes room for a page. False: there is no memory.
    #[cold]
    fn grow(&mut self, page: u64) -> bool {
        let grown = |buffer: &mut Buffer, bytes: u64| {
            let bytes = usize::try_from(bytes).ok()?.checked_next_power_of_two()?;
            let held = buffer.bytes();
            if bytes > held.len() {
                let mut larger = Buffer::new(bytes).ok()?;
                larger.bytes().get_mut(..held.len())?.copy_from_slice(held);
                *buffer = larger;
            }
            Some(())
        };
        let sums = page.saturating_add(1).saturating_mul(SUM_BYTES as u64);
        grown(&mut self.sums, sums).is_some()
            && grown(&mut self.touched, page / GROUP + 1).is_some()
    }

    #[inline]
    fn place(&mut self, page: u64) -> Option<&mut [u8; SUM_BYTES]> {
        self.sums.bytes().as_chunks_mut().0.get_mut(usize::try_from(page).ok()?)
    }

    /// Notes the sum of a page. False: there is no memory.
    fn set(&mut self, page: u64, sum: u64) -> bool {
        if !self.touch(page) {
            return false;
        }
        self.place(page).is_some_and(|place| {
            *place = sum.to_le_bytes();
            true
        })
    }

    /// The group of a page is to be written. False: there is no memory.
    fn touch(&mut self, page: u64) -> bool {
        let group = usize::try_from(page / GROUP).unwrap_or(usize::MAX);
        if self.place(page).is_none() && !self.grow(page) {
            return false;
        }
        self.touched.bytes().get_mut(group).is_some_and(|byte| {
            *byte = 1;
            true
        })
    }

    fn get(&self, page: u64) -> u64 {
        let at = usize::try_from(page).unwrap_or(usize::MAX).saturating_mul(SUM_BYTES);
        self.sums.held().get(at..).map_or(0, word)
    }

    /// The first row of groups from a page on of which something is to be written, as pages from and to; `most` pages at most.
    fn next_touched(&self, from: u64, most: u64) -> Option<(u64, u64)> {
        let groups = self.touched.held();
        let first = usize::try_from(from.div_ceil(GROUP)).ok()?;
        let begin = first + groups.get(first..)?.iter().position(|byte| *byte != 0)?;
        let rest = groups.get(begin..)?;
        let count = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len()) as u64;
        let begin = begin as u64 * GROUP;
        Some((begin, begin + (count * GROUP).min(most)))
    }

    fn untouch(&mut self) {
        self.touched.bytes().fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bit_of_a_word_makes_it_another_sum_and_no_word_is_that_of_another_page() {
        for page in [0, 1, 5, 511, 512, 1 << 20, u64::from(u32::MAX)] {
            for hash in [0, 1, hash_of_zeroes(), u64::MAX, 0x1234_5678_9abc_def0] {
                let word = sum(page, hash);
                assert_eq!(Sum::parse(page, word), Sum::Of(word));
                assert_eq!(Sum::parse(page, Sum::turned(word)), Sum::Marked(word));
                for bit in 0..64 {
                    assert_eq!(Sum::parse(page, word ^ 1 << bit), Sum::Damaged, "{page} {bit}");
                    let marked = Sum::turned(word) ^ 1 << bit;
                    assert_eq!(Sum::parse(page, marked), Sum::Damaged, "{page} {bit}");
                }
                assert_ne!(word, sum(page + 1, hash));
            }
            assert_eq!(Sum::parse(page, 0), Sum::Damaged);
        }
        let swapped = (0..10_000).filter(|page| {
            let word = sum(page + 1, hash_of_zeroes());
            Sum::parse(*page, word) != Sum::Damaged
        });
        assert!(swapped.count() < 8);
    }

    #[test]
    fn notes_grow_with_the_image() {
        let mut noted = Noted::new().unwrap();
        for page in [3, 600, 100_000, 5] {
            assert!(noted.set(page, page + 1));
        }
        for page in [3, 600, 100_000, 5] {
            assert_eq!(noted.get(page), page + 1);
        }
        assert_eq!((noted.get(4), noted.get(u64::MAX)), (0, 0));
        assert_eq!(noted.next_touched(0, 1 << 20), Some((0, 1024)));
        assert_eq!(noted.next_touched(0, 512), Some((0, 512)));
        assert_eq!(noted.next_touched(1024, 512), Some((99_840, 100_352)));
        assert_eq!(noted.next_touched(100_352, 512), None);
        noted.untouch();
        assert_eq!(noted.next_touched(0, 512), None);
        assert!(!noted.set(u64::MAX, 1));
    }
}
