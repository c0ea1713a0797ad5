//! Anonymous memory whose stores are noted: the medium of a state that lives in memory and is made durable batch by batch.
//!
//! A fence does nothing, and no order of stores is promised: what was noted becomes durable at the end of a batch, all of it or nothing. So a
//! structure on this medium needs no log of its own ([`Medium::is_atomic`]).
//!
//! Invariant: every store to the medium reaches [`Notes::note`]. What is stored past the medium is lost.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering::*};

use spandrel_os::vm;
use spandrel_pages::PAGE_BYTES;
use spandrel_sync::Lock;

use crate::medium::{Failed, Medium};
use crate::room;

/// The medium is opened by this number of bytes, and its last part may be longer than the medium: a huge page lies within one mapping.
const STEP_BYTES: usize = 2 << 20;

/// Where stores are noted.
pub trait Notes: Sync {
    /// `bytes` bytes from the address on are stored to. Called before the store, by the thread that stores.
    fn note(&self, at: *const u8, bytes: usize);

    /// The medium, which begins at an address, has that number of bytes from now on. The new ones can be used, and none was stored to yet.
    ///
    /// # Errors
    /// The error's number: the medium stays as it was.
    fn grow(&self, base: *const u8, bytes: usize) -> Result<(), Failed> {
        let _ = (base, bytes);
        Ok(())
    }

    /// The medium has that number of bytes from now on, fewer than before. The others cannot be used any more.
    fn shrink(&self, bytes: usize) {
        let _ = bytes;
    }

    /// Whether huge pages are of use: not where the kernel is to name each page that was stored to.
    fn takes_huge_pages(&self) -> bool {
        true
    }
}

/// See the head of this file.
pub struct Captured<N: Notes> {
    base: NonNull<u8>,
    /// Bytes that are open.
    bytes: AtomicUsize,
    reserved: usize,
    growing: Lock<()>,
    notes: N,
}

// SAFETY: the mapping belongs to the value, and has no link to the thread that made it.
unsafe impl<N: Notes + Send> Send for Captured<N> {}
// SAFETY: as above; what is shared is atomic, under a lock, or `Sync`.
unsafe impl<N: Notes> Sync for Captured<N> {}

impl<N: Notes> Captured<N> {
    /// Reserves room for `limit` bytes at a base, of which the first `bytes` can be used and are zero. `None`: at any base.
    ///
    /// # Errors
    /// `EADDRINUSE`: something is mapped at the base; `ENOMEM`.
    pub fn new(base: Option<usize>, bytes: usize, limit: usize, notes: N) -> Result<Self, Failed> {
        let (base, reserved) = room::reserve(limit.max(bytes), base)?;
        let medium =
            Self { base, bytes: AtomicUsize::new(0), reserved, growing: Lock::new(()), notes };
        medium.grow(bytes)?;
        Ok(medium)
    }

    /// Where stores are noted.
    pub fn notes(&self) -> &N {
        &self.notes
    }

    /// Bytes of the reservation that can be accessed where the medium has that number.
    fn opened(&self, bytes: usize) -> usize {
        bytes.next_multiple_of(STEP_BYTES).min(self.reserved)
    }

    /// Address and length of what is reserved.
    pub fn reserved(&self) -> (NonNull<u8>, usize) {
        (self.base, self.reserved)
    }
}

impl<N: Notes> Drop for Captured<N> {
    fn drop(&mut self) {
        // SAFETY: `drop` has the medium exclusively, and the reservation belongs to it.
        unsafe { vm::release(self.base.as_ptr(), self.reserved) };
    }
}

// SAFETY: the first `bytes` bytes of the reservation are open for good, and stay where they are.
unsafe impl<N: Notes> Medium for Captured<N> {
    #[inline]
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    #[inline]
    fn bytes(&self) -> usize {
        self.bytes.load(Acquire)
    }

    fn limit(&self) -> usize {
        self.reserved
    }

    fn grow(&self, bytes: usize) -> Result<(), Failed> {
        let _growing = self.growing.lock();
        let has = self.bytes.load(Relaxed);
        let Some(to) = room::grown(has, bytes, self.reserved)? else { return Ok(()) };
        let (from, end) = (self.opened(has), self.opened(to));
        // SAFETY: a part of the reservation that is not open yet.
        if from < end && !unsafe { vm::open(self.base.as_ptr().add(from), end - from) } {
            return Err(Failed(libc::ENOMEM));
        }
        // A medium that is short takes no more memory than it has.
        if from < end && end > STEP_BYTES && self.notes.takes_huge_pages() {
            // SAFETY: opened by the call above.
            unsafe { vm::advise_huge(self.base.as_ptr().add(from), end - from) };
        }
        self.notes.grow(self.base.as_ptr(), to)?;
        self.bytes.store(to, Release);
        Ok(())
    }

