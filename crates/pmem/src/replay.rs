//! Reading the runs of a [`record`](crate::record), to write them to the image.

use core::hash::Hasher;

use spandrel_pages::PAGE_BYTES;
use twox_hash::XxHash64;

use crate::disk::{Disk, Which};
use crate::medium::Failed;
use crate::record::{HEADER_BYTES, Header, RUN_BYTES, Written, word};

/// Calls `apply` with each run of the record at `at`, in order: the offset in the image, and the bytes, in parts that fit the buffer.
/// Returns the header.
///
/// # Errors
/// The disk's, or that of `apply`; [`Failed::DAMAGED_LOG`] if the record is not whole or a run lies beyond the image. Some runs may have
/// been applied then.
pub fn replay(
    disk: &impl Disk,
    at: u64,
    buffer: &mut [u8],
    apply: impl FnMut(u64, &[u8]) -> Result<(), Failed>,
) -> Result<Header, Failed> {
    let mut bytes = [0; HEADER_BYTES];
    disk.read(Which::Log, at, &mut bytes)?;
    let header = Header::parse(&bytes).ok_or(Failed::DAMAGED_LOG)?;
    let (mut hasher, mut payload) = (header.hasher(), Payload::of(disk, at, &header, buffer));
    walk(&header, &mut payload, Some(&mut hasher), apply)?;
    if header.sealed(hasher) == header.checksum { Ok(header) } else { Err(Failed::DAMAGED_LOG) }
}

/// As [`replay`], for a record that this process has just made durable: its checksum need not be computed again, and the buffer that it was
/// written from may still have it.
///
/// # Errors
/// As for [`replay`].
pub fn replay_written(
    disk: &impl Disk,
    at: u64,
    record: Written,
    buffer: &mut [u8],
    apply: impl FnMut(u64, &[u8]) -> Result<(), Failed>,
) -> Result<(), Failed> {
    let header = &record.header;
    let mut payload = if record.is_kept {
        Payload::kept(disk, header, buffer)
    } else {
        Payload::of(disk, at, header, buffer)
    };
    walk(header, &mut payload, None, apply)
}

/// Hands the runs to `apply`, and all bytes to the hasher.
fn walk<D: Disk>(
    header: &Header,
    payload: &mut Payload<'_, D>,
    mut hasher: Option<&mut XxHash64>,
    mut apply: impl FnMut(u64, &[u8]) -> Result<(), Failed>,
) -> Result<(), Failed> {
    let mut sum = |bytes: &[u8]| {
        if let Some(hasher) = &mut hasher {
            hasher.write(bytes);
        }
    };
    while payload.left() > 0 {
        let head = payload.take(RUN_BYTES as u64)?;
        if head.len() < RUN_BYTES {
            return Err(Failed::DAMAGED_LOG);
        }
        let (mut offset, mut rest) = (word(head), word(head.get(8..).unwrap_or(&[])));
        sum(head);
        let is_inside = offset.checked_add(rest).is_some_and(|to| to <= header.image_bytes);
        if !is_inside || rest > payload.left() {
            return Err(Failed::DAMAGED_LOG);
        }
        while rest > 0 {
            let part = payload.take(rest)?;
            sum(part);
            apply(offset, part)?;
            (offset, rest) = (offset + part.len() as u64, rest - part.len() as u64);
        }
    }
    Ok(())
}

/// The bytes of a record's runs, read a buffer at a time. A record may have thousands of runs of one page: a system call for each costs as much as
/// what it reads.
struct Payload<'a, D> {
    disk: &'a D,
    /// Where in the log the bytes behind the buffer's lie, and where the record ends.
    at: u64,
    end: u64,
    buffer: &'a mut [u8],
    /// The part of the buffer that was read and not taken.
    from: usize,
    to: usize,
}

impl<'a, D: Disk> Payload<'a, D> {
    /// Of the record at `at`.
    fn of(disk: &'a D, at: u64, header: &Header, buffer: &'a mut [u8]) -> Self {
        let at = at.saturating_add(HEADER_BYTES as u64);
        Self { disk, at, end: at.saturating_add(header.payload), buffer, from: 0, to: 0 }
    }

    /// Of a record that the buffer has, from its first byte on.
    fn kept(disk: &'a D, header: &Header, buffer: &'a mut [u8]) -> Self {
        let to = usize::try_from(header.payload).map_or(0, |bytes| bytes.min(buffer.len()));
        Self { disk, at: 0, end: 0, buffer, from: 0, to }
    }

    /// Bytes that were not taken.
    fn left(&self) -> u64 {
        (self.end - self.at) + (self.to - self.from) as u64
    }

    /// The next bytes: `most` of them, or less if the buffer has less: whole pages if it has any.
    ///
    /// # Errors
    /// The disk's; [`Failed::DAMAGED_LOG`]: the log ends before.
    fn take(&mut self, most: u64) -> Result<&[u8], Failed> {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        if self.to - self.from < most.min(PAGE_BYTES) {
            self.refill()?;
        }
        let has = self.to - self.from;
        let pages = has / PAGE_BYTES * PAGE_BYTES;
        let len = match pages {
            _ if most <= has => most,
            0 => has,
            pages => pages,
        };
        let part = self.buffer.get(self.from..self.from + len).filter(|part| !part.is_empty());
        self.from += len;
        part.ok_or(Failed::DAMAGED_LOG)
    }

    /// Moves what was not taken to the front, and fills the buffer behind it.
    fn refill(&mut self) -> Result<(), Failed> {
        let rest = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        if rest == 0 {
            return Ok(());
        }
        self.buffer.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        let into = self.buffer.get_mut(self.to..).unwrap_or(&mut []);
        let len = rest.min(into.len());
        let into = into.get_mut(..len).unwrap_or(&mut []);
        if self.disk.read(Which::Log, self.at, into)? < len {
            return Err(Failed::DAMAGED_LOG);
        }
        (self.at, self.to) = (self.at + len as u64, self.to + len);
        Ok(())
    }
}
