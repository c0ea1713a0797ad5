//! Reading the runs of a [`record`](crate::record), to write them to the image.

use core::hash::Hasher;

use spandrel_pages::PAGE_BYTES;
use twox_hash::XxHash64;

use crate::record::{HEADER_BYTES, Header, RUN_BYTES, Written, word};
use crate::{Fault, Storage};

/// Calls `apply` with each run of the record at `at`, in order: the offset in the image, and the bytes, in parts that fit the buffer.
/// Returns the header.
///
/// # Errors
/// The storage's, or that of `apply`; [`Fault::Damaged`] if the record is not whole or a run lies beyond the image. Some runs may have
/// been applied then.
pub fn replay<S: Storage>(
    storage: &S,
    at: u64,
    buffer: &mut [u8],
    apply: impl FnMut(u64, &[u8]) -> Result<(), S::Error>,
) -> Result<Header, S::Error> {
    let mut bytes = [0; HEADER_BYTES];
    storage.read(at, &mut bytes)?;
    let header = Header::parse(&bytes).ok_or(Fault::Damaged)?;
    let (mut hasher, mut payload) = (header.hasher(), Payload::of(storage, at, &header, buffer));
    walk(&header, &mut payload, Some(&mut hasher), apply)?;
    if header.sealed(hasher) == header.checksum { Ok(header) } else { Err(Fault::Damaged.into()) }
}

/// As [`replay`], for a record that this process has just made durable: its checksum need not be computed again, and the buffer that it was
/// written from may still have it.
///
/// # Errors
/// As for [`replay`].
pub fn replay_written<S: Storage>(
    storage: &S,
    at: u64,
    record: Written,
    buffer: &mut [u8],
    apply: impl FnMut(u64, &[u8]) -> Result<(), S::Error>,
) -> Result<(), S::Error> {
    let header = &record.header;
    let mut payload = if record.is_kept {
        Payload::kept(storage, header, buffer)
    } else {
        Payload::of(storage, at, header, buffer)
    };
    walk(header, &mut payload, None, apply)
}

/// Hands the runs to `apply`, and all bytes to the hasher.
fn walk<S: Storage>(
    header: &Header,
    payload: &mut Payload<'_, S>,
    mut hasher: Option<&mut XxHash64>,
    mut apply: impl FnMut(u64, &[u8]) -> Result<(), S::Error>,
) -> Result<(), S::Error> {
    let mut sum = |bytes: &[u8]| {
        if let Some(hasher) = &mut hasher {
            hasher.write(bytes);
        }
    };
    while payload.left() > 0 {
        let head = payload.take(RUN_BYTES as u64)?;
        if head.len() < RUN_BYTES {
            return Err(Fault::Damaged.into());
        }
        let (mut offset, mut rest) = (word(head), word(head.get(8..).unwrap_or(&[])));
        sum(head);
        let is_inside = offset.checked_add(rest).is_some_and(|to| to <= header.image_bytes);
        if !is_inside || rest > payload.left() {
            return Err(Fault::Damaged.into());
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
struct Payload<'a, S> {
    storage: &'a S,
    /// Where in the log the bytes behind the buffer's lie, and where the record ends.
    at: u64,
    end: u64,
    buffer: &'a mut [u8],
    /// The part of the buffer that was read and not taken.
    from: usize,
    to: usize,
}

impl<'a, S: Storage> Payload<'a, S> {
    /// Of the record at `at`.
    fn of(storage: &'a S, at: u64, header: &Header, buffer: &'a mut [u8]) -> Self {
        let at = at.saturating_add(HEADER_BYTES as u64);
        Self { storage, at, end: at.saturating_add(header.payload), buffer, from: 0, to: 0 }
    }

    /// Of a record that the buffer has, from its first byte on.
    fn kept(storage: &'a S, header: &Header, buffer: &'a mut [u8]) -> Self {
        let to = usize::try_from(header.payload).map_or(0, |bytes| bytes.min(buffer.len()));
        Self { storage, at: 0, end: 0, buffer, from: 0, to }
    }

    /// Bytes that were not taken.
    fn left(&self) -> u64 {
        (self.end - self.at) + (self.to - self.from) as u64
    }

    /// The next bytes: `most` of them, or less if the buffer has less: whole pages if it has any.
    ///
    /// # Errors
    /// The storage's; [`Fault::Damaged`]: the log ends before.
    fn take(&mut self, most: u64) -> Result<&[u8], S::Error> {
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
        part.ok_or(Fault::Damaged.into())
    }

    /// Moves what was not taken to the front, and fills the buffer behind it.
    fn refill(&mut self) -> Result<(), S::Error> {
        let rest = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        if rest == 0 {
            return Ok(());
        }
        self.buffer.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        let into = self.buffer.get_mut(self.to..).unwrap_or(&mut []);
        let len = rest.min(into.len());
        let into = into.get_mut(..len).unwrap_or(&mut []);
        if self.storage.read(self.at, into)? < len {
            return Err(Fault::Damaged.into());
        }
        (self.at, self.to) = (self.at + len as u64, self.to + len);
        Ok(())
    }
}
