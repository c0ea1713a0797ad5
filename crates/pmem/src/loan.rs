//! Lends a mapped file: a process that wants a copy, the asker, requests it in the file itself. The owner, the process that has the file
//! mapped, stands still at a moment at which the file is consistent, until the copy is made.
//!
//! Three words of a line carry the protocol. They need not be durable, and mean nothing without an asker:
//!
//! - the request: a number that the asker has drawn;
//! - the grant: the same number while the owner stands still;
//! - the beat, which changes while the asker copies.
//!
//! An owner without an asker reads one word of memory. Locks of bytes beyond the end of the file show that there is an asker, one at a
//! time, and that a process has the file mapped. The kernel removes them when that process ends.
//!
//! The asker relies on the grant: if the number is still there when all was read, nothing was stored meanwhile. A process that opens the
//! file clears the words before any other store. An owner withdraws the grant when the asker makes no progress for `PATIENCE`. Each
//! request has a number of its own, so that the asker does not take a grant that is being withdrawn for the next one.

use core::ffi::CStr;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering::*};
use core::time::Duration;

use spandrel_os::byte_lock::FAR;
use spandrel_os::image::{self, Access, Image, Mapping};
use spandrel_os::{clock, env, vm};
use spandrel_pages::PAGE_BYTES;

use crate::medium::Failed;
use crate::room;

/// Bytes of the line.
pub const LINE_BYTES: usize = 3 * size_of::<u64>();
/// Locked by the process that asks.
const ASKER: u64 = FAR;
/// Locked by the process that has the file mapped.
const OWNER: u64 = FAR + 1;
/// Shared by processes that read the file and its log: records are only added to the log meanwhile.
pub const READER: u64 = FAR + 2;
/// The longest time that an owner waits for an asker without a beat: the asker may have been stopped.
const PATIENCE: Duration = Duration::from_secs(10);

/// The words of the line.
#[derive(Clone, Copy)]
struct Line(NonNull<AtomicU64>);

impl Line {
    fn word(&self, number: usize) -> &AtomicU64 {
        // SAFETY: the creator of the line keeps its three words mapped, and all processes access them as atomic words.
        unsafe { self.0.add(number).as_ref() }
    }

    fn wanted(&self) -> &AtomicU64 {
        self.word(0)
    }

    fn granted(&self) -> &AtomicU64 {
        self.word(1)
    }

    fn beat(&self) -> &AtomicU64 {
        self.word(2)
    }
}

/// Marks the file as mapped, until the image is dropped.
pub fn mark(image: &Image) {
    // Where the file system has no such locks there is no asker either.
    let _ = image.try_lock_byte(OWNER);
}

/// Whether a process has the file mapped.
pub fn is_marked(image: &Image) -> bool {
    image.is_byte_locked(OWNER)
}

/// Whether a process asks.
///
/// # Safety
/// The line at that address is mapped.
#[inline]
pub unsafe fn is_asked(line: NonNull<u8>) -> bool {
    // SAFETY: promised by the caller.
    unsafe { line.cast::<AtomicU64>().as_ref() }.load(Relaxed) != 0
}

/// Stands still until the asker has a copy, has ended, or has made no progress for `PATIENCE`.
///
/// # Safety
/// The line at that address is mapped from the image.
pub unsafe fn lend(image: &Image, line: NonNull<u8>) {
    lend_for(image, Line(line.cast()), PATIENCE);
}

fn lend_for(image: &Image, line: Line, patience: Duration) {
    let number = line.wanted().load(Acquire);
    let (mut beat, mut heard) = (line.beat().load(Relaxed), clock::nanos());
    let mut nap = Nap::new();
    while number != 0 && line.wanted().load(Acquire) == number {
        // The asker has ended, and has left its request.
        if image.try_lock_byte(ASKER) == Ok(true) {
            line.wanted().store(0, Relaxed);
            line.granted().store(0, Release);
            image.unlock_byte(ASKER);
            return;
        }
        line.granted().store(number, Release);
        let (last, now) = (line.beat().load(Relaxed), clock::nanos());
        if last != beat {
            (beat, heard) = (last, now);
        }
        if u128::from(now - heard) > patience.as_nanos() {
            // The asker makes a new request when it proceeds.
            let _ = line.wanted().compare_exchange(number, 0, Relaxed, Relaxed);
            break;
        }
        nap.take();
    }
    line.granted().store(0, Release);
    // Every processor sees the grant withdrawn before any later store.
    core::sync::atomic::fence(SeqCst);
}

