//! Files on a disk, an image, the log of its changes and the sums of its pages, as the log's protocol sees them: so that a simulator can take
//! their place.

use spandrel_redolog::Storage;

use crate::medium::Failed;

/// One of the files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// The content.
    Image,
    /// The log of its changes.
    Log,
    /// The sums of its pages.
    Sums,
}

/// Files as a disk has them: what was written is durable after [`Disk::sync`], in whole sectors, and perhaps before.
pub trait Disk {
    /// Reads from an offset on. Returns the number of bytes, which is smaller than the buffer at the end of the file only.
    ///
    /// # Errors
    /// The disk's.
    fn read(&self, which: Which, at: u64, into: &mut [u8]) -> Result<usize, Failed>;

    /// Writes all of these bytes. They end within what [`Disk::allow`] has allowed.
    ///
    /// # Errors
    /// The disk's: some may be written.
    fn write(&self, which: Which, at: u64, bytes: &[u8]) -> Result<(), Failed>;

    /// Refuses writes beyond a limit of the process. One call serves any number of writes that end at `end` or before.
    ///
    /// # Errors
    /// `EFBIG`.
    fn allow(&self, which: Which, end: u64) -> Result<(), Failed>;

    /// Waits until all that was written to the file is durable.
    ///
    /// # Errors
    /// The disk's: what was written may be lost, and a second call does not help.
    fn sync(&self, which: Which) -> Result<(), Failed>;

    /// Bytes of the file.
    ///
    /// # Errors
    /// The disk's.
    fn bytes(&self, which: Which) -> Result<u64, Failed>;

    /// Whether a write to the image is a store to memory, and no system call.
    fn is_mapped(&self) -> bool {
        false
    }
}

/// The log of a disk, as the record's protocol sees it.
#[derive(Debug)]
pub struct LogOf<'a, D: ?Sized>(pub &'a D);

impl<D: Disk + ?Sized> Storage for LogOf<'_, D> {
    type Error = Failed;

    fn read(&self, at: u64, into: &mut [u8]) -> Result<usize, Failed> {
        self.0.read(Which::Log, at, into)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Failed> {
        self.0.write(Which::Log, at, bytes)
    }

    fn allow(&self, end: u64) -> Result<(), Failed> {
        self.0.allow(Which::Log, end)
    }

    fn sync(&self) -> Result<(), Failed> {
        self.0.sync(Which::Log)
    }

    fn bytes(&self) -> Result<u64, Failed> {
        self.0.bytes(Which::Log)
    }
}
