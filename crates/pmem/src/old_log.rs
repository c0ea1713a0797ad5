//! Logs of the first version of the format. They are only read: the image gets their records, and a log of the present version follows.
//!
//! ```text
//! record, at a multiple of 4096        all numbers are little-endian
//!  0  magic "SPNDLOG1"
//!  8  salt         drawn when the log began anew
//! 16  sequence     one more than that of the record before
//! 24  identity     of the image
//! 32  bytes that the image has from this record on
//! 40  bytes of the runs behind this header
//! 48  checksum     XXH64, seeded with the salt, of the runs and of the 48 bytes before it
//! 56  zero
//! 64  runs: offset, length, bytes
//! ```

use core::hash::Hasher;

use spandrel_os::image::Image;
use spandrel_redolog::{ALIGN_BYTES, RUN_BYTES, word};
use twox_hash::XxHash64;

use crate::medium::Failed;

const MAGIC: u64 = u64::from_le_bytes(*b"SPNDLOG1");
const HEADER_BYTES: usize = 64;

/// A record that was found whole.
struct Found {
    words: [u64; 8],
    at: u64,
}

impl Found {
    fn image_bytes(&self) -> u64 {
        self.words[4]
    }

    fn payload(&self) -> u64 {
        self.words[5]
    }

    fn behind(&self) -> u64 {
        let end = self.at.saturating_add(HEADER_BYTES as u64).saturating_add(self.payload());
        end.checked_next_multiple_of(ALIGN_BYTES).unwrap_or(u64::MAX)
    }
}

/// An old log, open for reading.
pub struct OldLog<'a> {
    file: &'a Image,
    identity: u64,
}

impl<'a> OldLog<'a> {
    /// The old log of an image; `None`: the file holds none, or that of another image, and is left alone.
    ///
    /// # Errors
    /// The disk's.
    pub fn of(file: &'a Image, identity: u64) -> Result<Option<Self>, Failed> {
        let mut bytes = [0; HEADER_BYTES];
        let read = file.read_at(&mut bytes, 0).map_err(Failed)?;
        let is_log = read == HEADER_BYTES && word(&bytes) == MAGIC;
        Ok((is_log && word(&bytes[24..]) == identity).then_some(Self { file, identity }))
    }

    /// Calls `apply` with the runs of all records, in order. Returns the length of the image with them; `None`: there is no record.
    ///
    /// # Errors
    /// The disk's, or that of `apply`; [`Failed::DAMAGED_LOG`] if a run lies beyond the image.
    pub fn replay(
        &self,
        buffer: &mut [u8],
        mut apply: impl FnMut(u64, &[u8]) -> Result<(), Failed>,
    ) -> Result<Option<u64>, Failed> {
        let (mut last, mut at) = (None::<Found>, 0);
        while let Some(found) = self.next(last.as_ref(), at, buffer)? {
            self.apply(&found, buffer, &mut apply)?;
            at = found.behind();
            last = Some(found);
        }
        Ok(last.map(|found| found.image_bytes()))
    }

    fn next(
        &self,
        last: Option<&Found>,
        at: u64,
        buffer: &mut [u8],
    ) -> Result<Option<Found>, Failed> {
        let mut bytes = [0; HEADER_BYTES];
        if self.file.read_at(&mut bytes, at).map_err(Failed)? < HEADER_BYTES {
            return Ok(None);
        }
        let mut parts = bytes.chunks_exact(8).map(word);
        let words: [u64; 8] = core::array::from_fn(|_| parts.next().unwrap_or(0));
        let [magic, salt, sequence, identity, _, payload, checksum, zero] = words;
        let follows = last
            .is_none_or(|last| salt == last.words[1] && sequence == last.words[2].wrapping_add(1));
        if magic != MAGIC || identity != self.identity || zero != 0 || !follows {
            return Ok(None);
        }
        let mut hasher = XxHash64::with_seed(salt);
        let (mut from, mut rest) = (at + HEADER_BYTES as u64, payload);
        while rest > 0 {
            let most = usize::try_from(rest).map_or(buffer.len(), |rest| rest.min(buffer.len()));
            let part = buffer.get_mut(..most).unwrap_or(&mut []);
            if most == 0 || self.file.read_at(part, from).map_err(Failed)? < most {
                return Ok(None);
            }
            hasher.write(part);
            (from, rest) = (from + most as u64, rest - most as u64);
        }
        words[..6].iter().for_each(|word| hasher.write(&word.to_le_bytes()));
        Ok((hasher.finish() == checksum).then_some(Found { words, at }))
    }

    fn apply(
        &self,
        found: &Found,
        buffer: &mut [u8],
        apply: &mut impl FnMut(u64, &[u8]) -> Result<(), Failed>,
    ) -> Result<(), Failed> {
        let wrong = Failed::DAMAGED_LOG;
        let mut at = found.at + HEADER_BYTES as u64;
        let end = at + found.payload();
        while at < end {
            let mut run = [0; RUN_BYTES];
            if self.file.read_at(&mut run, at).map_err(Failed)? < RUN_BYTES {
                return Err(wrong);
            }
            let (mut offset, mut rest) = (word(&run), word(&run[8..]));
            at += RUN_BYTES as u64;
            let fits = offset.checked_add(rest).is_some_and(|to| to <= found.image_bytes())
                && at.checked_add(rest).is_some_and(|to| to <= end);
            if !fits {
                return Err(wrong);
            }
            while rest > 0 {
                let most =
                    usize::try_from(rest).map_or(buffer.len(), |rest| rest.min(buffer.len()));
                let part = buffer.get_mut(..most).ok_or(wrong)?;
                if self.file.read_at(part, at).map_err(Failed)? < most {
                    return Err(wrong);
                }
                apply(offset, part)?;
                let most = most as u64;
                (offset, at, rest) = (offset + most, at + most, rest - most);
            }
        }
        Ok(())
    }
}
