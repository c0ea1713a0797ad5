//! Capture for code that notes nothing: the pages that the kernel names, compared with a copy of the state as the last batch left it.
//!
//! The copy costs as much memory as the state. Without it a batch would log whole pages, and where the kernel names every page that was ever written (it
//! forbids userfaultfd), the whole state.
//!
//! Invariant: between two batches the copy is equal to what is durable. [`Pages::keep`] brings the runs of a batch into it, and the log is made from there; a batch
//! that was undone leaves it as it is.

use core::ptr::NonNull;

use crate::zeroes;
use spandrel_capture::{Capture, DirtyPages, Older, Statistics};
use spandrel_os::written::{Names, Written};
use spandrel_os::{usage, vm};
use spandrel_pages::PAGE_BYTES;
use spandrel_pmem::Failed;

/// The copy.
struct Shadow {
    /// Where the state begins.
    base: usize,
    at: NonNull<u8>,
    open: usize,
    reserved: usize,
}

impl Shadow {
    /// A copy of the `bytes` bytes at `base`, with room for `reserved`.
    ///
    /// # Safety
    /// The bytes are readable, and no thread stores to them meanwhile.
    unsafe fn of(base: *const u8, bytes: usize, reserved: usize) -> Result<Self, Failed> {
        let at = vm::reserve_small(reserved).ok_or(Failed(libc::ENOMEM))?;
        let mut shadow = Self { base: base as usize, at, open: 0, reserved };
        shadow.open(bytes)?;
        for page in (0..bytes).step_by(PAGE_BYTES) {
            // SAFETY: promised by the caller.
            let contents = unsafe { core::slice::from_raw_parts(base.add(page), PAGE_BYTES) };
            // Zeroes are there already, without memory.
            if !zeroes::are(contents) {
                // SAFETY: as in `keep`.
                unsafe { shadow.keep(contents.as_ptr(), PAGE_BYTES) };
            }
        }
        Ok(shadow)
    }

    fn open(&mut self, bytes: usize) -> Result<(), Failed> {
        if bytes > self.reserved {
            return Err(Failed(libc::ENOMEM));
        }
        let more = bytes.saturating_sub(self.open);
        // SAFETY: a part of the reservation that is not open yet.
        if more > 0 && !unsafe { vm::open(self.at.as_ptr().add(self.open), more) } {
            return Err(Failed(libc::ENOMEM));
        }
        self.open = self.open.max(bytes);
        Ok(())
    }

    /// Copies bytes of the state. Returns where they are.
    ///
    /// # Safety
    /// The bytes lie in the state.
    unsafe fn keep(&mut self, at: *const u8, len: usize) -> *const u8 {
        let offset = (at as usize).wrapping_sub(self.base);
        debug_assert!(offset.saturating_add(len) <= self.open);
        // SAFETY: within the open part, which is as long as the state.
        unsafe {
            let copy = self.at.as_ptr().add(offset);
            copy.copy_from_nonoverlapping(at, len);
            copy
        }
    }
}

impl Older for Shadow {
    fn page(&mut self, at: *const u8, into: &mut [u8; PAGE_BYTES]) {
        let offset = (at as usize).wrapping_sub(self.base);
        debug_assert!(offset.saturating_add(PAGE_BYTES) <= self.open);
        // SAFETY: as in `keep`.
        unsafe {
            into.as_mut_ptr().copy_from_nonoverlapping(self.at.as_ptr().add(offset), PAGE_BYTES)
        };
    }
}

impl Drop for Shadow {
    fn drop(&mut self) {
        // SAFETY: the reservation is this value's alone.
        unsafe { vm::release(self.at.as_ptr(), self.reserved) };
    }
}

// SAFETY: the reservation belongs to the value, and is reached through it alone.
unsafe impl Send for Shadow {}

/// See the head of this file.
pub struct Pages {
    block_bytes: usize,
    /// `None`: the state is not read yet.
    dirty: Option<DirtyPages<Shadow>>,
    /// Page faults of the process before the pages were last protected.
    faults: u64,
}

