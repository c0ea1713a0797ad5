//! Where the captured medium notes its stores: the front end of explicit notes, for the one thread that runs a batch.

use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

use spandrel_capture::{Capture, Explicit, Refused, Regions, Sizes, Statistics};
use spandrel_pmem::Notes;
use spandrel_sync::thread_slot;

use crate::error::Error;

/// No batch runs: a store is stray.
const NONE: usize = 0;
/// Nothing is noted: the state is being made or read.
const OFF: usize = 1;

/// See the head of this file.
pub struct BatchNotes {
    explicit: UnsafeCell<Explicit>,
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
    /// [`Error::System`] with `ENOMEM`.
    pub fn new(sizes: Sizes) -> Result<Self, Error> {
        let explicit = Explicit::new(sizes, Regions::default());
        let explicit = explicit.map_err(|why| match why {
            Refused::Memory => Error::System(libc::ENOMEM),
            _ => Error::System(libc::EINVAL),
        })?;
        let (runs, has_strayed) = (AtomicUsize::new(OFF), AtomicBool::new(false));
        Ok(Self { explicit: UnsafeCell::new(explicit), runs, has_strayed })
    }

    /// The durable bytes are these. No batch runs.
    ///
    /// # Errors
    /// [`Error::System`] with `EINVAL`: no region can be that.
    ///
    /// # Safety
    /// No other thread uses the notes.
    pub unsafe fn cover(&self, at: *const u8, bytes: usize) -> Result<(), Error> {
        let regions = Regions::of(at, bytes).map_err(|_| Error::System(libc::EINVAL))?;
        // SAFETY: promised by the caller.
        *unsafe { &mut *self.explicit.get() }.regions_mut() = regions;
        Ok(())
    }

    /// Between two batches from now on.
    pub fn rest(&self) {
        self.runs.store(NONE, Release);
    }

    /// The calling thread runs a batch.
    pub fn begin(&self) {
        self.runs.store(me(), Release);
    }

    /// The batch has ended: calls `see` with its runs, in order of address.
    ///
    /// # Safety
    /// The calling thread runs the batch.
    pub unsafe fn end(&self, see: &mut dyn FnMut(*const u8, usize)) {
        // SAFETY: promised by the caller.
        unsafe { &mut *self.explicit.get() }.end(see);
        self.rest();
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
        unsafe { &*self.explicit.get() }.statistics()
    }
}

impl Notes for BatchNotes {
    #[inline]
    fn note(&self, at: *const u8, bytes: usize) {
        let runs = self.runs.load(Relaxed);
        if runs == me() {
            // SAFETY: this thread runs the batch.
            unsafe { &mut *self.explicit.get() }.note(at, bytes);
        } else if runs != OFF {
            self.has_strayed.store(true, Relaxed);
        }
    }
}
