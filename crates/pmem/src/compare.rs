//! The comparison of an image's pages with their [sums](crate::sums).

use core::cell::Cell;

use spandrel_pages::PAGE_BYTES;
use spandrel_redolog::word;

use crate::disk::{Disk, Which};
use crate::medium::Failed;
use crate::room::Buffer;
use crate::sums::{FIRST, GROUP, SUM_BYTES, Sum, Sums, hash, sum};

/// How the sums of an image stand to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Standing {
    /// There are none.
    #[default]
    Absent,
    /// All pages were compared.
    Compared,
    /// The file beside the image is of another state of the image, or was not complete when the power failed: it says nothing.
    Stale,
    /// What has the name of the file is none of this image, or is damaged at its beginning.
    Foreign,
    /// Another process has the image open, and the sums change.
    Busy,
}

/// What is wrong with a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mismatch {
    /// It is not what its sum is of.
    Page,
    /// It was found damaged before, and is not what it was before the damage.
    Known,
    /// Its sum is damaged, so that nothing is known of the page.
    Sum,
}

/// What a comparison says of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// It was found damaged before, and is whole again: its sum needs the mark no more.
    Whole,
    /// It is not as its sum says.
    Wrong(Mismatch),
}

/// Compares all pages that have a sum. `hash_of` returns the hash of a page; `None`: it is not to be compared. `see` is called with each page
/// that is not as its sum says or is so again, and with the sum's word.
///
/// # Errors
/// The disk's, or that of `hash_of` or of `see`.
pub fn compare(
    disk: &impl Disk,
    sums: &Sums,
    hash_of: &mut dyn FnMut(u64) -> Result<Option<u64>, Failed>,
    see: &mut dyn FnMut(u64, Seen, u64) -> Result<(), Failed>,
) -> Result<(), Failed> {
    let mut words = [0; GROUP as usize * SUM_BYTES];
    for from in (0..sums.pages()).step_by(GROUP as usize) {
        let count = GROUP.min(sums.pages() - from) as usize;
        let words = words.get_mut(..count * SUM_BYTES).unwrap_or(&mut []);
        let read = disk.read(Which::Sums, FIRST + from * SUM_BYTES as u64, words)?;
        // What is missing is damaged: no sum is zero.
        words.get_mut(read..).unwrap_or(&mut []).fill(0);
        for (page, bytes) in (from..).zip(words.chunks_exact(SUM_BYTES)) {
            if !sums.is_of(page) {
                continue;
            }
            let word = word(bytes);
            let hash = hash_of(page)?;
            let wrong = |mismatch| Some(Seen::Wrong(mismatch));
            let seen = match (Sum::parse(page, word), hash) {
                (Sum::Marked(word), Some(hash)) if word == sum(page, hash) => Some(Seen::Whole),
                (Sum::Marked(_), _) => wrong(Mismatch::Known),
                (_, None) => None,
                (Sum::Damaged, Some(_)) => wrong(Mismatch::Sum),
                (Sum::Of(word), Some(hash)) if word != sum(page, hash) => wrong(Mismatch::Page),
                (Sum::Of(_), Some(_)) => None,
            };
            if let Some(seen) = seen {
                see(page, seen, word)?;
            }
        }
    }
    Ok(())
}

/// Hashes pages of the image's file, which are read in pieces.
pub struct Reader<'a, D> {
    disk: &'a D,
    buffer: &'a mut [u8],
    /// The pages that the buffer has.
    from: u64,
    to: u64,
}

impl<'a, D: Disk> Reader<'a, D> {
    /// With a buffer of a page at least.
    pub fn new(disk: &'a D, buffer: &'a mut [u8]) -> Self {
        Self { disk, buffer, from: 0, to: 0 }
    }

    /// The hash of a page; `None`: the file ends before.
    ///
    /// # Errors
    /// The disk's.
    pub fn hash_of(&mut self, page: u64) -> Result<Option<u64>, Failed> {
        if !(self.from..self.to).contains(&page) {
            let read = self.disk.read(Which::Image, page * PAGE_BYTES as u64, self.buffer)?;
            (self.from, self.to) = (page, page + (read / PAGE_BYTES) as u64);
        }
        let at = (page - self.from) as usize * PAGE_BYTES;
        let bytes = (page < self.to).then(|| self.buffer.get(at..at + PAGE_BYTES)).flatten();
        Ok(bytes.map(hash))
    }
}

/// What a comparison has found, for a copy in memory: the file may change before it is looked at.
#[derive(Default)]
pub struct Found {
    /// How the sums stand to the image.
    pub standing: Standing,
    /// A byte for each page.
    pages: Option<Buffer>,
}

/// A page that the log has, with a checksum of its own.
const REPLAYED: u8 = 1;
/// From here on, a [`Mismatch`].
const KINDS: u8 = 2;

impl Found {
    /// Sets memory aside for an image of `bytes` bytes, if there is none yet.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn make_room(&mut self, bytes: usize) -> Result<(), Failed> {
        if self.pages.is_none() {
            self.pages = Some(Buffer::new(bytes.div_ceil(PAGE_BYTES))?);
        }
        Ok(())
    }

    fn set(&mut self, page: u64, value: u8) {
        let page = usize::try_from(page).unwrap_or(usize::MAX);
        let byte = self.pages.as_mut().and_then(|pages| pages.bytes().get_mut(page));
        if let Some(byte) = byte {
            *byte = value;
        }
    }

    /// These bytes of the image are those of the log.
    pub fn note_replayed(&mut self, at: u64, len: usize) {
        let page_bytes = PAGE_BYTES as u64;
        let end = at.saturating_add(len as u64).div_ceil(page_bytes);
        (at / page_bytes..end).for_each(|page| self.set(page, REPLAYED));
    }

    /// Compares the pages of an image in memory.
    ///
    /// # Errors
    /// The disk's.
    pub fn compare(&mut self, disk: &impl Disk, sums: &Sums, image: &[u8]) -> Result<(), Failed> {
        let Some(pages) = &mut self.pages else { return Ok(()) };
        let found = Cell::from_mut(pages.bytes()).as_slice_of_cells();
        let cell = |page: u64| found.get(usize::try_from(page).unwrap_or(usize::MAX));
        let mut hash_of = |page: u64| {
            if cell(page).is_none_or(|cell| cell.get() == REPLAYED) {
                return Ok(None);
            }
            let at = usize::try_from(page).unwrap_or(usize::MAX).saturating_mul(PAGE_BYTES);
            Ok(image.get(at..).and_then(|rest| rest.get(..PAGE_BYTES)).map(hash))
        };
        compare(disk, sums, &mut hash_of, &mut |page, seen, _| {
            if let (Some(cell), Seen::Wrong(wrong)) = (cell(page), seen) {
                cell.set(KINDS + wrong as u8);
            }
            Ok(())
        })
    }

    /// Calls `see` with the offset of each page that is not as its sum says.
    pub fn each(&self, see: &mut dyn FnMut(u64, Mismatch)) {
        let pages = self.pages.as_ref().map_or(&[][..], Buffer::held);
        for (page, found) in (0..).zip(pages) {
            let kinds = [Mismatch::Page, Mismatch::Known, Mismatch::Sum];
            let kind = kinds.into_iter().find(|kind| KINDS + *kind as u8 == *found);
            if let Some(kind) = kind {
                see(page * PAGE_BYTES as u64, kind);
            }
        }
    }
}
