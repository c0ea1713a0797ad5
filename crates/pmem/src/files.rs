//! An image on an ordinary file and the log beside it: opened for one, and what the log has brought into the image.

use core::ffi::CStr;
use core::time::Duration;

use spandrel_os::clock;
use spandrel_os::image::{Access, Image};

use crate::loan::Nap;
use crate::log::{BUFFER_BYTES, Disk, Log, Which};
use crate::medium::Failed;
use crate::room::Buffer;

/// How long readers are waited for.
const READERS: Duration = Duration::from_secs(10);

/// The two files.
pub struct Files {
    pub image: Image,
    pub log: Image,
}

impl Files {
    fn of(&self, which: Which) -> &Image {
        match which {
            Which::Image => &self.image,
            Which::Log => &self.log,
        }
    }
}

impl Disk for Files {
    fn read(&self, which: Which, at: u64, into: &mut [u8]) -> Result<usize, Failed> {
        self.of(which).read_at(into, at).map_err(Failed)
    }

    fn write(&self, which: Which, at: u64, bytes: &[u8]) -> Result<(), Failed> {
        self.of(which).write_at(bytes, at).map_err(Failed)
    }

    fn sync(&self, which: Which) -> Result<(), Failed> {
        self.of(which).sync().map_err(Failed)
    }
}

/// Opens a file for one who has it alone. Those who only read it, for a copy, are waited for.
///
/// # Errors
/// The error's number: `EWOULDBLOCK` if somebody has it, or many read it for long.
pub fn locked(path: &CStr) -> Result<Image, Failed> {
    let image = Image::open(path, Access::Write).map_err(Failed)?;
    let until = u128::from(clock::nanos()) + READERS.as_nanos();
    let mut nap = Nap::new();
    loop {
        match image.lock(Access::Write) {
            Err(libc::EWOULDBLOCK) if u128::from(clock::nanos()) < until => {
                // Not among readers.
                image.lock(Access::Read).map_err(Failed)?;
                image.unlock();
                nap.take();
            }
            locked => return locked.map(|()| image).map_err(Failed),
        }
    }
}

/// Reads the log, and writes what it has to the image, which somebody has locked: there is no record in it then.
///
/// # Errors
/// The disk's; `EBADMSG`: the log is that of another image.
pub fn recover(files: &Files, identity: u64, buffer: &mut [u8]) -> Result<Log, Failed> {
    let mut log = Log::open(files, identity, drawn(), buffer)?;
    if let Some(bytes) = log.image_bytes() {
        let now = files.image.bytes().map_err(Failed)?;
        if bytes > now {
            files.image.grow(now, bytes).map_err(Failed)?;
        }
        log.replay(files, buffer, |at, bytes| files.write(Which::Image, at, bytes))?;
        log.begin_anew(files, drawn())?;
    }
    Ok(log)
}

/// The same for an image that is used without a log from now on: what is only in one would be lost.
///
/// # Errors
/// As for [`recover`].
pub fn absorb(image: Image, log: &CStr, identity: u64) -> Result<Image, Failed> {
    let log = match Image::open(log, Access::Write) {
        Err(libc::ENOENT) => return Ok(image),
        opened => opened.map_err(Failed)?,
    };
    let files = Files { image, log };
    let mut buffer = Buffer::new(BUFFER_BYTES)?;
    recover(&files, identity, buffer.bytes())?;
    // It says already that it has no record: if this fails it only takes room.
    let _ = files.log.clear();
    Ok(files.image)
}

/// A number that no log of this image has had, as good as certain.
pub fn drawn() -> u64 {
    // SAFETY: it tells a number.
    let process = unsafe { libc::getpid() }.unsigned_abs();
    spandrel_os::clock::nanos().rotate_left(32) ^ u64::from(process)
}
