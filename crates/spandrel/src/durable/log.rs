//! The log's side of an open state: the engine that writes to the log, the thread that brings it into the state's file, and what both use.

use std::prelude::v1::*;
use std::thread::JoinHandle;

use spandrel_durable::control::{Control, FAULT};
use spandrel_durable::copy::Copy;
use spandrel_durable::engine::Engine;
use spandrel_durable::exchange::{self, Place};
use spandrel_durable::front::Front;
use spandrel_durable::live::Publisher;
use spandrel_durable::log_file::BlankLog;
use spandrel_durable::notes::How;
use spandrel_durable::recovery::Recovered;
use spandrel_durable::replica::Replica;
use spandrel_durable::store::Files;
use spandrel_os::signals::Blocked;
use spandrel_pmem::Medium as _;
use spandrel_pmem::tie::Ties;
use spandrel_redolog::{Ring, Shape};

use super::copies::{Copies, Wanted};
use super::growth::Growth;
use super::scrub::{Doubts, Scrub};
use super::verified::Verified;
use super::{Arena, Error, replica};

/// A log that grew by itself is not longer than this: it takes as much memory, where it lies on a disk.
const MOST_BYTES: u64 = 16 << 30;
/// What a log has beyond a batch, at most.
const MOST_SPARE_BYTES: u64 = 256 << 20;
/// The length of a log that has become longer is a multiple of this.
const LONGER_BYTES: u64 = 1 << 20;

/// What the engine and the thread use. Freed when this is dropped, after both.
struct Shared {
    files: *mut Files,
    control: *mut Control,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: made from boxes; nothing uses them any more.
        unsafe {
            drop(Box::from_raw(self.files));
            drop(Box::from_raw(self.control));
        }
    }
}

impl Shared {
    fn get(&self) -> (&'static Files, &'static Control) {
        // SAFETY: both live until this is dropped, after all that uses them.
        unsafe { (&*self.files, &*self.control) }
    }
}

/// See the head of this file. [`Log::stop`] comes before the end, except in the child of a fork.
pub(super) struct Log {
    engine: Engine<'static>,
    /// `None`: it was stopped.
    follower: Option<JoinHandle<Publisher>>,
    /// Of a thread that has ended.
    publisher: Option<Publisher>,
    /// The state is closed, or is being closed.
    is_over: bool,
    copies: Copies,
    growth: Growth,
    doubts: Doubts,
    /// Where the state begins, if it is compared with its file all the time.
    compared: Option<usize>,
    /// What is told of the notes.
    verified: Option<Verified>,
    /// The last field: the others use it.
    shared: Shared,
}

/// The length of a log for a batch of that number of bytes, with room for another one. For a long batch that is not as long: each byte of a log is written when it is made, and the
/// command waits for that.
///
/// # Errors
/// [`Error::TooLong`]: no log is as long.
fn longer_than(bytes: u64) -> Result<u64, Error> {
    let bytes = bytes.saturating_add(bytes.min(MOST_SPARE_BYTES));
    let bytes = bytes.checked_next_multiple_of(LONGER_BYTES);
    bytes.filter(|bytes| *bytes <= MOST_BYTES).ok_or(Error::TooLong)
}

/// Begins the thread that brings the log into the state's file.
fn spawn(
    files: &'static Files,
    control: &'static Control,
    follower: Replica<'static, Files>,
    shape: Shape,
    (copies, growth, scrub): (Copies, Growth, Option<Scrub>),
    publisher: Publisher,
) -> Result<JoinHandle<Publisher>, Error> {
    copies.begin();
    growth.resume();
    let _blocked = Blocked::all();
    let waiting = copies.clone();
    std::thread::Builder::new()
        .name("spandrel-log".into())
        .spawn(move || {
            let with = (&copies, &growth, scrub);
            replica::follow(files, control, follower, shape, with, publisher)
        })
        .map_err(|why| {
            waiting.end();
            Error::System(why.raw_os_error().unwrap_or_default())
        })
}

