//! What persistent bytes lie on.

use core::ptr::NonNull;

use spandrel_redolog::Fault;

use crate::compare::{Mismatch, Standing};
use crate::line::WORD_BYTES;

/// Why something could not be made durable: the kernel's error number, or one of the constants below, which no kernel has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failed(pub i32);

impl Failed {
    /// The log beside the image is that of another image.
    pub const FOREIGN_LOG: Self = Self(0x1_0001);
    /// The log beside the image continues another state of it: that of a copy, an older or a newer one.
    pub const STALE_LOG: Self = Self(0x1_0002);
    /// The image was not closed and its log is missing, or empty: the image may have parts of a checkpoint.
    pub const MISSING_LOG: Self = Self(0x1_0003);
    /// The log is damaged: records that were durable are missing.
    pub const DAMAGED_LOG: Self = Self(0x1_0004);
    /// What has the log's name is no log.
    pub const NOT_A_LOG: Self = Self(0x1_0005);
    /// The image does not say which state it is in.
    pub const DAMAGED_TIE: Self = Self(0x1_0006);
    /// The image is shorter than it was in the state that it says it is in.
    pub const CUT_OFF: Self = Self(0x1_000c);
    /// The image cannot be mapped: the file system writes to new blocks (btrfs, or an extent that two files share), and a store on a full
    /// disk would end the program by a signal.
    pub const COPY_ON_WRITE: Self = Self(0x1_0007);
    /// The file system has huge pages only, and neither small mappings nor writes.
    pub const HUGE_PAGES: Self = Self(0x1_0008);
    /// The path of the image leads to another file, or to none: nothing more becomes durable.
    pub const REPLACED: Self = Self(0x1_0009);
    /// What has the name of the file with the image's sums is none of this image.
    pub const FOREIGN_SUMS: Self = Self(0x1_000a);
    /// A mapped image has no sums: its stores pass no moment at which one could be computed.
    pub const MAPPED_SUMS: Self = Self(0x1_000b);

    /// The log is of another version of its format; this and the last byte of its first word.
    const OTHER_VERSION: i32 = 0x1_0100;

    /// The version of a log that is of another one: a character. `None`: the error is another one.
    pub fn version_of_log(self) -> Option<u8> {
        u8::try_from(self.0.checked_sub(Self::OTHER_VERSION)?).ok()
    }

    /// Whether the error is one of the log, and not of the image.
    pub fn is_of_log(self) -> bool {
        self.version_of_log().is_some()
            || matches!(
                self,
                Self::FOREIGN_LOG
                    | Self::STALE_LOG
                    | Self::MISSING_LOG
                    | Self::DAMAGED_LOG
                    | Self::NOT_A_LOG
            )
    }

    /// Whether there is no room on the disk, or within a limit of the process or of the user. There may be later.
    pub fn is_full(self) -> bool {
        matches!(self.0, libc::ENOSPC | libc::EDQUOT | libc::EFBIG)
    }
}

impl From<Fault> for Failed {
    fn from(why: Fault) -> Self {
        match why {
            Fault::NotALog => Self::NOT_A_LOG,
            Fault::Version(version) => Self(Self::OTHER_VERSION + i32::from(version)),
            Fault::Foreign => Self::FOREIGN_LOG,
            Fault::Stale => Self::STALE_LOG,
            Fault::Missing => Self::MISSING_LOG,
            Fault::Damaged => Self::DAMAGED_LOG,
            Fault::Buffer => Self(libc::EINVAL),
        }
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
    /// The address of the first byte: a multiple of 4 KiB.
    fn base(&self) -> NonNull<u8>;

    /// The number of bytes. It may grow, and shrinks by [`Medium::shrink`] only.
    fn bytes(&self) -> usize;

    /// The largest number of bytes that the medium can grow to.
    fn limit(&self) -> usize {
        self.bytes()
    }

    /// Makes the medium longer, to `bytes` bytes at least, with room for all of them; the new ones are zero.
    ///
    /// # Errors
    /// `ENOSPC`: the medium is full; `ENOMEM`: beyond the limit. The medium is unchanged then.
    fn grow(&self, bytes: usize) -> Result<(), Failed> {
        if bytes <= self.bytes() { Ok(()) } else { Err(Failed(libc::ENOMEM)) }
    }

    /// Takes the end of the medium back, down to `bytes` bytes, where the medium can do that: when it grows again, the bytes there are zero.
    ///
    /// # Safety
    /// No thread uses the bytes of the end, and no reference leads there.
    unsafe fn shrink(&self, _bytes: usize) {}

    /// The number of bytes that the file still has: fewer than [`Medium::bytes`] if another process has truncated it. An access beyond
    /// them ends the process (`SIGBUS`).
    ///
    /// # Errors
    /// The file system's.
    fn present(&self) -> Result<usize, Failed> {
        Ok(self.bytes())
    }

    /// Whether the medium is a copy in memory: what is stored reaches no file.
    fn is_private(&self) -> bool {
        false
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

    /// Whether all that is stored becomes durable by itself in batches that are all or nothing: no change needs a log.
    #[inline]
    fn is_atomic(&self) -> bool {
        false
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

    /// As [`Medium::checkpoint`], of a moment that the caller chooses: `still` calls its argument once, while no thread stores what has
    /// to be of one moment. A medium that copies nothing need not call `still`; a file may call it twice, if the disk was full.
    ///
    /// # Errors
    /// As for [`Medium::checkpoint`].
    fn checkpoint_still(&self, still: &dyn Fn(&mut dyn FnMut())) -> Result<(), Failed>;

    /// Releases memory that the medium holds beside the file, of pages that are as of the last checkpoint. Returns the number of bytes: 0
    /// while a checkpoint is under way.
    ///
    /// # Safety
    /// No other thread stores to the medium meanwhile, nor does an asynchronous system call that was begun before.
    unsafe fn give_back(&self) -> usize {
        0
    }

    /// Brings all that is durable into the file, which can be copied or moved by itself then: the log has no records any more.
    ///
    /// # Errors
    /// As for [`Medium::checkpoint`].
    fn settle(&self) -> Result<(), Failed> {
        Ok(())
    }

    /// Compares all pages, as the file has them, with their sums, and calls `see` with the offset of each page that is not as its sum says. A page
    /// that was found so stays one that is reported, also when it was written to since. Complexity: all of the file is read.
    ///
    /// # Errors
    /// The file system's.
    fn compare_sums(&self, _see: &mut dyn FnMut(u64, Mismatch)) -> Result<Standing, Failed> {
        Ok(Standing::Absent)
    }

    /// Whether another process requests a copy, in the line at that offset; see [`crate::loan`]. The offset is a multiple of 8, and the
    /// line lies on the medium.
    #[inline]
    fn is_asked(&self, _at: usize) -> bool {
        false
    }

    /// Waits until the other process has its copy, has ended, or makes no progress. The caller makes sure that no thread stores meanwhile.
    fn lend(&self, _at: usize) {}
}

// SAFETY: the medium that the reference points to keeps the promise, and lives longer than the reference.
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

    fn is_private(&self) -> bool {
        (**self).is_private()
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
    fn is_atomic(&self) -> bool {
        (**self).is_atomic()
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

    fn compare_sums(&self, see: &mut dyn FnMut(u64, Mismatch)) -> Result<Standing, Failed> {
        (**self).compare_sums(see)
    }

    #[inline]
    fn is_asked(&self, at: usize) -> bool {
        (**self).is_asked(at)
    }

    fn lend(&self, at: usize) {
        (**self).lend(at)
    }
}
