//! The bytes of a log, as its protocol sees them: so that a ring, a file and a simulator serve the same protocol.

use core::ops::Range;

use crate::Fault;

/// Bytes of a log. What was written is durable after [`Storage::sync`], in whole sectors, and perhaps before.
pub trait Storage {
    /// Why an operation failed.
    type Error: From<Fault>;

    /// Reads from an offset on. Returns the number of bytes, which is smaller than the buffer at the end of the log only.
    ///
    /// # Errors
    /// The storage's.
    fn read(&self, at: u64, into: &mut [u8]) -> Result<usize, Self::Error>;

    /// Writes all of these bytes. They end within what [`Storage::allow`] has allowed.
    ///
    /// # Errors
    /// The storage's: some may be written.
    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Self::Error>;

    /// Refuses writes beyond a limit of the process. One call serves any number of writes that end at `end` or before.
    ///
    /// # Errors
    /// The storage's.
    fn allow(&self, end: u64) -> Result<(), Self::Error>;

    /// Waits until all that was written is durable.
    ///
    /// # Errors
    /// The storage's: what was written may be lost, and a second call does not help.
    fn sync(&self) -> Result<(), Self::Error>;

    /// Bytes of the log, its head included.
    ///
    /// # Errors
    /// The storage's.
    fn bytes(&self) -> Result<u64, Self::Error>;
}

/// Writes what is there once more, and makes it durable: what was read may be in a cache only, and is taken for written there.
///
/// # Errors
/// The storage's.
pub(crate) fn write_again<S: Storage>(
    storage: &S,
    range: Range<u64>,
    buffer: &mut [u8],
) -> Result<(), S::Error> {
    let mut at = range.start;
    while at < range.end {
        let most = usize::try_from(range.end - at).unwrap_or(usize::MAX).min(buffer.len());
        let part = buffer.get_mut(..most).unwrap_or(&mut []);
        let read = storage.read(at, part)?;
        // A log may end before the place of its next record.
        let Some(part) = part.get(..read).filter(|part| !part.is_empty()) else { break };
        storage.write(at, part)?;
        at += read as u64;
    }
    storage.sync()
}

impl<S: Storage + ?Sized> Storage for &S {
    type Error = S::Error;

    fn read(&self, at: u64, into: &mut [u8]) -> Result<usize, Self::Error> {
        (**self).read(at, into)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Self::Error> {
        (**self).write(at, bytes)
    }

    fn allow(&self, end: u64) -> Result<(), Self::Error> {
        (**self).allow(end)
    }

    fn sync(&self) -> Result<(), Self::Error> {
        (**self).sync()
    }

    fn bytes(&self) -> Result<u64, Self::Error> {
        (**self).bytes()
    }
}