impl Pages {
    /// Of a state that is not read yet; `block_bytes` as in [`spandrel_capture::Sizes`].
    pub fn new(block_bytes: usize) -> Self {
        Self { block_bytes, dirty: None, faults: 0 }
    }

    /// Whether the address space has room for the copy of a state that may have that number of bytes.
    pub fn has_room(reserved: usize) -> bool {
        vm::reserve_small(reserved).is_some_and(|at| {
            // SAFETY: reserved by the call above, and not used.
            unsafe { vm::release(at.as_ptr(), reserved) };
            true
        })
    }

    /// Watches the state, as it is now, from here on.
    ///
    /// # Errors
    /// `ENOMEM`; `EINVAL`: the size of a block.
    ///
    /// # Safety
    /// The `bytes` bytes at `base`, and what the state grows by up to `reserved`, belong to the caller and are private memory. They are mapped as long as this
    /// value lives. No thread stores to them meanwhile.
    pub unsafe fn watch(
        &mut self,
        base: *mut u8,
        bytes: usize,
        reserved: usize,
    ) -> Result<(), Failed> {
        // SAFETY: promised by the caller.
        unsafe {
            let shadow = Shadow::of(base, bytes, reserved)?;
            let written = Written::watch(base, bytes);
            let dirty = DirtyPages::new(written, base, bytes, self.block_bytes, shadow);
            self.dirty = Some(dirty.map_err(|_| Failed(libc::EINVAL))?);
        }
        Ok(())
    }

    /// The state has that number of bytes from now on.
    ///
    /// # Errors
    /// `ENOMEM`.
    ///
    /// # Safety
    /// The new bytes can be used, and none was stored to yet.
    pub unsafe fn grow(&mut self, bytes: usize) -> Result<(), Failed> {
        let Some(dirty) = &mut self.dirty else { return Ok(()) };
        dirty.older_mut().open(bytes)?;
        // SAFETY: promised by the caller.
        unsafe { dirty.extend(bytes) }.map_err(|_| Failed(libc::ENOMEM))
    }

    /// The state has that number of bytes from now on, fewer than before: a batch that has made it longer was undone. The copy has zeroes behind them, as the state
    /// will have when it grows again.
    pub fn shrink(&mut self, bytes: usize) {
        if let Some(dirty) = &mut self.dirty {
            dirty.shorten(bytes);
        }
    }

    /// Calls `see` with the address and length of each run that differs from the copy, in order of address.
    pub fn end(&mut self, see: &mut dyn FnMut(*const u8, usize)) {
        if let Some(dirty) = &mut self.dirty {
            self.faults = usage::of_process().faults;
            dirty.end(see);
        }
    }

    /// Whether threads may have stored to the state since [`Pages::end`]. The first store to a protected page is a fault; without any in the process there was none.
    pub fn may_have_changed(&self) -> bool {
        self.dirty.as_ref().is_some_and(|dirty| {
            dirty.names() == Names::Candidates || {
                let faults = usage::of_process().faults;
                faults == 0 || faults != self.faults
            }
        })
    }

    /// Where the copy begins; `None`: the state is not read yet.
    pub fn copy_at(&self) -> Option<*const u8> {
        self.dirty.as_ref().map(|dirty| dirty.older().at.as_ptr().cast_const())
    }

    /// Has the copy be as the state is at these bytes. Returns where it has them.
    ///
    /// # Safety
    /// The bytes lie in the state.
    pub unsafe fn keep(&mut self, at: *const u8, len: usize) -> *const u8 {
        match &mut self.dirty {
            // SAFETY: promised by the caller.
            Some(dirty) => unsafe { dirty.older_mut().keep(at, len) },
            None => at,
        }
    }

    /// Figures of all batches.
    pub fn statistics(&self) -> Statistics {
        self.dirty.as_ref().map(Capture::statistics).unwrap_or_default()
    }
}
