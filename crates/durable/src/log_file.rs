//! The file of a log, before it has its name.

use spandrel_os::draft::Draft;
use spandrel_os::filesystem::is_in_memory;
use spandrel_os::image::unique;
use spandrel_pages::PAGE_BYTES;
use spandrel_redolog::{Point, Ring, Shape};

use crate::directory::Paths;
use crate::error::Error;
use crate::ring_file::RingFile;
use crate::zeroes;

/// Bytes of a new log: what a disk of this decade writes in half a second at most.
const LOG_BYTES: u64 = 64 << 20;

/// Zeroes that are synced at a time: a disk writes them in some milliseconds, and other writes come in between.
const SYNCED_BYTES: u64 = 8 << 20;

/// The length of a log, of that many bytes at least; `None`: of a new one that has no other.
///
/// # Errors
/// [`Error::System`] with `EFBIG`: no log is as long.
pub fn capacity_of(bytes: Option<u64>) -> Result<u64, Error> {
    let page = PAGE_BYTES as u64;
    let wanted = bytes.unwrap_or(LOG_BYTES).max(page);
    let capacity = wanted.checked_next_multiple_of(page).filter(|bytes| *bytes < 1 << 46);
    capacity.ok_or(Error::System(libc::EFBIG))
}

/// Whether the file system of a state has room for a file of that length four times over, so that a log does not take what others need.
pub fn has_plenty(paths: &Paths, bytes: u64) -> bool {
    let found = rustix::fs::statvfs(paths.directory.as_c());
    found
        .is_ok_and(|found| found.f_bavail.saturating_mul(found.f_frsize) >= bytes.saturating_mul(4))
}

/// A file of zeroes as long as a log. Dropping it removes the file.
pub struct BlankLog {
    draft: Draft,
    file: RingFile,
    shape: Shape,
}

impl BlankLog {
    /// Of that many bytes ([`capacity_of`]), in the directory of a state. On a disk it takes as long as writing them: `goes_on` is asked now and then.
    ///
    /// # Errors
    /// [`Error::System`]: no room, a limit; `ECANCELED`: it does not go on.
    pub fn new(
        paths: &Paths,
        bytes: Option<u64>,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<Self, Error> {
        let is_in_memory = is_in_memory(paths.directory.as_c());
        let align = if is_in_memory { 64 } else { PAGE_BYTES as u64 };
        let shape = Shape { capacity: capacity_of(bytes)?, align };
        let draft = Draft::new(paths.log.as_c()).map_err(Error::System)?;
        let image = draft.image().map_err(Error::System)?;
        // Room first: without it nothing is written.
        image.grow(0, shape.file_bytes()).map_err(Error::System)?;
        // On a disk written, not only allocated: the first write to an allocated block waits for the file system's own log.
        let written = if is_in_memory { 0 } else { shape.file_bytes() };
        for at in (0..written).step_by(zeroes::LEN) {
            if !goes_on() {
                return Err(Error::System(libc::ECANCELED));
            }
            let rest = usize::try_from(shape.file_bytes() - at).unwrap_or(usize::MAX);
            image.write_at(zeroes::of(rest), at).map_err(Error::System)?;
            if at % SYNCED_BYTES == 0 {
                image.sync().map_err(Error::System)?;
            }
        }
        image.sync().map_err(Error::System)?;
        let file = RingFile::blank(image, is_in_memory)?;
        Ok(Self { draft, file, shape })
    }

    /// Bytes for records.
    pub fn capacity(&self) -> u64 {
        self.shape.capacity
    }

    /// The log of a state of that identity, durably, for records that follow `base`.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn begin(self, identity: u64, base: Point) -> Result<(Draft, RingFile, Ring), Error> {
        let Self { draft, file, shape } = self;
        let ring = Ring::create(&file, identity, shape, (base, unique()[0]))?;
        draft.image().and_then(|image| image.sync()).map_err(Error::System)?;
        Ok((draft, file, ring))
    }
}

/// Makes the log of a state that needs none.
///
/// # Errors
/// [`Error::System`].
pub fn make_log(
    paths: &Paths,
    identity: u64,
    base: Point,
    bytes: Option<u64>,
) -> Result<(), Error> {
    let (draft, ..) = BlankLog::new(paths, bytes, &mut || true)?.begin(identity, base)?;
    draft.publish(paths.log.as_c()).map(drop).map_err(Error::System)
}
