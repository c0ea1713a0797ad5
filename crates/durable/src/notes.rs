//! Where the captured medium notes its stores, for the one thread that runs a batch. Where nothing is noted, the written pages are compared.

use core::cell::UnsafeCell;
use core::ops::Range;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

pub use spandrel_capture::Sizes;
pub use spandrel_capture::translate::Held;
use spandrel_capture::{Capture, Explicit, Refused, Regions, Statistics};
use spandrel_pmem::{Failed, Notes};
use spandrel_sync::thread_slot;

use crate::counts::Counts;
use crate::error::Error;
use crate::exact::Exact;
use crate::oracle::{MOST_PLACES, Oracle, Place, Verdict};
use crate::others::Others;
use crate::shadow::Pages;
use crate::translated::Translated;

/// No batch runs: a store is stray.
const NONE: usize = 0;
/// Nothing is noted: the state is being made or read.
const OFF: usize = 1;

/// How the stores of a batch are found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum How {
    /// Each store is noted.
    #[default]
    Notes,
    /// The written pages are compared with a copy: for code that notes nothing.
    DirtyPages,
    /// The code of commands is translated, and notes each store: for code that notes nothing.
    Translated,
    /// The same, and the written pages are compared with a copy as well: what is not noted is told.
    Verified,
}

impl How {
    /// Whether the code of commands is translated.
    pub fn is_translated(self) -> bool {
        matches!(self, Self::Translated | Self::Verified)
    }

    /// Whether there is a copy of the state.
    pub fn has_copy(self) -> bool {
        matches!(self, Self::DirtyPages | Self::Verified)
    }
}

#[allow(clippy::large_enum_variant, reason = "one for each state, and nothing here may allocate")]
enum Front {
    Explicit(Explicit),
    Pages(Pages),
}

/// See the head of this file.
pub struct BatchNotes {
    front: UnsafeCell<Front>,
    /// Where commands are translated: the translator, once there is one, and what the batch has stored.
    translated: UnsafeCell<Option<Translated>>,
    exact: UnsafeCell<Option<Exact>>,
    counts: UnsafeCell<Counts>,
    oracle: UnsafeCell<Option<Oracle>>,
    others: UnsafeCell<Others>,
    how: How,
    /// The thread that runs a batch, by the address of its slot; or one of the numbers above.
    runs: AtomicUsize,
    has_strayed: AtomicBool,
}

// SAFETY: only the thread that `runs` names uses the front end, and the owner between two batches.
unsafe impl Sync for BatchNotes {}
// SAFETY: as above.
unsafe impl Send for BatchNotes {}

fn me() -> usize {
    ptr::from_ref(thread_slot()) as usize
}

impl BatchNotes {
    /// Of a state that is being made or read: nothing is noted before [`BatchNotes::rest`].
    ///
    /// # Errors
    /// [`Error::BlockSize`]; [`Error::System`] with `ENOMEM`.
    pub fn new(sizes: Sizes, how: How) -> Result<Self, Error> {
        let refused = |why| match why {
            Refused::Memory => Error::System(libc::ENOMEM),
            _ => Error::System(libc::EINVAL),
        };
        if !matches!(sizes.block_bytes, 16 | 32 | 64 | 128) {
            return Err(Error::BlockSize(sizes.block_bytes));
        }
        let front = match how {
            How::Notes | How::Translated | How::Verified => {
                Front::Explicit(Explicit::new(sizes, Regions::default()).map_err(refused)?)
            }
            How::DirtyPages => Front::Pages(Pages::new(sizes.block_bytes)),
        };
        let (runs, has_strayed) = (AtomicUsize::new(OFF), AtomicBool::new(false));
        let exact = if how.is_translated() { Some(Exact::new()?) } else { None };
        let blocks = sizes.block_bytes;
        let oracle = if how == How::Verified { Some(Oracle::new(blocks)?) } else { None };
        let front = UnsafeCell::new(front);
        let (translated, exact) = (UnsafeCell::new(None), UnsafeCell::new(exact));
        let oracle = UnsafeCell::new(oracle);
        let (counts, others) = (UnsafeCell::default(), UnsafeCell::default());
        Ok(Self { front, translated, exact, counts, oracle, others, how, runs, has_strayed })
    }

