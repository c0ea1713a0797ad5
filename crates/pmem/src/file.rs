//! An image on an ordinary file, which changes from checkpoint to checkpoint, and in between not at all.
//!
//! The file is mapped privately: what is stored stays in the process. A checkpoint writes the pages that were written since
//! the last one to the [`log`](crate::log), waits for the disk, and writes them to the file. After any failure the file and
//! its log have the image as it was at the last checkpoint that was waited for, or at the one that was going on.

use core::ffi::CStr;
use core::ptr::NonNull;
use core::slice;
use core::sync::atomic::{AtomicUsize, Ordering::*};

use spandrel_os::image::{self, Access, Image, Mapping};
use spandrel_os::vm;
use spandrel_os::written::Written;
use spandrel_pages::{MIB, PAGE_BYTES};
use spandrel_sync::Lock;

use crate::files::{self, Files, drawn};
use crate::log::{BUFFER_BYTES, Disk, Log, Which};
use crate::medium::{Failed, Medium};
use crate::room::{self, Buffer};
use crate::unmap;

/// A log that has become longer begins anew with the next checkpoint: the disk is waited for twice more then.
const LOG_BYTES: u64 = 64 * MIB as u64;

/// Runs of one checkpoint at most: of more the pages between are written as well.
const MOST_RUNS: usize = 1 << 20;

/// Runs of pages that were written: first page and count.
struct Runs {
    memory: Buffer,
    room: usize,
    count: usize,
}

impl Runs {
    /// For an image of so many pages, of which every other one may be a run.
    fn new(pages: usize) -> Result<Self, Failed> {
        let room = (pages / 2 + 1).min(MOST_RUNS);
        Ok(Self { memory: Buffer::new(room * size_of::<[u32; 2]>())?, room, count: 0 })
    }

    fn at(&self) -> NonNull<[u32; 2]> {
        self.memory.at().cast()
    }

    /// Adds a run, or makes one of all if there are too many.
    fn add(&mut self, at: usize, len: usize) {
        let run = [(at / PAGE_BYTES) as u32, (len / PAGE_BYTES) as u32];
        if self.count < self.room {
            // SAFETY: there is room for so many.
            unsafe { self.at().add(self.count).write(run) };
            self.count += 1;
            return;
        }
        let all =
            |[from, to]: [u32; 2], run: &[u32; 2]| [from.min(run[0]), to.max(run[0] + run[1])];
        let [from, to] = self.all().iter().fold([run[0], run[0] + run[1]], all);
        // SAFETY: there is room for one.
        unsafe { self.at().write([from, to - from]) };
        self.count = 1;
    }

    fn all(&self) -> &[[u32; 2]] {
        // SAFETY: so many were written.
        unsafe { slice::from_raw_parts(self.at().as_ptr(), self.count) }
    }
}

struct State {
    log: Log,
    /// What is not in the log yet.
    runs: Runs,
    written: Written,
    buffer: Buffer,
    /// The disk has failed: nobody knows what is durable.
    failed: Option<Failed>,
}

impl State {
    fn check(&self) -> Result<(), Failed> {
        self.failed.map_or(Ok(()), Err)
    }

    /// What failed has lost something, or nobody knows what: from now on all fails.
    fn note(&mut self, outcome: Result<(), Failed>) -> Result<(), Failed> {
        self.failed = self.failed.or(outcome.err());
        outcome
    }

    fn begin_anew(&mut self, files: &Files) -> Result<(), Failed> {
        let outcome = self.log.begin_anew(files, drawn());
        self.note(outcome)
    }
}

/// See the head of this file.
pub struct File {
    files: Files,
    base: NonNull<u8>,
    reserved: usize,
    bytes: AtomicUsize,
    state: Lock<State>,
}

// SAFETY: the mappings are its own; who stores to the image must not do so to the same bytes as others, and not during a
// checkpoint; all else is locked.
unsafe impl Send for File {}
// SAFETY: as above.
unsafe impl Sync for File {}

