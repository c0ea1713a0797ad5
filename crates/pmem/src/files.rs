//! An image on an ordinary file, and the log and the sums beside it: opened for one process, and what the log has brought into the image.

use core::ffi::CStr;
use core::time::Duration;

use spandrel_os::clock;
use spandrel_os::draft::{self, Draft};
use spandrel_os::image::{self, Access, Image};
use spandrel_pages::PAGE_BYTES;
use spandrel_redolog::{BUFFER_BYTES, HEAD_BYTES, Log, head, parse_head};

use crate::disk::{Disk, LogOf, Which};
use crate::loan::Nap;
use crate::media::Place;
use crate::medium::Failed;
use crate::old_log::OldLog;
use crate::room::Buffer;
use crate::sums::{self, Sums};
use crate::sums_file::{self, Keep};
use crate::tie::{Found, Ties};
use crate::wal::Wal;

/// How long readers are waited for.
const READERS: Duration = Duration::from_secs(10);

/// Files that lost their name while they were locked, one after the other. A file system whose numbers of files change looks the same, and is
/// believed then.
const TURNS: usize = 16;

/// The files.
pub struct Files {
    /// What is kept.
    pub image: Image,
    /// Its log, if there is one.
    pub log: Option<Image>,
    /// The sums of its pages, if there are some.
    pub sums: Option<Image>,
}

impl Files {
    fn of(&self, which: Which) -> Option<&Image> {
        match which {
            Which::Image => Some(&self.image),
            Which::Log => self.log.as_ref(),
            Which::Sums => self.sums.as_ref(),
        }
    }
}

impl Files {
    /// Reserves room on the disk for the sums of an image of that length. Without it they are written later, when there is room.
    pub fn reserve_sums(&self, image_bytes: u64) {
        if let Some(file) = &self.sums {
            let _ = file.reserve(sums::bytes(image_bytes / PAGE_BYTES as u64));
        }
    }

    /// Reserves room on the disk for that number of bytes of the log, which becomes no longer by that.
    ///
    /// # Errors
    /// The error's number: there is no room.
    pub fn reserve_log(&self, bytes: u64) -> Result<(), Failed> {
        self.log.as_ref().map_or(Ok(()), |log| log.reserve(bytes).map_err(Failed))
    }
}

impl Disk for Files {
    fn read(&self, which: Which, at: u64, into: &mut [u8]) -> Result<usize, Failed> {
        self.of(which).map_or(Ok(0), |file| file.read_at(into, at).map_err(Failed))
    }

    fn write(&self, which: Which, at: u64, bytes: &[u8]) -> Result<(), Failed> {
        let file = self.of(which).ok_or(Failed(libc::EBADF))?;
        file.write_at(bytes, at).map_err(Failed)
    }

    fn allow(&self, which: Which, end: u64) -> Result<(), Failed> {
        self.of(which).map_or(Ok(()), |file| file.check_limit(end).map_err(Failed))
    }

    fn sync(&self, which: Which) -> Result<(), Failed> {
        let synced = self.of(which).map_or(Ok(()), |file| file.sync().map_err(Failed));
        // Whatever the reason is: what was written may be lost, and no later call tells. A full disk is no exception.
        synced.map_err(|why| if why.is_full() { Failed(libc::EIO) } else { why })
    }

    fn bytes(&self, which: Which) -> Result<u64, Failed> {
        self.of(which).map_or(Ok(0), |file| file.bytes().map_err(Failed))
    }
}

/// Opens a file and locks it for one process. Processes that only read it, for a copy, are waited for.
///
/// # Errors
/// The error's number: `EWOULDBLOCK` if another process has it, or many read it for long; `ESTALE` if it is not the file that the place
/// is of.
pub fn locked(place: &Place<'_>) -> Result<Image, Failed> {
    let until = u128::from(clock::nanos()) + READERS.as_nanos();
    let (mut nap, mut turns) = (Nap::new(), 0);
    loop {
        let image = Image::open(place.path, Access::Write).map_err(Failed)?;
        match image.lock(Access::Write) {
            Err(libc::EWOULDBLOCK) if u128::from(clock::nanos()) < until => {
                // A lock of a reader would not be refused.
                image.lock(Access::Read).map_err(Failed)?;
                image.unlock();
                nap.take();
            }
            // A file that lost its name before it was locked is not the one that others find.
            Ok(()) if turns < TURNS && !image.is_named(place.path).map_err(Failed)? => turns += 1,
            locked => {
                locked.map_err(Failed)?;
                check_identity(&image, place)?;
                return Ok(image);
            }
        }
    }
}

/// Refuses a file that is not the one that the place is of.
///
/// # Errors
/// `ESTALE`; other numbers: the file system's.
pub fn check_identity(image: &Image, place: &Place<'_>) -> Result<(), Failed> {
    let Some(places) = place.identity_at else { return Ok(()) };
    for at in places {
        let mut bytes = [0; 8];
        let read = image.read_at(&mut bytes, at).map_err(Failed)?;
        if read == bytes.len() && u64::from_le_bytes(bytes) == place.identity {
            return Ok(());
        }
    }
    Err(Failed(libc::ESTALE))
}