    /// The durable bytes are the first `bytes` of the `reserved` ones at `at`, and all that these grow by. No batch runs.
    ///
    /// # Errors
    /// [`Error::System`] with `EINVAL`: no region can be that; `ENOMEM`.
    ///
    /// # Safety
    /// No other thread uses the notes or stores to the bytes. They are private memory, and mapped as long as this value lives.
    pub unsafe fn cover(&self, at: *mut u8, bytes: usize, reserved: usize) -> Result<(), Error> {
        // SAFETY: promised by the caller.
        unsafe { (*self.others.get()).cover(at as usize, bytes) };
        // SAFETY: as above.
        match unsafe { &mut *self.front.get() } {
            Front::Explicit(explicit) => {
                let regions = Regions::of(at, reserved).map_err(|_| Error::System(libc::EINVAL))?;
                *explicit.regions_mut() = regions;
                // SAFETY: promised by the caller.
                unsafe { &mut *self.oracle.get() }.as_mut().map_or(Ok(()), |oracle| {
                    // SAFETY: as above.
                    unsafe { oracle.pages().watch(at, bytes, reserved) }.map_err(Error::from)
                })
            }
            // SAFETY: promised by the caller.
            Front::Pages(pages) => unsafe { pages.watch(at, bytes, reserved) }.map_err(Error::from),
        }
    }

    /// Has the code of commands be translated that [`BatchNotes::run`] runs, but for the functions of `native`, which note their own stores; they return and do not unwind.
    ///
    /// # Errors
    /// [`Error::System`] with `ENOMEM`; [`Error::NoTranslation`].
    ///
    /// # Safety
    /// The calling thread runs the first batch, and the value lies where it is from now on.
    pub unsafe fn translate(
        &self,
        (at, bytes): (NonNull<u8>, usize),
        native: &[usize],
    ) -> Result<(), Error> {
        let window = (at.as_ptr() as usize, bytes);
        // SAFETY: promised by the caller.
        unsafe {
            *self.translated.get() = Some(Translated::new(NonNull::from(self), window, native)?);
        }
        Ok(())
    }

    /// Has other functions stand for functions of the program in translated code: of each pair, where code gets to the first one, the second one runs. Where nothing is translated
    /// this does nothing.
    ///
    /// # Errors
    /// [`Error::System`] with `EINVAL`: there are too many.
    ///
    /// # Safety
    /// As for [`BatchNotes::translate`], before anything was run.
    pub unsafe fn replace(&self, pairs: &[(usize, usize)]) -> Result<(), Error> {
        // SAFETY: promised by the caller.
        let translated = unsafe { &mut *self.translated.get() };
        translated.as_mut().map_or(Ok(()), |translated| translated.replace(pairs))
    }

    /// Has the calls of functions be remembered in translated code, each with a number: a native function finds those that it is called within. Where nothing is translated
    /// this does nothing.
    ///
    /// # Errors
    /// As for [`BatchNotes::replace`].
    ///
    /// # Safety
    /// As there.
    pub unsafe fn remember(&self, functions: &[(usize, u32)]) -> Result<(), Error> {
        // SAFETY: promised by the caller.
        let translated = unsafe { &mut *self.translated.get() };
        translated.as_mut().map_or(Ok(()), |translated| translated.remember(functions))
    }

    /// No batch is ever undone: what was needed for that is not kept.
    ///
    /// # Safety
    /// As for [`BatchNotes::replace`].
    pub unsafe fn never_undo(&self) {
        // SAFETY: promised by the caller.
        unsafe { *self.exact.get() = None };
    }

    /// Has code be translated that lies in no module: that of the addresses from the first one up to the second one, which does not change. Where nothing is translated this does nothing.
    ///
    /// # Safety
    /// As for [`BatchNotes::replace`].
    pub unsafe fn add_code(&self, addresses: Range<usize>) {
        // SAFETY: promised by the caller.
        let translated = unsafe { &mut *self.translated.get() };
        translated.iter_mut().for_each(|translated| translated.add_code(addresses.clone()));
    }