impl File {
    /// Makes a file of `bytes` zeroes, with room to grow to `limit`, both rounded up to whole pages, and its log, and maps it, at `base` if that is
    /// given. `identity` is a number that no other image has.
    ///
    /// # Errors
    /// The error's number: `EEXIST` if there is one; `EADDRINUSE` if something lies at `base`; `ENOSPC`; `EFBIG` beyond 16 TiB; `ENOMEM` if there is no
    /// address space, ... No file is left then that was not there before.
    pub fn create(
        path: &CStr,
        log: &CStr,
        identity: u64,
        bytes: usize,
        limit: usize,
        base: Option<usize>,
    ) -> Result<Self, Failed> {
        let image = Image::create(path).map_err(Failed)?;
        let make = |image: Image| {
            image.lock(Access::Write).map_err(Failed)?;
            let bytes = bytes.max(1).next_multiple_of(PAGE_BYTES);
            image.grow(0, bytes as u64).map_err(Failed)?;
            let made = Image::create(log).map_err(Failed)?;
            Self::map(Files { image, log: made }, identity, limit, base)
                .inspect_err(|_| image::discard(log))
        };
        make(image).inspect_err(|_| image::discard(path))
    }

    /// Opens a file as it was at the last checkpoint, at `base` if that is given. The log may be missing if the file was closed.
    ///
    /// # Errors
    /// The error's number: `EWOULDBLOCK` if somebody else has it open, `EADDRINUSE` if something lies at `base` already,
    /// `EBADMSG` if the log is that of another image, `EFBIG` beyond 16 TiB, ...
    pub fn open(
        path: &CStr,
        log: &CStr,
        identity: u64,
        limit: usize,
        base: Option<usize>,
    ) -> Result<Self, Failed> {
        let image = files::locked(path)?;
        let log = match Image::open(log, Access::Write) {
            Err(libc::ENOENT) => Image::create(log),
            opened => opened,
        };
        let files = Files { image, log: log.map_err(Failed)? };
        Self::map(files, identity, limit, base)
    }

    fn map(files: Files, identity: u64, limit: usize, base: Option<usize>) -> Result<Self, Failed> {
        let mut buffer = Buffer::new(BUFFER_BYTES)?;
        let log = files::recover(&files, identity, buffer.bytes())?;
        let large = Failed(libc::EFBIG);
        let bytes = usize::try_from(files.image.bytes().map_err(Failed)?).map_err(|_| large)?;
        let bytes = bytes / PAGE_BYTES * PAGE_BYTES;
        if limit.max(bytes).div_ceil(PAGE_BYTES) > u32::MAX as usize {
            return Err(large);
        }
        let runs = Runs::new(limit.max(bytes).div_ceil(PAGE_BYTES))?;
        let (base, reserved) = room::reserve(limit.max(bytes), base)?;
        // SAFETY: the reservation is nobody else's.
        let written = unsafe {
            let mapped = if bytes > 0 {
                files.image.map(base.as_ptr(), 0, bytes, Mapping::Private)
            } else {
                Ok(())
            };
            let written = mapped.and_then(|()| Written::watch(base.as_ptr(), bytes, reserved));
            written.map_err(|why| {
                vm::release(base.as_ptr(), reserved);
                Failed(why)
            })?
        };
        let state = State { log, runs, written, buffer, failed: None };
        let (bytes, state) = (AtomicUsize::new(bytes), Lock::new(state));
        Ok(Self { files, base, reserved, bytes, state })
    }

    /// The image's bytes in a run.
    ///
    /// # Safety
    /// Nobody stores there.
    unsafe fn run(&self, [page, count]: [u32; 2]) -> (u64, &[u8]) {
        let at = page as usize * PAGE_BYTES;
        // SAFETY: within the image; promised by the caller.
        let bytes = unsafe {
            slice::from_raw_parts(self.base.as_ptr().add(at), count as usize * PAGE_BYTES)
        };
        (at as u64, bytes)
    }

    fn write_record(&self, state: &mut State) -> Result<(), Failed> {
        let State { log, runs, buffer, .. } = state;
        let mut record = log.record(&self.files, self.bytes() as u64, buffer.bytes());
        for run in runs.all() {
            // SAFETY: nobody stores during a checkpoint.
            let (at, bytes) = unsafe { self.run(*run) };
            record.run(at, bytes)?;
        }
        record.commit()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: who stored to it borrowed it.
        unsafe { unmap::release(self.base.as_ptr(), self.reserved, self.bytes()) };
    }
}

