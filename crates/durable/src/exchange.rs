//! Another log in the place of a state's log, in an order in which a failure at any time leaves a state that opens.
//!
//! 1. The state's file has all of the log and says durably that it needs none: the caller has seen to that ([`crate::recovery::recover`]).
//! 2. The new log is durable, and has no name.
//! 3. The old log's name is removed, durably: from here on there is no log, and the next opening makes one.
//! 4. The new log gets the name, durably.
//!
//! So there are never two logs that could continue the state. `crash` enumerates the steps, with names on a simulated disk.

use core::ffi::CStr;

use spandrel_os::draft::{Draft, sync_directory_of};
use spandrel_os::image::{self, Access, Image};
use spandrel_pheap::replicated::TIE_AT;
use spandrel_pmem::disk::LogOf;
use spandrel_redolog::{Point, Ring};

use crate::directory::Paths;
use crate::error::Error;
use crate::log_file::BlankLog;
use crate::recovery::{Recovered, recover};
use crate::ring_file::RingFile;
use crate::store::Files;

/// What gives a log its name.
pub(crate) trait Names {
    /// Makes the new log durable, for records that follow `base`. It has no name.
    fn begin(&mut self, base: Point) -> Result<Ring, Error>;

    /// Makes the names durable.
    fn sync(&mut self) -> Result<(), Error>;

    /// Takes the old log's name from it.
    fn remove(&mut self) -> Result<(), Error>;

    /// Whether there is a log of that name.
    fn is_there(&mut self) -> Result<bool, Error>;

    /// Gives the new log the name, which survives a loss of power when this returns. It is the state's log from now on.
    fn publish(&mut self) -> Result<(), Error>;
}

/// Puts the new log in the place of the old one, whose last record has the state at `base`.
///
/// # Errors
/// Whether there is a log is not known. The inner one: the log is the one before.
pub(crate) fn exchange(names: &mut impl Names, base: Point) -> Result<Result<Ring, Error>, Error> {
    // Whether the directory can be synced is known before a name goes: the process may have no descriptor left.
    let begun = names.begin(base).and_then(|ring| {
        names.sync()?;
        Ok(ring)
    });
    let ring = match begun {
        Ok(ring) => ring,
        Err(why) => return Ok(Err(why)),
    };
    if let Err(why) = names.remove() {
        // The answer may be lost, and the name be gone: batches in a file without a name would be lost with the process.
        match names.is_there() {
            Ok(true) => return Ok(Err(why)),
            Ok(false) => {}
            Err(_) => return Err(why),
        }
    }
    names.sync()?;
    names.publish()?;
    Ok(Ok(ring))
}

/// The names in a state's directory, and the new log.
struct Directories<'a> {
    files: &'a Files,
    name: &'a CStr,
    identity: u64,
    /// Before the log has begun.
    blank: Option<BlankLog>,
    /// Since it has.
    begun: Option<(Draft, RingFile)>,
}

impl Names for Directories<'_> {
    fn begin(&mut self, base: Point) -> Result<Ring, Error> {
        let blank = self.blank.take().ok_or(Error::System(libc::EINVAL))?;
        let (draft, file, ring) = blank.begin(self.identity, base)?;
        self.begun = Some((draft, file));
        Ok(ring)
    }

    fn sync(&mut self) -> Result<(), Error> {
        sync_directory_of(self.name).map_err(Error::System)
    }

    fn remove(&mut self) -> Result<(), Error> {
        image::remove(self.name).map_err(Error::System)
    }

    fn is_there(&mut self) -> Result<bool, Error> {
        match Image::open(self.name, Access::Read) {
            Ok(_) => Ok(true),
            Err(libc::ENOENT) => Ok(false),
            Err(why) => Err(Error::System(why)),
        }
    }

    fn publish(&mut self) -> Result<(), Error> {
        let (draft, file) = self.begun.take().ok_or(Error::System(libc::EINVAL))?;
        draft.publish(self.name).map_err(Error::System)?;
        // SAFETY: promised by the caller of `put_log`.
        unsafe { self.files.set_ring(file) };
        Ok(())
    }
}

/// Puts a new log in the place of that of a state that has all of it durably and says so: a failure in between leaves a state that needs no log.
///
/// # Errors
/// [`Error::System`]; the inner one: the log is the one before.
///
/// # Safety
/// No other thread uses the files.
pub(crate) unsafe fn put_log(
    files: &Files,
    paths: &Paths,
    identity: u64,
    recovered: &Recovered,
    blank: BlankLog,
) -> Result<Result<Ring, Error>, Error> {
    let name = paths.log.as_c();
    let mut names = Directories { files, name, identity, blank: Some(blank), begun: None };
    exchange(&mut names, recovered.ring.last())
}

/// Which state it is, and where.
pub struct Place {
    /// The paths of its files.
    pub paths: Paths,
    /// The number that the state is known by.
    pub identity: u64,
}

/// Gives a state that is open, and whose replica has ended, another log, which `make` makes. Its epoch has begun. Beside it, why there is no such log: the state has
/// the one before then.
///
/// # Errors
/// As for opening the state.
///
/// # Safety
/// No other thread uses the files.
pub unsafe fn replace_log(
    files: &Files,
    at: &Place,
    make: impl FnOnce() -> Result<BlankLog, Error>,
) -> Result<(Recovered, Result<(), Error>), Error> {
    let lengthen = |bytes| files.lengthen(bytes);
    let mut recovered = recover(files, (at.identity, TIE_AT), &lengthen, &mut |_, _| ())?;
    let put = match make() {
        // SAFETY: promised by the caller.
        Ok(blank) => unsafe { put_log(files, &at.paths, at.identity, &recovered, blank)? },
        Err(why) => Err(why),
    };
    let replaced = put.map(|ring| recovered.ring = ring);
    recovered.ring.begin(&LogOf(files), image::unique()[0])?;
    let shape = recovered.ring.shape();
    files.ring().forget(shape, recovered.ring.end(), recovered.ring.end() + shape.capacity);
    Ok((recovered, replaced))
}