    /// Runs `work`, which is code of the program and does not unwind: translated, where that is how stores are found.
    ///
    /// # Safety
    /// The calling thread runs the batch, and `work` does not call this.
    pub unsafe fn run<R>(&self, work: impl FnOnce() -> R) -> R {
        // SAFETY: promised by the caller.
        match unsafe { &mut *self.translated.get() } {
            Some(translated) => translated.run(work),
            None => work(),
        }
    }

    /// Has signals of the calling thread wait for the end of its batch, where commands are translated: a handler would be native code in the midst of one.
    ///
    /// # Safety
    /// The calling thread has the gate, and calls [`BatchNotes::let_go`] before it leaves it.
    pub unsafe fn hold(&self) {
        // SAFETY: promised by the caller.
        unsafe { &mut *self.translated.get() }.iter_mut().for_each(Translated::hold);
    }

    /// Signals wait until the result is dropped, by the same thread, which may have left the gate by then.
    ///
    /// # Safety
    /// The calling thread has the gate.
    pub unsafe fn let_go(&self) -> Option<Held> {
        // SAFETY: promised by the caller.
        unsafe { &mut *self.translated.get() }.as_mut().and_then(Translated::let_go)
    }

    /// What translated code has stored in the batch. `None`: nothing is translated.
    ///
    /// # Safety
    /// The calling thread runs the batch, and lets go of it before it notes anything.
    #[allow(clippy::mut_from_ref, reason = "the thread that runs the batch has it alone")]
    pub unsafe fn exact(&self) -> Option<&mut Exact> {
        // SAFETY: promised by the caller.
        unsafe { &mut *self.exact.get() }.as_mut()
    }

    /// Between two batches from now on.
    pub fn rest(&self) {
        self.runs.store(NONE, Release);
    }

    /// The calling thread runs a batch.
    pub fn begin(&self) {
        self.runs.store(me(), Release);
        self.others().into_iter().for_each(Others::begin);
    }

    /// A command of the batch is about to begin, to wake or to await another thread, which may store to the state for it. Called by the thread that runs the batch.
    pub fn meet(&self) {
        self.others().into_iter().for_each(Others::meet);
        if self.how == How::Verified && self.runs.load(Relaxed) == me() {
            // SAFETY: this thread runs the batch.
            unsafe { &mut *self.oracle.get() }.iter_mut().for_each(Oracle::meet);
        }
    }

    /// Whether other threads may have stored for the batch what is not noted.
    ///
    /// # Safety
    /// The calling thread runs the batch.
    pub unsafe fn is_watching(&self) -> bool {
        // SAFETY: promised by the caller.
        unsafe { (*self.others.get()).is_watching() }
    }

    /// Calls `see` with the address and the number of bytes of pages that other threads may have stored to for the batch; see [`Others::each_written`].
    ///
    /// # Safety
    /// The calling thread runs the batch.
    pub unsafe fn each_written(&self, see: &mut dyn FnMut(usize, usize)) {
        // SAFETY: promised by the caller. What `see` calls uses other parts of the notes.
        unsafe { (*self.others.get()).each_written(see) };
    }

    /// Whether commands have met other threads at any time.
    ///
    /// # Safety
    /// The calling thread runs the batch.
    pub unsafe fn has_met(&self) -> bool {
        // SAFETY: promised by the caller.
        unsafe { (*self.others.get()).is_used() }
    }

    /// The batch has ended: calls `see` with its runs, in order of address; after them with what a comparison has found that was not noted.
    ///
    /// # Safety
    /// The calling thread runs the batch.
    pub unsafe fn end(&self, see: &mut dyn FnMut(*const u8, usize)) {
        // SAFETY: promised by the caller.
        match unsafe { &mut *self.front.get() } {
            // SAFETY: as above.
            Front::Explicit(explicit) => match unsafe { &mut *self.oracle.get() } {
                None => explicit.end(see),
                Some(oracle) => {
                    oracle.begin();
                    explicit.end(&mut |at, len| {
                        oracle.note(at, len);
                        see(at, len);
                    });
                    // SAFETY: as above.
                    let exact = unsafe { &mut *self.exact.get() };
                    oracle.judge(&mut |at, len| {
                        exact.iter_mut().for_each(|exact| exact.note(at, len));
                        see(at, len);
                    });
                }
            },
            Front::Pages(pages) => pages.end(see),
        }
        self.rest();
    }