// SAFETY: the mapping stays where it is as long as this lives; what is not in the file does not change it.
unsafe impl Medium for File {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn bytes(&self) -> usize {
        self.bytes.load(Acquire)
    }

    fn limit(&self) -> usize {
        self.reserved
    }

    fn present(&self) -> Result<usize, Failed> {
        room::present(&self.files.image, self.bytes())
    }

    fn grow(&self, bytes: usize) -> Result<(), Failed> {
        let state = self.state.lock();
        let from = self.bytes.load(Acquire);
        let Some(to) = room::grown(from, bytes, self.reserved)? else { return Ok(()) };
        self.files.image.grow(from as u64, to as u64).map_err(Failed)?;
        // SAFETY: within the reservation, behind what is in use.
        unsafe {
            let at = self.base.as_ptr().add(from);
            self.files.image.map(at, from as u64, to - from, Mapping::Private).map_err(Failed)?;
            state.written.extend(to).map_err(Failed)?;
        }
        self.bytes.store(to, Release);
        Ok(())
    }

    #[inline]
    fn write_back(&self, _at: usize, _len: usize) {}

    #[inline]
    fn fence(&self) {}

    fn checkpoint(&self) -> Result<(), Failed> {
        let mut state = self.state.lock();
        let state = &mut *state;
        state.check()?;
        let taken = state.written.take(|at, len| state.runs.add(at, len)).map_err(Failed);
        state.note(taken)?;
        let is_as_long = state.log.image_bytes().is_none_or(|bytes| bytes == self.bytes() as u64);
        if state.runs.count == 0 && is_as_long {
            return Ok(());
        }
        if state.log.bytes() > LOG_BYTES {
            state.begin_anew(&self.files)?;
        }
        match self.write_record(state) {
            // A full disk can become less full: the runs are kept for the next time.
            full @ Err(Failed(libc::ENOSPC)) => return full,
            outcome => state.note(outcome)?,
        }
        let write = |run: &[u32; 2]| {
            // SAFETY: nobody stores during a checkpoint.
            let (at, bytes) = unsafe { self.run(*run) };
            self.files.write(Which::Image, at, bytes)
        };
        let written = state.runs.all().iter().try_for_each(write);
        state.note(written)?;
        state.runs.count = 0;
        Ok(())
    }

