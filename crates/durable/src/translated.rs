//! Commands whose code is translated, so that it notes its stores.

use core::ops::Range;
use core::ptr::NonNull;

use spandrel_capture::Refused;
use spandrel_capture::translate::{Held, Sink, Translator};
use spandrel_pmem::Notes as _;
use spandrel_sync::Sequences;

use crate::error::Error;
use crate::notes::BatchNotes;

/// Takes stores to the notes of the batch.
struct Noted(NonNull<BatchNotes>);

impl Sink for Noted {
    fn note(&self, at: *const u8, bytes: usize) {
        // SAFETY: the notes have the translator.
        unsafe { self.0.as_ref() }.note(at, bytes);
    }

    fn note_atomic(&self, at: *const u8, bytes: usize, before: u64) {
        // SAFETY: as above.
        unsafe { self.0.as_ref() }.note_atomic(at, bytes, before);
    }

    fn meet(&self) {
        // SAFETY: as above.
        unsafe { self.0.as_ref() }.meet();
    }
}

fn error_of(why: Refused) -> Error {
    match why {
        Refused::Code => Error::NoTranslation,
        Refused::Size => Error::System(libc::EINVAL),
        _ => Error::System(libc::ENOMEM),
    }
}

/// Runs the commands of a state. One thread at a time does: that which runs the batch.
pub struct Translated(Translator<Noted>);

impl Translated {
    /// Of the commands on a state that lies in the `bytes` bytes at `at`. The functions of `native` note their own stores; they return and do not unwind.
    ///
    /// # Errors
    /// [`Error::System`] with `ENOMEM`; [`Error::NoTranslation`].
    ///
    /// # Safety
    /// The notes lie where they are as long as the value lives.
    pub unsafe fn new(
        notes: NonNull<BatchNotes>,
        (at, bytes): (usize, usize),
        native: &[usize],
    ) -> Result<Self, Error> {
        let translator = Translator::new((at, bytes), native, Noted(notes));
        translator.map(Self).map_err(error_of)
    }

    /// Has other functions stand for functions of the program; see [`Translator::replace`].
    ///
    /// # Errors
    /// [`Error::System`] with `EINVAL`: there are too many.
    pub fn replace(&mut self, pairs: &[(usize, usize)]) -> Result<(), Error> {
        self.0.replace(pairs).map_err(error_of)
    }

    /// Has the calls of functions be remembered; see [`Translator::remember`].
    ///
    /// # Errors
    /// As for [`Translated::replace`].
    pub fn remember(&mut self, functions: &[(usize, u32)]) -> Result<(), Error> {
        self.0.remember(functions).map_err(error_of)
    }

    /// Has code be translated that lies in no module; see [`Translator::add_code`].
    pub fn add_code(&mut self, addresses: Range<usize>) {
        self.0.add_code(addresses);
    }

    /// Has signals of the calling thread wait; see [`Translator::hold`].
    pub fn hold(&mut self) {
        self.0.hold();
    }

    /// Signals wait until the result is dropped; see [`Translator::let_go`].
    pub fn let_go(&mut self) -> Option<Held> {
        self.0.let_go()
    }

    /// Runs `work` in the batch that the calling thread runs. It does not unwind.
    pub fn run<R>(&mut self, work: impl FnOnce() -> R) -> R {
        // The kernel does not know a restartable sequence again that was translated.
        let _none = Sequences::none();
        self.0.call(work)
    }
}