    unsafe fn shrink(&self, bytes: usize) {
        let _growing = self.growing.lock();
        let has = self.bytes.load(Relaxed);
        let Some(to) = bytes.checked_next_multiple_of(PAGE_BYTES).filter(|to| *to < has) else {
            return;
        };
        let (from, end) = (self.opened(to), self.opened(has));
        let (rest, behind) = (has.min(from) - to, end - from);
        // SAFETY: parts of the reservation that no thread uses, as the caller promises.
        let is_closed = unsafe {
            (rest == 0 || vm::discard(self.base.as_ptr().add(to), rest))
                && (behind == 0 || vm::close(self.base.as_ptr().add(from), behind))
        };
        if is_closed {
            self.bytes.store(to, Release);
            self.notes.shrink(to);
        }
    }

    #[inline]
    unsafe fn store(&self, at: usize, bytes: &[u8]) {
        debug_assert!(at + bytes.len() <= self.bytes());
        // SAFETY: the caller has the range to itself, so that `bytes` lies elsewhere and the two do not overlap.
        unsafe {
            let to = self.base.as_ptr().add(at);
            self.notes.note(to, bytes.len());
            to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }

    #[inline]
    unsafe fn store_word(&self, at: usize, word: u64) {
        debug_assert!(at.is_multiple_of(8) && at + 8 <= self.bytes());
        // SAFETY: promised by the caller. Volatile, so that it is one store.
        unsafe {
            let to = self.base.as_ptr().add(at);
            self.notes.note(to, 8);
            to.cast::<u64>().write_volatile(word);
        }
    }

    #[inline]
    fn has_lines(&self) -> bool {
        false
    }

    #[inline]
    fn is_atomic(&self) -> bool {
        true
    }

    #[inline]
    fn write_back(&self, _: usize, _: usize) {}

    #[inline]
    fn fence(&self) {}

    /// A batch makes it durable, and not this.
    fn checkpoint_still(&self, _: &dyn Fn(&mut dyn FnMut())) -> Result<(), Failed> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::vec::Vec;

    struct List(Mutex<Vec<(usize, usize)>>);

    impl Notes for List {
        fn note(&self, at: *const u8, bytes: usize) {
            self.0.lock().unwrap().push((at as usize, bytes));
        }
    }

    #[test]
    fn stores_are_noted_and_memory_grows_within_what_is_reserved() {
        let medium = Captured::new(None, 8192, 1 << 20, List(Mutex::new(Vec::new()))).unwrap();
        let base = medium.base().as_ptr() as usize;
        // SAFETY: the test has the medium to itself.
        unsafe {
            medium.store(100, b"bytes");
            medium.store_word(8, 7);
        }
        assert_eq!(*medium.notes().0.lock().unwrap(), [(base + 100, 5), (base + 8, 8)]);
        assert!(medium.is_atomic() && !medium.has_lines());
        assert_eq!((medium.bytes(), medium.limit()), (8192, 1 << 20));
        medium.grow(10_000).unwrap();
        assert_eq!(medium.bytes(), 12288);
        assert_eq!(medium.grow((1 << 20) + 1), Err(Failed(libc::ENOMEM)));
        // What was taken back is zero when it is there again.
        // SAFETY: the test has the medium to itself.
        unsafe {
            medium.store(9000, b"bytes");
            medium.shrink(8000);
            assert_eq!(medium.bytes(), 8192);
            medium.grow(12288).unwrap();
            assert_eq!(medium.base().as_ptr().add(9000).read(), 0);
        }
        let (at, reserved) = medium.reserved();
        assert_eq!((at, reserved), (medium.base(), 1 << 20));
        let taken = Captured::new(Some(base), 4096, 4096, List(Mutex::new(Vec::new())));
        assert_eq!(taken.err(), Some(Failed(libc::EADDRINUSE)));
    }

    /// Also where the end lies within a step.
    #[test]
    fn memory_that_is_taken_back_is_zero_wherever_it_ends() {
        let list = || List(Mutex::new(Vec::new()));
        let medium = Captured::new(None, 4096, 4 * STEP_BYTES + 8192, list()).unwrap();
        for (longer, shorter) in [
            (8192, 4096),
            (STEP_BYTES, 4096),
            (STEP_BYTES + 4096, STEP_BYTES),
            (3 * STEP_BYTES - 4096, STEP_BYTES + 8192),
            (4 * STEP_BYTES + 8192, 4 * STEP_BYTES + 4096),
            (4 * STEP_BYTES + 8192, 3 * STEP_BYTES),
        ] {
            let has = medium.bytes();
            medium.grow(longer).unwrap();
            // SAFETY: the test has the medium to itself.
            let all = unsafe { core::slice::from_raw_parts_mut(medium.base().as_ptr(), longer) };
            assert!(all[has..].iter().all(|byte| *byte == 0), "{longer}");
            all.fill(1);
            // SAFETY: as above.
            unsafe { medium.shrink(shorter) };
            assert!(all[..shorter].iter().all(|byte| *byte == 1), "{shorter}");
        }
    }
}