    fn settle(&self) -> Result<(), Failed> {
        let mut state = self.state.lock();
        state.check()?;
        state.begin_anew(&self.files)?;
        // It says already that it has no record: if this fails it only takes room.
        let _ = self.files.log.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::prelude::v1::*;
    use tempfile::TempDir;

    const IDENTITY: u64 = 7;
    const LIMIT: usize = 1 << 30;

    struct Place(TempDir);

    impl Place {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn paths(&self) -> [CString; 2] {
            ["image", "log"]
                .map(|name| CString::new(self.0.path().join(name).to_str().unwrap()).unwrap())
        }

        fn create(&self, bytes: usize) -> File {
            let [image, log] = self.paths();
            File::create(&image, &log, IDENTITY, bytes, LIMIT, None).unwrap()
        }

        fn open(&self) -> Result<File, Failed> {
            let [image, log] = self.paths();
            File::open(&image, &log, IDENTITY, LIMIT, None)
        }

        /// The files as they are now, as after a crash of the process.
        fn copy(&self) -> Self {
            let copy = Self::new();
            for name in ["image", "log"] {
                std::fs::copy(self.0.path().join(name), copy.0.path().join(name)).unwrap();
            }
            copy
        }
    }

    fn store(file: &File, at: usize, word: u64) {
        // SAFETY: the test's own.
        unsafe { file.store_word(at, word) };
    }

    fn load(file: &File, at: usize) -> u64 {
        // SAFETY: it is mapped.
        unsafe { file.base().as_ptr().add(at).cast::<u64>().read() }
    }

    #[test]
    fn what_was_stored_since_the_last_checkpoint_is_gone() {
        let place = Place::new();
        let file = place.create(1 << 20);
        store(&file, 0, 1);
        store(&file, 512 << 10, 2);
        file.checkpoint().unwrap();
        store(&file, 0, 3);
        store(&file, 4096, 4);
        let copy = place.copy();
        assert_eq!(place.open().err(), Some(Failed(libc::EWOULDBLOCK)));
        let words = |file: &File| [0, 4096, 512 << 10].map(|at| load(file, at));
        assert_eq!(words(&copy.open().unwrap()), [1, 0, 2]);
        file.checkpoint().unwrap();
        assert_eq!(words(&file), [3, 4, 2]);
        drop(file);
        assert_eq!(words(&place.open().unwrap()), [3, 4, 2]);
        assert_eq!(words(&copy.open().unwrap()), [1, 0, 2], "recovered before, and left so");
    }

    #[test]
    fn it_grows_where_it_is_and_what_is_new_is_in_the_next_checkpoint() {
        let place = Place::new();
        let file = place.create(4096);
        file.checkpoint().unwrap();
        let base = file.base();
        file.grow(3 << 20).unwrap();
        assert_eq!((file.base(), file.bytes()), (base, 3 << 20));
        store(&file, (3 << 20) - 8, 5);
        let before = place.copy();
        file.checkpoint().unwrap();
        store(&file, (3 << 20) - 8, 6);
        let after = place.copy().open().unwrap();
        assert_eq!((after.bytes(), load(&after, (3 << 20) - 8)), (3 << 20, 5));
        assert_eq!(load(&before.open().unwrap(), (3 << 20) - 8), 0);
        assert_eq!(file.grow(LIMIT + 1), Err(Failed(libc::ENOMEM)));
    }

    #[test]
    fn a_log_begins_anew_when_it_has_become_long() {
        let place = Place::new();
        let file = place.create(40 << 20);
        for round in 1..=4 {
            (0..40 << 20).step_by(4096).for_each(|at| store(&file, at, round));
            file.checkpoint().unwrap();
            store(&file, 0, 99);
            let copy = place.copy().open().unwrap();
            assert!((0..40 << 20).step_by(4096).all(|at| load(&copy, at) == round));
        }
        let log = std::fs::metadata(place.0.path().join("log")).unwrap().len();
        assert!(log < 100 << 20, "{log}");
    }

    #[test]
    fn a_log_of_another_image_is_refused_and_stays() {
        let place = Place::new();
        let file = place.create(8192);
        store(&file, 0, 1);
        file.checkpoint().unwrap();
        drop(file);
        let [image, log] = place.paths();
        let other = File::open(&image, &log, IDENTITY + 1, LIMIT, None);
        assert_eq!(other.err(), Some(Failed(libc::EBADMSG)));
        assert_eq!(load(&place.open().unwrap(), 0), 1);
    }

    #[test]
    fn what_is_settled_needs_no_log() {
        let place = Place::new();
        let file = place.create(8192);
        store(&file, 4096, 1);
        file.checkpoint().unwrap();
        file.settle().unwrap();
        drop(file);
        assert_eq!(std::fs::metadata(place.0.path().join("log")).unwrap().len(), 0);
        std::fs::remove_file(place.0.path().join("log")).unwrap();
        assert_eq!(load(&place.open().unwrap(), 4096), 1);
    }

    #[test]
    fn what_cannot_be_made_leaves_no_file() {
        let place = Place::new();
        let [image, log] = place.paths();
        let create = |limit| File::create(&image, &log, IDENTITY, 4096, limit, None).err();
        assert_eq!(create(17 << 40), Some(Failed(libc::EFBIG)));
        assert_eq!(std::fs::read_dir(place.0.path()).unwrap().count(), 0);
        std::fs::write(place.0.path().join("log"), "somebody's").unwrap();
        assert_eq!(create(LIMIT), Some(Failed(libc::EEXIST)));
        let left: Vec<_> = std::fs::read_dir(place.0.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "the log that was there");
    }

    #[test]
    fn a_checkpoint_that_failed_fails_again() {
        let place = Place::new();
        let file = place.create(8192);
        store(&file, 0, 1);
        let mut state = file.state.lock();
        let failed: Result<(), Failed> = Err(Failed(libc::EIO));
        assert_eq!(state.note(failed), failed);
        drop(state);
        assert_eq!(file.checkpoint(), failed);
        assert_eq!(file.settle(), failed);
    }
}
