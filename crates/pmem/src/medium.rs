//! What persistent bytes lie on.

use core::ptr::NonNull;

use crate::line::WORD_BYTES;

/// Why something could not be made durable, as the kernel's error number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failed(pub i32);

/// Bytes that outlive the process, once they are durable.
///
/// Offsets count from the first byte of the medium. Stores of several threads to the same bytes are the callers' to order.
///
/// # Safety
/// The bytes from [`Medium::base`] on, as many as [`Medium::bytes`] says, can be read and written as long as the medium
/// lives, and stay where they are.
pub unsafe trait Medium: Sync {
    /// Where its bytes lie in this process; at a multiple of 4 KiB.
    fn base(&self) -> NonNull<u8>;

    /// How many there are. They may become more, and never fewer.
    fn bytes(&self) -> usize;

    /// How many there may be at most.
    fn limit(&self) -> usize {
        self.bytes()
    }

    /// Makes it longer, to `bytes` at least, with room on the medium for all of them; the new ones are zero.
    ///
    /// # Errors
    /// `ENOSPC`: the medium is full; `ENOMEM`: beyond the limit. It is as it was then.
    fn grow(&self, bytes: usize) -> Result<(), Failed> {
        if bytes <= self.bytes() { Ok(()) } else { Err(Failed(libc::ENOMEM)) }
    }

    /// Bytes that are still there: fewer than [`Medium::bytes`] if somebody has cut the file off. What lies beyond them must not be touched:
    /// the kernel ends whoever does (`SIGBUS`).
    ///
    /// # Errors
    /// The file system's.
    fn present(&self) -> Result<usize, Failed> {
        Ok(self.bytes())
    }

    /// Stores bytes. What crosses words may be torn.
    ///
    /// # Safety
    /// They lie on the medium, and nobody else reads or writes them meanwhile.
    #[inline]
    unsafe fn store(&self, at: usize, bytes: &[u8]) {
        debug_assert!(at + bytes.len() <= self.bytes());
        // SAFETY: promised by the caller; what the caller has does not overlap with what is nobody else's.
        unsafe {
            self.base().as_ptr().add(at).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }

    /// Stores a word, which is never torn. `at` is a multiple of 8.
    ///
    /// # Safety
    /// As for [`Medium::store`].
    #[inline]
    unsafe fn store_word(&self, at: usize, word: u64) {
        debug_assert!(at.is_multiple_of(WORD_BYTES) && at + WORD_BYTES <= self.bytes());
        // SAFETY: promised by the caller. Volatile, so that it is one store.
        unsafe { self.base().as_ptr().add(at).cast::<u64>().write_volatile(word) }
    }

    /// Whether what is stored becomes durable by lines that are written back. If not, all that was stored does at a checkpoint, and
    /// lines that change need not be remembered for [`Medium::write_back`].
    #[inline]
    fn has_lines(&self) -> bool {
        true
    }

    /// Has the lines of these bytes written back (`pwb`): they are durable with the next [`Medium::fence`].
    fn write_back(&self, at: usize, len: usize);

    /// What was written back is durable, before anything that is stored from now on (`pfence`, and `psync`: on x86-64 they
    /// are one).
    ///
    /// On a file nothing is durable before [`Medium::checkpoint`], and then all of it at once.
    fn fence(&self);

    /// What was written back is durable now, on every medium. Nobody stores meanwhile.
    ///
    /// # Errors
    /// It is not: the device or the file system refused.
    fn checkpoint(&self) -> Result<(), Failed>;

    /// What was made durable is in one place, which can be copied or moved by itself: a log is emptied.
    ///
    /// # Errors
    /// As for [`Medium::checkpoint`].
    fn settle(&self) -> Result<(), Failed> {
        Ok(())
    }

    /// Whether somebody asks for a copy, in the line at that offset; see [`crate::loan`]. The offset is a multiple of 8, and the line on the medium.
    #[inline]
    fn is_asked(&self, _at: usize) -> bool {
        false
    }

    /// Stands still until whoever asks has his copy, or has given up. Nobody stores meanwhile.
    fn lend(&self, _at: usize) {}
}

// SAFETY: what it refers to is one, and lives longer.
unsafe impl<M: Medium + ?Sized> Medium for &M {
    #[inline]
    fn base(&self) -> NonNull<u8> {
        (**self).base()
    }

    #[inline]
    fn bytes(&self) -> usize {
        (**self).bytes()
    }

    fn limit(&self) -> usize {
        (**self).limit()
    }

    fn present(&self) -> Result<usize, Failed> {
        (**self).present()
    }

    fn grow(&self, bytes: usize) -> Result<(), Failed> {
        (**self).grow(bytes)
    }

    #[inline]
    unsafe fn store(&self, at: usize, bytes: &[u8]) {
        // SAFETY: passed on from the caller.
        unsafe { (**self).store(at, bytes) }
    }

    #[inline]
    unsafe fn store_word(&self, at: usize, word: u64) {
        // SAFETY: passed on from the caller.
        unsafe { (**self).store_word(at, word) }
    }

    #[inline]
    fn has_lines(&self) -> bool {
        (**self).has_lines()
    }

    #[inline]
    fn write_back(&self, at: usize, len: usize) {
        (**self).write_back(at, len)
    }

    #[inline]
    fn fence(&self) {
        (**self).fence()
    }

    fn checkpoint(&self) -> Result<(), Failed> {
        (**self).checkpoint()
    }

    fn settle(&self) -> Result<(), Failed> {
        (**self).settle()
    }

    #[inline]
    fn is_asked(&self, at: usize) -> bool {
        (**self).is_asked(at)
    }

    fn lend(&self, at: usize) {
        (**self).lend(at)
    }
}
