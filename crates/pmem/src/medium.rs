//! What persistent bytes lie on.

use core::ptr::NonNull;

use crate::line::WORD_BYTES;

/// Why something could not be made durable: the kernel's error number, or one of the constants below, which no kernel has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failed(pub i32);

impl Failed {
    /// The log beside the image is that of another image.
    pub const FOREIGN_LOG: Self = Self(0x1_0001);
    /// The log beside the image is of another state of it: of a copy, of an older or a newer one.
    pub const STALE_LOG: Self = Self(0x1_0002);
    /// The image was not closed and its log is missing, or empty: the image may have parts of a checkpoint.
    pub const MISSING_LOG: Self = Self(0x1_0003);
    /// The log is damaged: records that were durable are missing.
    pub const DAMAGED_LOG: Self = Self(0x1_0004);
    /// What has the log's name is no log.
    pub const NOT_A_LOG: Self = Self(0x1_0005);
    /// The image does not say which state it is in.
    pub const DAMAGED_TIE: Self = Self(0x1_0006);
    /// The file system copies what is written (btrfs, or an extent that two files share): a full disk would end the program by a signal, so the
    /// image cannot be mapped.
    pub const COPY_ON_WRITE: Self = Self(0x1_0007);
    /// The file system has huge pages only, and neither small mappings nor writes.
    pub const HUGE_PAGES: Self = Self(0x1_0008);

    /// Whether it is about the log, and not about the image.
    pub fn is_of_log(self) -> bool {
        matches!(
            self,
            Self::FOREIGN_LOG
                | Self::STALE_LOG
                | Self::MISSING_LOG
                | Self::DAMAGED_LOG
                | Self::NOT_A_LOG
        )
    }

    /// Whether there is no room on the disk, for a limit of the process, of the user or of the disk itself: later there may be.
    pub fn is_full(self) -> bool {
        matches!(self.0, libc::ENOSPC | libc::EDQUOT | libc::EFBIG)
    }
}

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

    /// Bytes that are still there: fewer than [`Medium::bytes`] if another process has truncated the file. What lies beyond them must not be touched:
    /// the kernel ends a process that does (`SIGBUS`).
    ///
    /// # Errors
    /// The file system's.
    fn present(&self) -> Result<usize, Failed> {
        Ok(self.bytes())
    }

    /// Stores bytes. What crosses words may be torn.
    ///
    /// # Safety
    /// They lie on the medium, and no other thread reads or writes them meanwhile.
    #[inline]
    unsafe fn store(&self, at: usize, bytes: &[u8]) {
        debug_assert!(at + bytes.len() <= self.bytes());
        // SAFETY: the caller has the range to itself, so that `bytes` lies elsewhere and the two do not overlap.
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

    /// What was stored until now is durable when this returns, on every medium, provided that it was written back. Threads may store
    /// meanwhile. On a file the checkpoint is all or nothing, and what is stored while it copies a page is in it as the page's words were.
    ///
    /// # Errors
    /// It is not durable: the device or the file system refused. Earlier checkpoints are not harmed.
    fn checkpoint(&self) -> Result<(), Failed> {
        self.checkpoint_still(&|copy| copy())
    }

    /// The same with a moment that the caller chooses: `still` calls what it is given, once, while nothing is stored that has to be of one
    /// moment. A medium that copies nothing need not call it.
    ///
    /// # Errors
    /// As for [`Medium::checkpoint`]. `still` may be called a second time.
    fn checkpoint_still(&self, still: &dyn Fn(&mut dyn FnMut())) -> Result<(), Failed>;

    /// Gives memory back that the medium holds beside the file, of what the last checkpoint has. Returns the number of bytes: 0 also while a
    /// checkpoint is under way.
    ///
    /// # Safety
    /// No other thread stores to the medium meanwhile, and no system call that was begun before does.
    unsafe fn give_back(&self) -> usize {
        0
    }

    /// What was made durable is in one place, which can be copied or moved by itself: a log is emptied.
    ///
    /// # Errors
    /// As for [`Medium::checkpoint`].
    fn settle(&self) -> Result<(), Failed> {
        Ok(())
    }

    /// Whether a process asks for a copy, in the line at that offset; see [`crate::loan`]. The offset is a multiple of 8, and the line on the medium.
    #[inline]
    fn is_asked(&self, _at: usize) -> bool {
        false
    }

    /// Stands still until the asker has its copy, or has given up. No thread stores meanwhile.
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

    fn checkpoint_still(&self, still: &dyn Fn(&mut dyn FnMut())) -> Result<(), Failed> {
        (**self).checkpoint_still(still)
    }

    unsafe fn give_back(&self) -> usize {
        // SAFETY: passed on from the caller.
        unsafe { (**self).give_back() }
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