/// Opens a log, if there is one.
///
/// # Errors
/// The error's number.
pub fn open_log(path: &CStr, access: Access) -> Result<Option<Image>, Failed> {
    match Image::open(path, access) {
        Ok(log) => Ok(Some(log)),
        Err(libc::ENOENT) => Ok(None),
        // A link or a directory is not ours.
        Err(libc::ELOOP | libc::EINVAL | libc::EISDIR) => Err(Failed::NOT_A_LOG),
        Err(why) => Err(Failed(why)),
    }
}

/// Opens the log of an image that was locked, if there is one, and locks it. A process that has an image open which had this path before
/// writes to the same log.
///
/// # Errors
/// As for [`open_log`]; `EWOULDBLOCK`: another process has the log.
fn lock_log(place: &Place<'_>) -> Result<Option<Image>, Failed> {
    let mut turns = 0;
    loop {
        let Some(log) = open_log(place.log, Access::Write)? else { return Ok(None) };
        log.lock(Access::Write).map_err(Failed)?;
        // Its owner may have removed it in between.
        if turns == TURNS || log.is_named(place.log).map_err(Failed)? {
            return Ok(Some(log));
        }
        turns += 1;
    }
}

/// Makes the log of an image, which has none. An empty file of that name is taken away: nothing is in it.
///
/// # Errors
/// The error's number; [`Failed::NOT_A_LOG`] if there is a file of that name that holds something.
pub fn make_log(path: &CStr, identity: u64) -> Result<Image, Failed> {
    let draft = Draft::new(path).map_err(Failed)?;
    let image = draft.image().map_err(Failed)?;
    image.check_limit(HEAD_BYTES as u64).map_err(Failed)?;
    image.write_at(&head(identity), 0).map_err(Failed)?;
    image.sync().map_err(Failed)?;
    image.lock(Access::Write).map_err(Failed)?;
    refuse_log(path, identity)?;
    match draft.publish(path) {
        Err(libc::EEXIST) => Err(Failed::NOT_A_LOG),
        published => published.map_err(Failed),
    }
}

/// Looks that no file has the log's name. An empty one is taken away.
///
/// # Errors
/// The error's number; [`Failed::NOT_A_LOG`] and [`Failed::FOREIGN_LOG`]: it is not the log of an image that is made just now.
pub fn refuse_log(path: &CStr, identity: u64) -> Result<(), Failed> {
    let Some(log) = open_log(path, Access::Read)? else { return Ok(()) };
    if log.bytes().map_err(Failed)? == 0 {
        return draft::remove_name(path, &log).map_err(Failed);
    }
    let mut bytes = [0; HEAD_BYTES];
    let read = log.read_at(&mut bytes, 0).map_err(Failed)?;
    parse_head(bytes.get(..read).unwrap_or(&[]), identity)?;
    Err(Failed::FOREIGN_LOG)
}

/// Has an image that was locked hold all that its log has; see [`Wal::recover`].
///
/// # Errors
/// As there, and those of [`Ties::read`]: nothing was written then.
fn recover(files: &Files, place: &Place<'_>, buffer: &mut [u8]) -> Result<Wal, Failed> {
    let mut sums = read_sums(files, place)?;
    let ties = match Ties::read(files, place.tie, place.identity)? {
        Found::Ties(ties) => ties,
        Found::Nothing if place.is_old => {
            let ties = Ties::new(place.tie, place.identity, 0);
            let newest = ties.newest();
            let log = Log::open(&LogOf(files), place.identity, newest.point, buffer)?;
            log.fits(newest.point, newest.is_complete)?;
            absorb_old(files, place, buffer)?;
            // Nothing in such an image says which state it is in.
            sums = None;
            ties
        }
        Found::Nothing => return Err(Failed::DAMAGED_TIE),
    };
    let numbers = (place.identity, drawn());
    Wal::recover(files, numbers, ties, sums, buffer, |bytes| lengthen(files, bytes))
}

/// The sums that the file beside the image has. `None`: there are none.
fn read_sums(files: &Files, place: &Place<'_>) -> Result<Option<Sums>, Failed> {
    let mut sums = match files.sums {
        Some(_) => Sums::read(files, place.identity, (place.tie, place.asking as u64))?,
        None => None,
    };
    if let Some(sums) = &mut sums {
        sums.limit(files.bytes(Which::Image)? / PAGE_BYTES as u64);
    }
    Ok(sums)
}

/// Opens the file with the sums, if it is one of this image.
fn open_sums(mut files: Files, place: &Place<'_>) -> Result<Files, Failed> {
    let opened = sums_file::open(place, Access::Write).and_then(|file| {
        let is_there = file.is_some();
        files.sums = file;
        match read_sums(&files, place)? {
            None if is_there => Err(Failed::FOREIGN_SUMS),
            _ => Ok(()),
        }
    });
    match opened {
        // Without the option such a file is left alone. Any other error would end the sums in silence.
        Err(Failed::FOREIGN_SUMS) if place.keep != Keep::Always => files.sums = None,
        opened => opened?,
    }
    Ok(files)
}

