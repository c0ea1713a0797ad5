//! A copy of a state, as it is between two batches.
//!
//! The copy grows from its front to its end. Meanwhile the replica brings records into the state's file: what they store in the part that was copied goes to the
//! copy too. So the copy has the state after a record at any time, as far as it was copied, and the program goes on. The copy needs no log: its tie says that it is
//! complete.

use core::ops::ControlFlow;

use spandrel_os::draft::Draft;
use spandrel_pmem::disk::{Disk, LogOf, Which};
use spandrel_pmem::one_file::OneFile;
use spandrel_pmem::tie::Ties;
use spandrel_pmem::{Buffer, Failed};
use spandrel_redolog::{BUFFER_BYTES, Point, Reader, Ring};

use crate::directory::{Directory, Paths};
use crate::error::Error;
use crate::inspect::Read;
use crate::store::has_state;
use crate::zeroes;

/// Bytes of one read and write. A piece of zeroes stays a hole.
const PIECE_BYTES: usize = 256 << 10;

/// A copy that is being made. Dropping it removes the file.
pub struct Copy {
    draft: Draft,
    to: Paths,
    buffer: Buffer,
    /// Bytes from the front that the copy has.
    copied: u64,
    /// What the copy's disk has refused.
    failed: Option<Failed>,
    _directory: Directory,
}

impl Copy {
    /// Begins a copy in a directory, which is made if it is missing, and has no state.
    ///
    /// # Errors
    /// [`Error::Occupied`], and those of [`Directory::open`].
    pub fn begin(to: Paths) -> Result<Self, Error> {
        // Of the state that is to be copied, which is being read: to open it would wait for that.
        if has_state(&to) == Ok(true) {
            return Err(Error::Occupied);
        }
        let directory = match Directory::open(to.directory.as_c(), true) {
            // That of an open state, as of the one that is to be copied.
            Err(Error::Locked) if has_state(&to) == Ok(true) => return Err(Error::Occupied),
            opened => opened?,
        };
        let to = directory.paths(to)?;
        match has_state(&to) {
            Ok(false) => {}
            Ok(true) | Err(Error::MissingState) => return Err(Error::Occupied),
            Err(why) => return Err(why),
        }
        let draft = Draft::new(to.state.as_c()).map_err(Error::System)?;
        let buffer = Buffer::new(PIECE_BYTES)?;
        Ok(Self { draft, to, buffer, copied: 0, failed: None, _directory: directory })
    }

    /// Bytes from the front that the copy has.
    pub fn copied(&self) -> u64 {
        self.copied
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        if self.failed.is_none() {
            let image = self.draft.image().map_err(Failed);
            self.failed = image.and_then(|to| OneFile(to).write(Which::Image, at, bytes)).err();
        }
    }

    /// A record stores bytes at an offset of the state: the copied part has them too.
    pub fn note(&mut self, at: u64, bytes: &[u8]) {
        let len = usize::try_from(self.copied.saturating_sub(at)).unwrap_or(usize::MAX);
        let part = bytes.get(..len.min(bytes.len())).unwrap_or(&[]);
        if !part.is_empty() {
            self.write(at, part);
        }
    }

    /// There is to be no copy, for that reason.
    pub fn fail(&mut self, why: Failed) {
        self.failed.get_or_insert(why);
    }

    /// Copies another piece of a state's file of `bytes` bytes. `Break`: the copy has all of it, or has failed.
    ///
    /// # Errors
    /// The error of the disk that the state lies on; `EIO`: the file is shorter.
    pub fn advance(&mut self, from: &impl Disk, bytes: u64) -> Result<ControlFlow<()>, Failed> {
        if self.copied >= bytes || self.failed.is_some() {
            return Ok(ControlFlow::Break(()));
        }
        let len = usize::try_from(bytes - self.copied).unwrap_or(usize::MAX).min(PIECE_BYTES);
        let at = self.copied;
        let piece = self.buffer.bytes().get_mut(..len).unwrap_or(&mut []);
        if from.read(Which::Image, at, piece)? < len {
            return Err(Failed(libc::EIO));
        }
        if !zeroes::are(piece)
            && let Err(why) = self
                .draft
                .image()
                .map_err(Failed)
                .and_then(|to| OneFile(to).write(Which::Image, at, piece))
        {
            self.failed = Some(why);
        }
        self.copied += len as u64;
        Ok(ControlFlow::Continue(()))
    }

    /// Ends a copy that has all of a state of `bytes` bytes, at that point. It survives a loss of power when this returns.
    ///
    /// # Errors
    /// What the copy's disk has refused: there is no copy.
    fn publish(self, mut ties: Ties, point: Point, bytes: u64) -> Result<(), Error> {
        if let Some(why) = self.failed {
            return Err(why.into());
        }
        let image = self.draft.image().map_err(Error::System)?;
        let now = image.bytes().map_err(Error::System)?;
        if bytes > now {
            image.grow(now, bytes).map_err(Error::System)?;
        }
        let file = OneFile(image);
        ties.write(&file, (point, true), bytes)?;
        image.sync().map_err(Error::System)?;
        ties.synced(&file);
        image.sync().map_err(Error::System)?;
        self.draft.publish(self.to.state.as_c()).map(drop).map_err(Error::System)
    }
}

/// A copy that has all of a state, and has no name yet. Any thread may give it one: a sync of a long file takes its time.
pub struct Whole {
    copy: Copy,
    ties: Ties,
    point: Point,
    bytes: u64,
}

impl Whole {
    /// Of a copy that has all of a state of `bytes` bytes, at that point.
    pub fn new(copy: Copy, ties: Ties, point: Point, bytes: u64) -> Self {
        Self { copy, ties, point, bytes }
    }

    /// Ends it. It survives a loss of power when this returns.
    ///
    /// # Errors
    /// What the copy's disk has refused: there is no copy.
    pub fn publish(self) -> Result<(), Error> {
        self.copy.publish(self.ties, self.point, self.bytes)
    }
}

/// Copies a state that no process has open, with all batches that its log has. `see` is called with the bytes that the copy has, and all.
///
/// # Errors
/// As for opening the state, which is not changed. The inner error is the copy's. There is no copy then.
pub fn copy(
    from: &Paths,
    to: Paths,
    see: &mut dyn FnMut(u64, u64),
) -> Result<Result<(), Error>, Error> {
    let (disk, ties, state) = Read::open(from)?;
    let tie = ties.newest();
    let mut bytes = disk.bytes(Which::Image)?;
    let mut copy = match Copy::begin(to) {
        Ok(copy) => copy,
        Err(why) => return Ok(Err(why)),
    };
    while copy.advance(&disk, bytes)?.is_continue() {
        see(copy.copied.min(bytes), bytes);
    }
    let mut point = tie.point;
    if disk.has_log() {
        let mut buffer = Buffer::new(BUFFER_BYTES)?;
        let log = LogOf(&disk);
        let ring = Ring::open(&log, state.identity, (tie.point, tie.is_complete), buffer.bytes())?;
        let mut reader = Reader::new(&ring, tie.point);
        copy.copied = u64::MAX;
        while reader.at() < ring.end() {
            let apply = |at, part: &[u8]| {
                copy.note(at, part);
                Ok(())
            };
            let header = reader.next(&log, buffer.bytes(), |_| Ok(()), apply)?;
            bytes = bytes.max(header.image_bytes);
        }
        point = reader.point();
    } else if !tie.is_complete {
        return Err(Error::MissingLog);
    }
    Ok(copy.publish(ties, point, bytes))
}