impl Log {
    /// Of files whose ring has begun an epoch. `is_long_enough`: the log does not become longer by itself. The calling thread's first batch, in that arena, is ended.
    ///
    /// # Errors
    /// [`Error::System`], [`Error::NoLongerLog`], and those of [`Engine::end_batch`].
    ///
    /// # Safety
    /// The calling thread has begun a batch, and no other has the arena.
    pub unsafe fn start(
        files: Files,
        (ring, ties): (Ring, Ties),
        (publisher, at, is_long_enough): (Publisher, &Place, bool),
        arena: &Arena,
    ) -> Result<Self, Error> {
        let memory = arena.medium();
        let files = Box::into_raw(Box::new(files));
        let shared = Shared { files, control: Box::into_raw(Box::default()) };
        let (files, control) = shared.get();
        let mut follower = Replica::new(files, &ring, ties)?;
        let mut shape = ring.shape();
        let mut engine = Engine::new(Front::new(files, control, ring)?)?;
        // SAFETY: promised by the caller.
        match unsafe { engine.end_batch(memory, 0) } {
            // What `init` makes may be longer than a log. Nothing runs beside it: it is ended in another one.
            Err(Error::TooLong) => {
                let bytes = longer_than(engine.needed())?;
                let make = || BlankLog::new(&at.paths, Some(bytes), &mut || true);
                // SAFETY: no thread has begun that uses the files.
                let (recovered, replaced) = unsafe { exchange::replace_log(files, at, make)? };
                replaced.map_err(|why| Error::NoLongerLog(why.errno()))?;
                follower = Replica::new(files, &recovered.ring, recovered.ties)?;
                shape = recovered.ring.shape();
                engine.put_front(Front::new(files, control, recovered.ring)?);
                // SAFETY: as above.
                unsafe { engine.end_again(memory)? };
            }
            ended => ended.map(drop)?,
        }
        let copies = Copies::new(&at.paths);
        let growth = Growth::new(&at.paths, files.ring().is_written() && !is_long_enough);
        let is_compared = memory.notes().how() == How::Translated;
        let compared = is_compared.then(|| memory.base().as_ptr() as usize);
        let mut log = Self {
            engine,
            follower: None,
            publisher: None,
            is_over: false,
            copies,
            growth,
            doubts: Doubts::default(),
            compared,
            verified: Verified::new(arena),
            shared,
        };
        log.follow(files, control, follower, shape, publisher)?;
        Ok(log)
    }

    /// Begins the thread that brings the log into the state's file.
    fn follow(
        &mut self,
        files: &'static Files,
        control: &'static Control,
        follower: Replica<'static, Files>,
        shape: Shape,
        publisher: Publisher,
    ) -> Result<(), Error> {
        let scrub = self.compared.map(|base| Scrub::new(base, self.doubts.clone()));
        let with = (self.copies.clone(), self.growth.clone(), scrub);
        self.follower = Some(spawn(files, control, follower, shape, with, publisher)?);
        Ok(())
    }

    /// A batch has ended: tells what is found about its notes.
    pub fn tell(&self, arena: &Arena) {
        self.verified.iter().for_each(|verified| verified.write(arena, self.engine.counts()));
    }

    /// Pages that the next batch looks at before it begins.
    pub fn doubts(&self) -> &Doubts {
        &self.doubts
    }