/// An asker's request, and the grant.
pub struct Loan {
    image: Image,
    line: Line,
    page: NonNull<u8>,
    number: u64,
    has_turn: bool,
}

impl Loan {
    /// Asks for a file whose line lies at that offset.
    ///
    /// # Errors
    /// The error's number: the file cannot be written or mapped, or has no such line.
    pub fn ask(path: &CStr, at: usize) -> Result<Self, Failed> {
        let image = Image::open(path, Access::Write).map_err(Failed)?;
        let start = at / PAGE_BYTES * PAGE_BYTES;
        let end = (start + PAGE_BYTES) as u64;
        if image.bytes().map_err(Failed)? < end || !at.is_multiple_of(size_of::<u64>()) {
            return Err(Failed(libc::EINVAL));
        }
        let (page, _) = room::reserve(PAGE_BYTES, None)?;
        // SAFETY: just reserved.
        let mapped = unsafe { image.map(page.as_ptr(), start as u64, PAGE_BYTES, Mapping::Shared) };
        // SAFETY: within the page.
        let line = Line(unsafe { page.add(at - start) }.cast());
        let number = image::unique()[0] | 1;
        let loan = Self { image, line, page, number, has_turn: false };
        mapped.map_err(Failed)?;
        Ok(loan)
    }

    /// Whether the owner stands still. Makes a new request if the owner has withdrawn the grant.
    pub fn is_granted(&mut self) -> bool {
        self.has_turn = self.has_turn || self.image.try_lock_byte(ASKER) == Ok(true);
        if !self.has_turn {
            return false;
        }
        if self.line.wanted().load(Relaxed) != self.number {
            // The owner may be about to withdraw the grant of the old number.
            self.number = image::unique()[0] | 1;
            self.line.wanted().store(self.number, Release);
        }
        self.line.granted().load(Acquire) == self.number
    }

    /// The file as this loan has opened it.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// Shows the owner that the copy makes progress.
    pub fn beat(&self) {
        self.line.beat().fetch_add(1, Relaxed);
    }

    /// Whether the owner has stood still since the grant, or has ended: what was read since is of one moment then.
    pub fn is_kept(&self) -> bool {
        // All reads of the copy come before the load of the grant.
        core::sync::atomic::fence(SeqCst);
        let is_free = || self.image.lock(Access::Read).is_ok();
        let has_owner = is_marked(&self.image) || is_free();
        has_owner && self.line.granted().load(Acquire) == self.number
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if self.has_turn {
            self.line.beat().store(0, Relaxed);
            let wanted = self.line.wanted();
            let _ = wanted.compare_exchange(self.number, 0, AcqRel, Relaxed);
            self.image.unlock_byte(ASKER);
        }
        // SAFETY: the page was mapped by this loan, whose line is used no more.
        unsafe { vm::release(self.page.as_ptr(), PAGE_BYTES) };
    }
}

/// Pauses that become longer, up to a millisecond: most copies are of small heaps.
pub(crate) struct Nap(i64);

impl Nap {
    const LONGEST: i64 = 1_000_000;

    /// The first is short.
    pub(crate) fn new() -> Self {
        Self(Self::LONGEST / 32)
    }