    /// Whether threads may have stored to the state since the last batch ended. Where stores are noted they have not.
    ///
    /// # Safety
    /// No other thread runs a batch.
    pub unsafe fn may_have_changed(&self) -> bool {
        // SAFETY: promised by the caller.
        match unsafe { &*self.front.get() } {
            Front::Explicit(_) => false,
            Front::Pages(pages) => pages.may_have_changed(),
        }
    }

    /// Where the bytes begin that a batch is logged from, of a state that begins at `base`.
    ///
    /// # Safety
    /// No other thread runs a batch.
    pub unsafe fn image_of(&self, base: *const u8) -> *const u8 {
        // SAFETY: promised by the caller.
        match unsafe { &*self.front.get() } {
            Front::Explicit(_) => base,
            Front::Pages(pages) => pages.copy_at().unwrap_or(base),
        }
    }

    /// Calls `see` with the address, in the image of [`BatchNotes::image_of`], and the length of each run of a batch, which `each` calls its argument with. Where pages are
    /// compared the runs are in the copy then: the log is made from it, so that both have the same bytes also where a thread outside of the batch stores meanwhile
    /// (the counter of an `Arc`).
    ///
    /// # Safety
    /// The calling thread has run the batch, which is durable next or the last one. The runs lie in the state.
    pub unsafe fn copy(
        &self,
        each: impl FnOnce(&mut dyn FnMut(*const u8, usize)),
        see: &mut dyn FnMut(*const u8, usize),
    ) {
        // SAFETY: promised by the caller.
        match unsafe { &mut *self.front.get() } {
            Front::Explicit(_) => each(see),
            // SAFETY: as above.
            Front::Pages(pages) => each(&mut |at, len| unsafe { see(pages.keep(at, len), len) }),
        }
    }

    /// How the stores of a batch are found.
    pub fn how(&self) -> How {
        self.how
    }

    /// A batch is about to become durable: what it has changed atomically is looked at from now on. Before its record is made: what changes after this differs.
    ///
    /// # Safety
    /// The calling thread has run the batch, and the memory of the state is as the batch has left it.
    pub unsafe fn keep_counts(&self) {
        // SAFETY: promised by the caller.
        unsafe {
            let Some(exact) = self.exact() else { return };
            let (counts, is_joined) = (&mut *self.counts.get(), exact.is_joined());
            if exact.has_atomics() || counts.is_used() {
                exact.each(&mut |at, bytes, is_atomic| match is_atomic {
                    true => counts.keep(at, bytes),
                    // Of stores without an order a count stays one.
                    false if is_joined => {}
                    false => counts.forget(at, bytes),
                });
            }
        }
    }

    /// A batch is durable, or has stored nothing: what was needed to undo it is forgotten.
    ///
    /// # Safety
    /// The calling thread has run the batch.
    pub unsafe fn keep(&self) {
        // SAFETY: promised by the caller.
        unsafe {
            self.exact().into_iter().for_each(Exact::clear);
            (*self.others.get()).end();
        }
    }

    /// The batch is not durable after all: nothing is known of what is.
    ///
    /// # Safety
    /// The calling thread has run the batch.
    pub unsafe fn doubt_counts(&self) {
        // SAFETY: promised by the caller.
        unsafe { (*self.counts.get()).doubt() };
    }

    /// Calls `see` with words that threads may have changed since the last batch, within the open bytes of the state: those that commands have changed atomically. Where pages are
    /// compared they are found in another way.
    ///
    /// # Safety
    /// No other thread runs a batch, and the open bytes are readable.
    pub unsafe fn each_changed_count(
        &self,
        open: Range<usize>,
        see: &mut dyn FnMut(*const u8, usize),
    ) {
        // SAFETY: promised by the caller.
        unsafe { (*self.counts.get()).each_changed(open, see) };
    }

    /// A batch was undone: memory is what it was before.
    ///
    /// # Safety
    /// The calling thread runs the batch.
    pub unsafe fn restart(&self) {
        // SAFETY: promised by the caller.
        unsafe {
            (*self.oracle.get()).iter_mut().for_each(Oracle::restart);
            (*self.others.get()).end();
        }
    }