    pub fn engine(&mut self) -> &mut Engine<'static> {
        &mut self.engine
    }

    /// What the engine and the thread share, as long as this lives.
    pub fn control(&self) -> &'static Control {
        self.shared.get().1
    }

    /// How a batch becomes durable, in words.
    pub fn medium(&self) -> &'static str {
        self.shared.get().0.ring().how()
    }

    /// Times that the state's file was synced.
    pub fn state_syncs(&self) -> u64 {
        self.shared.get().0.syncs()
    }

    /// Asks for a copy of the state, with all batches that are durable now. If none arrives there is none: see [`Log::why_no_copy`].
    pub fn copy(&self, copy: Copy) -> Wanted {
        let wanted = self.copies.ask(copy);
        self.shared.get().1.bells().0.ring();
        wanted
    }

    /// No copy can be asked for any more.
    pub fn end_copies(&self) {
        self.copies.close();
    }

    /// Why no thread makes copies.
    pub fn why_no_copy(&mut self) -> Error {
        let failure = self.shared.get().1.failure().map(Error::of_follower);
        failure.or(self.engine.check().err()).unwrap_or(Error::Panicked)
    }

    /// Begins the end. False: it has begun before.
    pub fn begin_end(&mut self) -> bool {
        !std::mem::replace(&mut self.is_over, true)
    }

    /// Brings all of the log into the state's file, which says so, and ends the thread.
    ///
    /// # Errors
    /// The disk's: the state needs its log.
    pub fn stop(&mut self) -> Result<(), Error> {
        let Some(follower) = self.follower.take() else { return Ok(()) };
        self.growth.end();
        let (_, control) = self.shared.get();
        control.close();
        self.publisher = follower.join().ok();
        match control.failure() {
            None => Ok(()),
            Some(FAULT) => Err(Error::Fault),
            Some(why) => Err(Error::System(why)),
        }
    }

    /// Makes the log long enough for a batch that was too long and is undone.
    ///
    /// # Errors
    /// [`Error::TooLong`]: the log would be too long; [`Error::NoLongerLog`]: there is no room for it. Others: nothing can be written any more.
    pub fn lengthen(&mut self, at: &Place) -> Result<(), Error> {
        // A log is replaced when the state's file has all of it.
        if let Some(why) = self.shared.get().1.failure() {
            return Err(Error::NoLongerLog(why));
        }
        let (needed, capacity) = (self.engine.needed(), self.engine.capacity());
        // With what other threads have stored before the batch runs again.
        let most = needed.saturating_add(capacity / 16);
        if most <= capacity {
            return self.make_room(at);
        }
        let bytes = longer_than(most)?;
        match self.replace(at, |at| BlankLog::new(&at.paths, Some(bytes), &mut || true)) {
            // The one that is there has begun another epoch.
            Err(Error::NoLongerLog(_)) if needed <= capacity => Ok(()),
            replaced => replaced,
        }
    }

    /// Makes durable what threads have stored since the last batch: see [`Engine::keep_stores_between`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn keep_stores_between(
        &mut self,
        arena: &Arena,
        at: &Place,
        doubts: &[usize],
    ) -> Result<(), Error> {
        // SAFETY: passed on from the caller.
        let kept = unsafe { self.engine.keep_stores_between(arena, arena.handles(), doubts) };
        if kept != Err(Error::TooLong) {
            return kept;
        }
        // Both do not fit, this record and the last one.
        let made = self.make_room(at);
        // SAFETY: as above; nothing was stored since.
        let ended = made.and_then(|()| unsafe { self.engine.end_again(arena.medium()) });
        ended.map_err(|why| self.engine.refuse(why))
    }

    /// Has the log hold a batch as long as it is: the last record, which is kept, has another epoch behind it then.
    ///
    /// # Errors
    /// Nothing can be written any more.
    pub fn make_room(&mut self, at: &Place) -> Result<(), Error> {
        match self.replace(at, |_| Err(Error::TooLong)) {
            Err(Error::NoLongerLog(_)) => Ok(()),
            replaced => replaced,
        }
    }

    /// Whether the log can become longer now: the thread that is to end for it goes on, and makes copies to their end first.
    fn can_grow(&self) -> bool {
        self.growth.is_ready() && self.copies.are_none() && self.shared.get().1.failure().is_none()
    }

    /// Puts the longer log that was made beside the commands in the place of the one before, if there is one. Between two batches.
    ///
    /// # Errors
    /// Nothing can be written any more.
    pub fn grow(&mut self, at: &Place) -> Result<(), Error> {
        if !self.can_grow() {
            return Ok(());
        }
        let Some(blank) = self.growth.take() else { return Ok(()) };
        if blank.capacity() <= self.engine.capacity() {
            return Ok(());
        }
        match self.replace(at, |_| Ok(blank)) {
            Err(Error::NoLongerLog(_)) => Ok(()),
            replaced => replaced,
        }
    }

    /// # Errors
    /// [`Error::NoLongerLog`]: the log is the one before. Others: nothing can be written any more.
    fn replace(
        &mut self,
        at: &Place,
        make: impl FnOnce(&Place) -> Result<BlankLog, Error>,
    ) -> Result<(), Error> {
        let replaced = self.try_replace(at, make);
        if replaced.is_err() && self.follower.is_none() {
            // Other processes would wait for an answer.
            self.copies.close();
        }
        replaced
    }

    fn try_replace(
        &mut self,
        at: &Place,
        make: impl FnOnce(&Place) -> Result<BlankLog, Error>,
    ) -> Result<(), Error> {
        self.stop()?;
        let (files, control) = self.shared.get();
        // SAFETY: the thread has ended, and this one has the engine.
        let (recovered, replaced) = unsafe { exchange::replace_log(files, at, || make(at))? };
        let Recovered { ring, ties, .. } = recovered;
        control.reopen();
        let follower = Replica::new(files, &ring, ties)?;
        let shape = ring.shape();
        self.engine.put_front(Front::new(files, control, ring)?);
        // A thread that has panicked has failed, and the error was returned above.
        let publisher = self.publisher.take().ok_or(Error::Panicked)?;
        self.follow(files, control, follower, shape, publisher)?;
        replaced.map_err(|why| Error::NoLongerLog(why.errno()))
    }
}
