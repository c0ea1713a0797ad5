//! Writes to the state's file, gathered by page.
//!
//! A write of some bytes takes a system call, and takes as long as one of a page. What records store lies in the same pages again and again: the buffer has each page once, with the
//! newest bytes, and writes them in the order of the file. A page with many pieces is completed from the file and written whole.
//!
//! Neighbours are no longer write: the page cache would hold what is written at a time as one folio, and the file system goes through all blocks of a folio with each later write to it. Measured
//! with ext4 of Linux 6.18: 64 pages at a time cost 5 us more for each SET of 1 KB than one at a time. Reading ahead has the same effect, so the file is read by pages.
//!
//! Invariants:
//! - A page is in the buffer once. Its blocks that are noted hold what was written last; the others hold anything.
//! - The buffer is empty after [`WriteBuffer::flush`], and the file has all. An error loses nothing that the log does not have: the ring's head stays, and the replica ends.

use core::slice;

use spandrel_pages::PAGE_BYTES;
use spandrel_pmem::disk::{Disk, Which};
use spandrel_pmem::{Buffer, Failed};

/// What a bit of [`Page::blocks`] stands for.
const BLOCK_BYTES: usize = PAGE_BYTES / u128::BITS as usize;
/// Pages that the buffer holds: 32 MiB, and half a MiB for finding them.
pub const PAGES: usize = 8192;
/// Pieces of a page that are written one by one: for more of them, reading the page and writing it whole is less work.
const FEW: u32 = 2;

/// A page in the buffer.
#[derive(Clone, Copy)]
#[repr(C)]
struct Page {
    /// The blocks that hold what is to be written.
    blocks: u128,
    /// Where it lies in the file, in pages.
    number: u64,
    /// Where its bytes lie in the buffer, in pages.
    slot: usize,
}

impl Page {
    fn is_whole(&self) -> bool {
        self.blocks == u128::MAX
    }

    /// Pieces that are to be written.
    fn pieces(&self) -> u32 {
        (self.blocks & !(self.blocks << 1)).count_ones()
    }

    fn at(&self) -> u64 {
        self.number.saturating_mul(PAGE_BYTES as u64)
    }
}

/// Calls `see` with the first block of each piece, and the number of its blocks.
fn each_piece(mut blocks: u128, mut see: impl FnMut(usize, usize)) {
    while blocks != 0 {
        let first = blocks.trailing_zeros();
        let len = (!(blocks >> first)).trailing_zeros().min(u128::BITS - first);
        see(first as usize, len as usize);
        blocks &= !(mask(first as usize, len as usize));
    }
}

/// The bits of `len` blocks from `first` on.
fn mask(first: usize, len: usize) -> u128 {
    u128::MAX.checked_shr((u128::BITS as usize).saturating_sub(len) as u32).unwrap_or(0) << first
}

/// See the head of this file.
pub struct WriteBuffer {
    /// The bytes of pages, in the order in which they came.
    content: Buffer,
    /// Their [`Page`]s.
    pages: Buffer,
    /// Slots by the pages' numbers, one more than the slot each; 0: none. A power of two, at least twice as many as there are pages.
    index: Buffer,
    most: usize,
    count: usize,
}