    /// What was found about the notes, and the first places that were missed; `None`: they are not compared.
    ///
    /// # Safety
    /// No other thread runs a batch.
    pub unsafe fn verdict(&self) -> Option<(Verdict, [Place; MOST_PLACES])> {
        // SAFETY: promised by the caller.
        unsafe { &*self.oracle.get() }.as_ref().map(|oracle| (oracle.verdict(), oracle.places()))
    }

    /// Whether a thread stored outside of a batch.
    pub fn has_strayed(&self) -> bool {
        self.has_strayed.load(Relaxed)
    }

    /// Figures of all batches.
    ///
    /// # Safety
    /// No other thread runs a batch.
    pub unsafe fn statistics(&self) -> Statistics {
        // SAFETY: promised by the caller.
        match unsafe { &*self.front.get() } {
            Front::Explicit(explicit) => explicit.statistics(),
            Front::Pages(pages) => pages.statistics(),
        }
    }
}

impl Notes for BatchNotes {
    #[inline]
    fn note(&self, at: *const u8, bytes: usize) {
        let runs = self.runs.load(Relaxed);
        if runs == me() {
            // SAFETY: this thread runs the batch.
            if let Front::Explicit(explicit) = unsafe { &mut *self.front.get() } {
                explicit.note(at, bytes);
            }
            if self.how.is_translated() {
                // SAFETY: as above.
                unsafe { self.exact() }.into_iter().for_each(|exact| exact.note(at, bytes));
            }
        } else if runs != OFF {
            self.has_strayed.store(true, Relaxed);
        }
    }

    fn grow(&self, _: *const u8, bytes: usize) -> Result<(), Failed> {
        self.others().into_iter().for_each(|others| others.grow(bytes));
        // SAFETY: the medium has opened the bytes.
        self.pages().map_or(Ok(()), |pages| unsafe { pages.grow(bytes) })
    }

    fn takes_huge_pages(&self) -> bool {
        !self.how.has_copy()
    }

    fn shrink(&self, bytes: usize) {
        self.others().into_iter().for_each(|others| others.shrink(bytes));
        if let Some(pages) = self.pages() {
            pages.shrink(bytes);
        }
    }
}

impl BatchNotes {
    /// As `note`, of a count that another thread has changed: a batch that is undone leaves it as it is.
    ///
    /// # Safety
    /// The bytes are open ones of the state.
    pub unsafe fn note_count(&self, at: *const u8, bytes: usize) {
        let mut value = [0; size_of::<u64>()];
        for (number, byte) in value.iter_mut().enumerate().take(bytes) {
            // SAFETY: promised by the caller.
            *byte = unsafe { at.add(number).read_volatile() };
        }
        self.note_atomic(at, bytes, u64::from_le_bytes(value));
    }

    /// As `note`, of one to eight bytes that were `before`.
    pub fn note_atomic(&self, at: *const u8, bytes: usize, before: u64) {
        if self.runs.load(Relaxed) == me() {
            // SAFETY: this thread runs the batch.
            unsafe {
                if let Front::Explicit(explicit) = &mut *self.front.get() {
                    explicit.note(at, bytes);
                }
                self.exact().into_iter().for_each(|exact| exact.note_atomic(at, bytes, before));
            }
        }
    }

    /// What other threads store, for the thread that runs a batch. Where pages are compared they are seen in another way.
    #[allow(clippy::mut_from_ref, reason = "the thread that runs the batch has it alone")]
    fn others(&self) -> Option<&mut Others> {
        let is_mine = self.how == How::Translated && self.runs.load(Relaxed) == me();
        // SAFETY: this thread runs the batch, and no other reference lives: each caller lets go of it at once.
        is_mine.then(|| unsafe { &mut *self.others.get() })
    }

    /// What compares pages, for the thread that runs a batch.
    #[allow(clippy::mut_from_ref, reason = "the thread that runs the batch has it alone")]
    fn pages(&self) -> Option<&mut Pages> {
        if !self.how.has_copy() || self.runs.load(Relaxed) != me() {
            return None;
        }
        // SAFETY: this thread runs the batch, and no other reference lives: each caller lets go of it at once.
        match unsafe { &mut *self.front.get() } {
            // SAFETY: as above.
            Front::Explicit(_) => unsafe { &mut *self.oracle.get() }.as_mut().map(Oracle::pages),
            Front::Pages(pages) => Some(pages),
        }
    }
}