    /// Sleeps, each time twice as long, so that other threads and processes proceed.
    pub(crate) fn take(&mut self) {
        let time = libc::timespec { tv_sec: 0, tv_nsec: self.0 };
        let errno = env::errno();
        // By the call itself: the C library's function is one where a thread may be cancelled, and an owner holds locks here.
        // SAFETY: the time is valid, and a null pointer refuses the remaining time.
        unsafe { libc::syscall(libc::SYS_nanosleep, &raw const time, core::ptr::null_mut::<u8>()) };
        env::set_errno(errno);
        self.0 = (self.0 * 2).min(Self::LONGEST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapped::Mapped;
    use crate::medium::Medium as _;
    use crate::testing::{ASKING as AT, Directory};
    use std::prelude::v1::*;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    struct File {
        place: Directory,
        mapped: Mapped,
    }

    impl File {
        fn new() -> Self {
            let place = Directory::new();
            place.make(8 * PAGE_BYTES).unwrap();
            let image = crate::files::locked(&place.place()).unwrap();
            Self { mapped: Mapped::of(image, 1 << 20, None).unwrap(), place }
        }

        fn ask(&self) -> Loan {
            Loan::ask(self.place.place().path, AT).unwrap()
        }

        fn image(&self) -> Image {
            Image::open(self.place.place().path, Access::Write).unwrap()
        }

        fn line(&self) -> Line {
            // SAFETY: on the medium.
            Line(unsafe { self.mapped.base().add(AT) }.cast())
        }

        fn words(&self) -> [u64; 2] {
            [self.line().wanted(), self.line().granted()].map(|word| word.load(SeqCst))
        }
    }

    fn wait_for(mut what: impl FnMut() -> bool) {
        (0..5000).any(|_| {
            let is_so = what();
            if !is_so {
                thread::sleep(Duration::from_millis(1));
            }
            is_so
        });
        assert!(what());
    }

    #[test]
    fn the_owner_stands_still_until_the_copy_is_there() {
        let file = File::new();
        assert!(is_marked(&file.image()) && !file.mapped.is_asked(AT));
        let mut loan = file.ask();
        assert!(!loan.is_granted() && file.mapped.is_asked(AT));
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                file.mapped.lend(AT);
                is_done.store(true, SeqCst);
            });
            wait_for(|| loan.is_granted());
            thread::sleep(Duration::from_millis(20));
            assert!(loan.is_kept() && !is_done.load(SeqCst));
            drop(loan);
            wait_for(|| is_done.load(SeqCst));
        });
        assert_eq!(file.words(), [0, 0]);
    }

    #[test]
    fn what_a_dead_asker_has_left_is_cleared_and_the_owner_does_not_wait() {
        let file = File::new();
        file.line().wanted().store(7, SeqCst);
        file.line().granted().store(7, SeqCst);
        assert!(file.mapped.is_asked(AT));
        file.mapped.lend(AT);
        assert_eq!(file.words(), [0, 0]);
        assert!(!file.mapped.is_asked(AT));
    }

    #[test]
    fn an_asker_that_does_nothing_for_long_has_no_copy() {
        let file = File::new();
        let mut loan = file.ask();
        loan.is_granted();
        let patience = Duration::from_millis(200);
        thread::scope(|scope| {
            let owner = scope.spawn(|| lend_for(&file.image(), file.line(), patience));
            wait_for(|| loan.is_granted());
            for _ in 0..10 {
                thread::sleep(Duration::from_millis(50));
                loan.beat();
            }
            assert!(loan.is_kept(), "it was heard of");
            owner.join().unwrap();
        });
        assert!(!loan.is_kept());
        assert_eq!(file.words(), [0, 0]);
        assert!(!loan.is_granted() && file.mapped.is_asked(AT), "and asks again");
    }

    #[test]
    fn one_asks_at_a_time_and_the_next_waits_for_the_next_time() {
        let file = File::new();
        let (mut first, mut second) = (file.ask(), file.ask());
        assert!(!first.is_granted() && !second.is_granted());
        let number = file.words()[0];
        assert_eq!(number, first.number);
        thread::scope(|scope| {
            let owner = scope.spawn(|| file.mapped.lend(AT));
            wait_for(|| first.is_granted());
            assert!(!second.is_granted());
            drop(first);
            owner.join().unwrap();
            let owner = scope.spawn(|| {
                wait_for(|| file.mapped.is_asked(AT));
                file.mapped.lend(AT);
            });
            wait_for(|| second.is_granted());
            drop(second);
            owner.join().unwrap();
        });
    }

    #[test]
    fn an_owner_that_ends_is_one_that_changes_nothing() {
        let file = File::new();
        let mut loan = file.ask();
        loan.is_granted();
        file.line().granted().store(loan.number, SeqCst);
        let File { place, mapped } = file;
        drop(mapped);
        assert!(loan.is_kept());
        // The loan has locked the file for itself: no other process can have opened it.
        let image = Image::open(place.place().path, Access::Write).unwrap();
        assert_eq!(image.lock(Access::Write), Err(libc::EWOULDBLOCK));
    }
}