impl WriteBuffer {
    /// One of that number of pages, which take no memory yet.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(most: usize) -> Result<Self, Failed> {
        let most = most.clamp(1, 1 << 20);
        let places = (most * 2).next_power_of_two();
        Ok(Self {
            content: Buffer::new(most * PAGE_BYTES)?,
            pages: Buffer::new(most * size_of::<Page>())?,
            index: Buffer::new(places * size_of::<u32>())?,
            most,
            count: 0,
        })
    }

    /// Whether the file has all.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn pages(&mut self) -> &mut [Page] {
        // SAFETY: the buffer has room for `most` pages, is aligned to pages, and is borrowed exclusively; any bytes are a `Page`.
        unsafe { slice::from_raw_parts_mut(self.pages.at().as_ptr().cast(), self.count) }
    }

    fn index(&mut self) -> &mut [u32] {
        let places = (self.most * 2).next_power_of_two();
        // SAFETY: as above, of that number of words.
        unsafe { slice::from_raw_parts_mut(self.index.at().as_ptr().cast(), places) }
    }

    fn content(&mut self, slot: usize) -> &mut [u8] {
        let from = slot * PAGE_BYTES;
        self.content.bytes().get_mut(from..from + PAGE_BYTES).unwrap_or(&mut [])
    }

    /// The place of a page in the index: that which has it, or the free one that it would have. There is one, as the index is at most half full.
    fn place_of(&mut self, number: u64) -> (usize, Option<usize>) {
        let places = self.index().len();
        // Multiplicative hashing (Knuth, The Art of Computer Programming, 6.4): the high bits of a product with 2^64 / phi.
        let mut place = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % places;
        loop {
            let slot = self.index().get(place).copied().unwrap_or(0) as usize;
            let Some(slot) = slot.checked_sub(1) else { return (place, None) };
            if self.pages().get(slot).is_some_and(|page| page.number == number) {
                return (place, Some(slot));
            }
            place = (place + 1) % places;
        }
    }

    /// The slot of a page, which gets one if it has none.
    fn slot_of<D: Disk>(&mut self, disk: &D, number: u64) -> Result<usize, Failed> {
        let (mut place, found) = self.place_of(number);
        if let Some(slot) = found {
            return Ok(slot);
        }
        if self.count == self.most {
            self.flush(disk)?;
            (place, _) = self.place_of(number);
        }
        let slot = self.count;
        self.count += 1;
        if let Some(page) = self.pages().get_mut(slot) {
            *page = Page { blocks: 0, number, slot };
        }
        if let Some(word) = self.index().get_mut(place) {
            *word = slot as u32 + 1;
        }
        Ok(slot)
    }

    /// Completes a page from the file.
    fn complete<D: Disk>(&mut self, disk: &D, slot: usize) -> Result<(), Failed> {
        let Some(page) = self.pages().get(slot).copied().filter(|page| !page.is_whole()) else {
            return Ok(());
        };
        let mut bytes = [0; PAGE_BYTES];
        if disk.read(Which::Image, page.at(), &mut bytes)? < PAGE_BYTES {
            // A state has whole pages.
            return Err(Failed(libc::EIO));
        }
        let content = self.content(page.slot);
        each_piece(!page.blocks, |first, len| {
            let (from, to) = (first * BLOCK_BYTES, (first + len) * BLOCK_BYTES);
            if let (Some(into), Some(from)) = (content.get_mut(from..to), bytes.get(from..to)) {
                into.copy_from_slice(from);
            }
        });
        if let Some(page) = self.pages().get_mut(slot) {
            page.blocks = u128::MAX;
        }
        Ok(())
    }

    /// Takes bytes that lie in one page.
    fn put<D: Disk>(&mut self, disk: &D, at: u64, bytes: &[u8]) -> Result<(), Failed> {
        let slot = self.slot_of(disk, at / PAGE_BYTES as u64)?;
        let (from, to) = {
            let from = (at % PAGE_BYTES as u64) as usize;
            (from, from + bytes.len())
        };
        let is_of_blocks = from.is_multiple_of(BLOCK_BYTES) && to.is_multiple_of(BLOCK_BYTES);
        if !is_of_blocks {
            self.complete(disk, slot)?;
        }
        if let Some(into) = self.content(slot).get_mut(from..to) {
            into.copy_from_slice(bytes);
        }
        if let Some(page) = self.pages().get_mut(slot).filter(|_| is_of_blocks) {
            page.blocks |= mask(from / BLOCK_BYTES, (to - from) / BLOCK_BYTES);
        }
        Ok(())
    }

    /// Writes whole pages, of which the buffer may have some.
    fn write_through<D: Disk>(&mut self, disk: &D, at: u64, bytes: &[u8]) -> Result<(), Failed> {
        for (number, page) in (at / PAGE_BYTES as u64..).zip(bytes.chunks_exact(PAGE_BYTES)) {
            if self.count > 0
                && let (_, Some(slot)) = self.place_of(number)
            {
                self.content(slot).copy_from_slice(page);
                if let Some(page) = self.pages().get_mut(slot) {
                    page.blocks = u128::MAX;
                }
            }
        }
        disk.write(Which::Image, at, bytes)
    }

    /// Takes bytes, which end within what [`Disk::allow`] has allowed. The file gets them with the next flush or before.
    ///
    /// # Errors
    /// The disk's: the file may have some of what was taken.
    pub fn write<D: Disk>(&mut self, disk: &D, at: u64, bytes: &[u8]) -> Result<(), Failed> {
        let (mut at, mut rest) = (at, bytes);
        while !rest.is_empty() {
            let within = (at % PAGE_BYTES as u64) as usize;
            let pages = rest.len() / PAGE_BYTES;
            let is_long = within == 0 && pages > 1;
            let len = if is_long { pages * PAGE_BYTES } else { PAGE_BYTES - within };
            let (part, behind) = rest.split_at(len.min(rest.len()));
            if is_long {
                self.write_through(disk, at, part)?;
            } else {
                self.put(disk, at, part)?;
            }
            (at, rest) = (at + part.len() as u64, behind);
        }
        Ok(())
    }

    /// Writes a page's pieces.
    fn write_pieces<D: Disk>(&mut self, disk: &D, page: Page) -> Result<(), Failed> {
        let content = self.content(page.slot);
        let mut outcome = Ok(());
        each_piece(page.blocks, |first, len| {
            let (from, to) = (first * BLOCK_BYTES, (first + len) * BLOCK_BYTES);
            if let Some(bytes) = content.get(from..to).filter(|_| outcome.is_ok()) {
                outcome = disk.write(Which::Image, page.at() + from as u64, bytes);
            }
        });
        outcome
    }

    /// Has the file have all. The buffer is empty then, also after an error.
    ///
    /// # Errors
    /// The disk's: the file may have some of it.
    pub fn flush<D: Disk>(&mut self, disk: &D) -> Result<(), Failed> {
        self.pages().sort_unstable_by_key(|page| page.number);
        let written = self.write_all(disk);
        self.count = 0;
        self.index().fill(0);
        written
    }

    /// Writes the pages, which are sorted.
    fn write_all<D: Disk>(&mut self, disk: &D) -> Result<(), Failed> {
        let Some(last) = self.pages().last().copied() else { return Ok(()) };
        // The process may have a lower limit by now than when the bytes were taken.
        disk.allow(Which::Image, last.at() + PAGE_BYTES as u64)?;
        for position in 0..self.count {
            if self.pages().get(position).is_some_and(|page| page.pieces() > FEW) {
                self.complete(disk, position)?;
            }
            if let Some(page) = self.pages().get(position).copied() {
                self.write_pieces(disk, page)?;
            }
        }
        Ok(())
    }

    /// Gives the memory of an empty buffer to the kernel.
    pub fn rest(&mut self) {
        if self.is_empty() {
            self.content.release();
            self.pages.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spandrel_pmem::simulator::{Disk as Simulated, Drawn, Unit};
    use std::cell::Cell;
    use std::prelude::v1::*;

    const FILE: usize = 12 * PAGE_BYTES;

    /// Counts writes to the image, and refuses them after some.
    struct Counted {
        disk: Simulated,
        writes: Cell<usize>,
        most: Cell<usize>,
        allowed: Cell<u64>,
    }

    impl Disk for Counted {
        fn read(&self, which: Which, at: u64, into: &mut [u8]) -> Result<usize, Failed> {
            self.disk.read(which, at, into)
        }

        fn write(&self, which: Which, at: u64, bytes: &[u8]) -> Result<(), Failed> {
            assert!(at + bytes.len() as u64 <= self.allowed.get());
            self.writes.set(self.writes.get() + 1);
            if self.writes.get() > self.most.get() {
                return Err(Failed(libc::ENOSPC));
            }
            self.disk.write(which, at, bytes)
        }

        fn allow(&self, _: Which, end: u64) -> Result<(), Failed> {
            self.allowed.set(end.max(self.allowed.get()));
            Ok(())
        }

        fn sync(&self, which: Which) -> Result<(), Failed> {
            self.disk.sync(which)
        }

        fn bytes(&self, which: Which) -> Result<u64, Failed> {
            self.disk.bytes(which)
        }
    }

    /// A file of bytes that differ.
    fn counted() -> (Counted, Vec<u8>) {
        let file: Vec<u8> = (0..FILE).map(|at| (at * 7 / 3) as u8).collect();
        let disk = Simulated::from_image(Unit::Sector, FILE, &file);
        let (writes, most, allowed) = (Cell::new(0), Cell::new(usize::MAX), Cell::new(FILE as u64));
        (Counted { disk, writes, most, allowed }, file)
    }

    fn content(disk: &Counted) -> Vec<u8> {
        let mut bytes = vec![0; FILE];
        disk.read(Which::Image, 0, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn the_file_has_what_was_written_last() {
        for seed in 0..400 {
            let mut drawn = Drawn::new(seed);
            let (disk, mut model) = counted();
            let mut buffer = WriteBuffer::new(1 + drawn.below(5)).unwrap();
            for _ in 0..1 + drawn.below(60) {
                let unit = [1, BLOCK_BYTES, PAGE_BYTES][drawn.below(3)];
                let most = [4, 40, 5000, 4 * PAGE_BYTES][drawn.below(4)] / unit;
                let len = (1 + drawn.below(most.max(1))) * unit;
                let at = drawn.below((FILE - len) / unit + 1) * unit;
                let bytes: Vec<u8> = (0..len).map(|_| drawn.below(256) as u8).collect();
                model[at..at + len].copy_from_slice(&bytes);
                disk.allow(Which::Image, FILE as u64).unwrap();
                buffer.write(&disk, at as u64, &bytes).unwrap();
                if drawn.below(16) == 0 {
                    buffer.flush(&disk).unwrap();
                    assert!(buffer.is_empty());
                    assert!(content(&disk) == model, "seed {seed}");
                    buffer.rest();
                }
            }
            buffer.flush(&disk).unwrap();
            assert!(content(&disk) == model, "seed {seed}");
        }
    }

    #[test]
    fn pages_that_are_stored_to_again_are_written_once() {
        let (disk, _) = counted();
        let mut buffer = WriteBuffer::new(8).unwrap();
        for round in 0..100 {
            for page in 0..4 {
                for piece in 0..4 {
                    let at = page * PAGE_BYTES + piece * 1000 / BLOCK_BYTES * BLOCK_BYTES;
                    buffer.write(&disk, at as u64, &[round; BLOCK_BYTES]).unwrap();
                }
            }
        }
        assert_eq!(disk.writes.get(), 0);
        buffer.flush(&disk).unwrap();
        assert_eq!(disk.writes.get(), 4);
        // Of a page with few pieces these alone.
        buffer.write(&disk, 64, &[7; 64]).unwrap();
        buffer.write(&disk, 512, &[7; 64]).unwrap();
        buffer.flush(&disk).unwrap();
        assert_eq!(disk.writes.get(), 6);
    }

    #[test]
    fn a_refused_write_is_told_and_the_limit_is_asked_again() {
        let (disk, _) = counted();
        let mut buffer = WriteBuffer::new(8).unwrap();
        buffer.write(&disk, 0, &[1; 32]).unwrap();
        buffer.write(&disk, 9 * PAGE_BYTES as u64, &[1; 32]).unwrap();
        disk.allowed.set(0);
        disk.most.set(1);
        assert_eq!(buffer.flush(&disk), Err(Failed(libc::ENOSPC)));
        assert_eq!(disk.allowed.get(), 10 * PAGE_BYTES as u64);
        assert!(buffer.is_empty());
    }

    #[test]
    fn a_file_that_was_cut_off_is_not_made_longer_by_zeroes() {
        let (disk, _) = counted();
        let mut buffer = WriteBuffer::new(8).unwrap();
        let outcome = buffer.write(&disk, FILE as u64 + 1, &[1; 3]);
        assert_eq!(outcome.and_then(|()| buffer.flush(&disk)), Err(Failed(libc::EIO)));
    }
}