/// Has an image that holds all that its log has get the sums that the place says.
fn keep_sums(
    files: &mut Files,
    wal: &mut Wal,
    place: &Place<'_>,
    buffer: &mut [u8],
) -> Result<(), Failed> {
    let is_made = match place.keep {
        Keep::Always => wal.sums().is_none(),
        Keep::Anew => files.sums.is_some(),
        Keep::IfThere | Keep::Never => false,
    };
    if is_made || place.keep == Keep::Never || wal.sums().is_none() {
        wal.set_sums(None);
        let old = files.sums.take();
        if let Some(old) = old.filter(|_| place.keep != Keep::IfThere) {
            draft::remove_name(place.sums, &old).map_err(Failed)?;
        }
    }
    if let Some(sums) = wal.sums_mut()
        && sums.cut(files)?
        && let Some(file) = &files.sums
    {
        file.shorten(sums.bytes()).map_err(Failed)?;
    }
    if is_made {
        files.sums = Some(sums_file::make(place, &files.image, wal.point(), buffer)?);
        wal.set_sums(read_sums(files, place)?);
    }
    Ok(())
}

fn lengthen(files: &Files, bytes: u64) -> Result<(), Failed> {
    let now = files.image.bytes().map_err(Failed)?;
    if bytes > now { files.image.grow(now, bytes).map_err(Failed) } else { Ok(()) }
}

/// Writes what a log of the first version has to the image. An old log that is another image's is left alone, as any other file of that name.
fn absorb_old(files: &Files, place: &Place<'_>, buffer: &mut [u8]) -> Result<(), Failed> {
    let Ok(file) = Image::open(place.old_log, Access::Read) else { return Ok(()) };
    let Some(old) = OldLog::of(&file, place.identity)? else { return Ok(()) };
    let write = |at: u64, bytes: &[u8]| {
        files.allow(Which::Image, at.saturating_add(bytes.len() as u64))?;
        files.write(Which::Image, at, bytes)
    };
    if let Some(bytes) = old.replay(buffer, write)? {
        lengthen(files, bytes)?;
        files.sync(Which::Image)?;
    }
    Ok(())
}

/// Has an image that was locked hold all that its log has. A log that does not fit is set aside where the place forgives that.
///
/// # Errors
/// As for [`recover`] and [`open_log`].
pub fn recovered(
    image: Image,
    place: &Place<'_>,
    buffer: &mut [u8],
) -> Result<(Files, Wal), Failed> {
    let is_forgiven =
        |why: Failed| place.forgives && (why.is_of_log() || why == Failed::DAMAGED_TIE);
    let (mut log, mut is_set_aside) = (None, false);
    match lock_log(place) {
        Err(why) if is_forgiven(why) => {
            forgive(&image, place)?;
            is_set_aside = true;
        }
        opened => log = opened?,
    }
    let mut files = open_sums(Files { image, log, sums: None }, place)?;
    let mut wal = match recover(&files, place, buffer) {
        Err(why) if is_forgiven(why) && !is_set_aside => {
            forgive(&files.image, place)?;
            files.log = None;
            recover(&files, place, buffer)?
        }
        recovered => recovered?,
    };
    keep_sums(&mut files, &mut wal, place, buffer)?;
    Ok((files, wal))
}

/// The same for an image that is mapped from now on, which needs no log: it is taken away.
///
/// # Errors
/// As for [`recovered`].
pub fn absorb(image: Image, place: &Place<'_>) -> Result<Image, Failed> {
    let mut buffer = Buffer::new(BUFFER_BYTES)?;
    let (mut files, mut wal) = recovered(image, place, buffer.bytes())?;
    if let Some(sums) = wal.sums_mut() {
        sums.give_up(&files, drawn())?;
    }
    if let Some(log) = files.log.take() {
        // The image has all of it, and will be in states that no record continues. A log with records would be refused from then on, where
        // its name stays or comes back after a power failure; an empty one only takes room.
        log.shorten(HEAD_BYTES as u64).and_then(|()| log.sync()).map_err(Failed)?;
        let _ = draft::remove_name(place.log, &log);
    }
    Ok(files.image)
}

/// Sets a log that does not fit aside, under a name of its own, and has the image say that it is complete as it is: whatever records had for
/// it is given up.
///
/// # Errors
/// The disk's; `EEXIST` if another log was set aside before.
fn forgive(image: &Image, place: &Place<'_>) -> Result<(), Failed> {
    let lines = Ties::fresh(place.identity, drawn(), 0);
    image.check_limit(place.tie + lines.len() as u64).map_err(Failed)?;
    match image::rename(place.log, place.aside) {
        Err(libc::ENOENT) => {}
        renamed => {
            renamed.map_err(Failed)?;
            draft::sync_directory_of(place.aside).map_err(Failed)?;
        }
    }
    image.write_at(&lines, place.tie).map_err(Failed)?;
    image.sync().map_err(Failed)
}

/// A number that no log of this image has had, as good as certain.
pub fn drawn() -> u64 {
    image::unique()[0]
}
