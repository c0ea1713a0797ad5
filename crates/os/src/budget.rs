//! How much memory our own allocators may hold together.
//!
//! Each of them says what it holds: what it has from the kernel, whether objects use it or it is
//! kept for later. Untouched objects count as touched ones. Under a hard
//! limit a request that would hold more fails, after what is kept for later has gone back; above
//! a soft limit only the latter happens. Without limits nothing is counted.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use spandrel_pages::Figure;

use crate::live;

/// Stands for no limit.
const NONE: usize = usize::MAX;

static COUNTS: AtomicBool = AtomicBool::new(false);
static HARD: AtomicUsize = AtomicUsize::new(NONE);
static SOFT: AtomicUsize = AtomicUsize::new(NONE);
static HELD: AtomicUsize = AtomicUsize::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Sets the limits, in bytes. Before that nothing is counted: to be called before memory is held.
pub fn set(hard: Option<usize>, soft: Option<usize>) {
    HARD.store(hard.unwrap_or(NONE), Relaxed);
    SOFT.store(soft.unwrap_or(NONE), Relaxed);
    COUNTS.store(hard.is_some() || soft.is_some(), Relaxed);
    live::set(Figure::HardLimit, hard.map_or(0, |bytes| bytes as u64));
    live::set(Figure::SoftLimit, soft.map_or(0, |bytes| bytes as u64));
}

/// Whether there is a limit, and what is held has to be told.
#[inline(always)]
pub fn counts() -> bool {
    COUNTS.load(Relaxed)
}

/// The hard limit in bytes.
pub fn hard() -> Option<usize> {
    Some(HARD.load(Relaxed)).filter(|limit| *limit != NONE)
}

/// The soft limit in bytes.
pub fn soft() -> Option<usize> {
    Some(SOFT.load(Relaxed)).filter(|limit| *limit != NONE)
}

/// Bytes that are held, as far as they are counted.
pub fn held() -> usize {
    HELD.load(Relaxed)
}

/// An allocator holds `now` bytes instead of `before`.
pub fn change(before: usize, now: usize) {
    if now >= before {
        HELD.fetch_add(now - before, Relaxed);
        return;
    }
    // What was held before there were limits is not counted.
    let less = |held: usize| Some(held.saturating_sub(before - now));
    let _ = HELD.fetch_update(Relaxed, Relaxed, less);
}

/// Bytes that are about to be held: counted from now on, so that of two requests for the last
/// of them one is refused, until they are held ([`Promise::keep`]) or the value is dropped.
#[must_use]
#[derive(Debug, Default)]
pub struct Promise {
    bytes: usize,
}

impl Promise {
    /// `bytes`, if they are within the hard limit.
    #[inline]
    pub fn of(bytes: usize) -> Option<Self> {
        if bytes == 0 || !counts() { Some(Self { bytes: 0 }) } else { Self::counted(bytes) }
    }

    #[cold]
    fn counted(bytes: usize) -> Option<Self> {
        let hard = HARD.load(Relaxed);
        // In one step: of two requests for the last of it one gets it, and not neither.
        let more = |held: usize| held.checked_add(bytes).filter(|sum| *sum <= hard);
        HELD.fetch_update(Relaxed, Relaxed, more).is_ok().then(|| Self { bytes })
    }

    /// With another one's bytes.
    pub fn and(mut self, mut other: Option<Self>) -> Self {
        self.bytes += other.as_mut().map_or(0, |other| core::mem::take(&mut other.bytes));
        self
    }

    /// An allocator holds `now` bytes instead of `before` and of those that were promised: in one
    /// step, so that no thread finds them counted twice.
    #[inline]
    pub fn keep(mut self, before: usize, now: usize) {
        if counts() {
            change(before + core::mem::take(&mut self.bytes), now);
        }
    }
}

impl Drop for Promise {
    #[inline]
    fn drop(&mut self) {
        if self.bytes > 0 {
            change(self.bytes, 0);
        }
    }
}

/// Whether `bytes` are beyond the hard limit whatever is released.
pub fn can_never_be(bytes: usize) -> bool {
    bytes > HARD.load(Relaxed)
}

/// Bytes that would have to go back before `more` can be held within the hard limit.
pub fn missing(more: usize) -> usize {
    held().saturating_add(more).saturating_sub(HARD.load(Relaxed))
}

/// Bytes beyond what should be held: beyond the soft limit, or the hard one.
pub fn excess() -> usize {
    held().saturating_sub(SOFT.load(Relaxed).min(HARD.load(Relaxed)))
}

/// Counts a request that failed for the hard limit.
pub fn refuse() {
    let refused = REFUSED.fetch_add(1, Relaxed) + 1;
    live::set(Figure::OverLimit, refused);
}

/// The child of a fork counts its own.
pub fn fork_forget() {
    REFUSED.store(0, Relaxed);
}

/// A moment, by which one can tell later why a request has failed.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    refused: u64,
}

impl Moment {
    /// This one.
    #[inline]
    pub fn now() -> Self {
        Self { refused: refused() }
    }

    /// Whether a request that has been made and failed since then may have failed for the hard limit:
    /// true if any has.
    pub fn saw_a_refusal(self) -> bool {
        refused() != self.refused
    }
}

/// Requests that failed for the hard limit. One that an allocator refused may have been served
/// after all, when another had given back.
pub fn refused() -> u64 {
    REFUSED.load(Relaxed)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use core::sync::atomic::Ordering::SeqCst;

    use super::*;

    fn of_two_at_once_one_gets_the_last() {
        let turn = AtomicUsize::new(0);
        let meet = |next: usize| {
            turn.fetch_add(1, SeqCst);
            while turn.load(SeqCst) < 2 * next {
                core::hint::spin_loop();
            }
        };
        let got = AtomicUsize::new(0);
        let ask = || {
            for round in 0..20_000 {
                meet(3 * round + 1);
                let promise = Promise::of(600);
                got.fetch_add(usize::from(promise.is_some()), SeqCst);
                meet(3 * round + 2);
                assert_eq!(got.load(SeqCst), round + 1, "one of two, each time");
                drop(promise);
                meet(3 * round + 3);
            }
        };
        std::thread::scope(|threads| {
            threads.spawn(ask);
            ask();
        });
    }

    // One test: the limits are the process's.
    #[test]
    fn what_is_missing() {
        assert!(!counts());
        assert_eq!((hard(), soft(), missing(usize::MAX)), (None, None, 0));
        set(Some(1000), Some(600));
        assert!(counts());
        change(0, 500);
        assert_eq!((missing(500), missing(501), excess()), (0, 1, 0));
        change(500, 900);
        assert_eq!((held(), missing(0), missing(150), excess()), (900, 0, 50, 300));
        change(900, 100);
        assert_eq!((held(), excess()), (100, 0));
        set(None, Some(50));
        assert_eq!((missing(1 << 40), excess()), (0, 50));
        set(Some(1000), None);
        let promise = Promise::of(600).unwrap();
        assert_eq!(held(), 700);
        assert!(Promise::of(301).is_none() && Promise::of(1001).is_none());
        assert_eq!(held(), 700);
        drop((promise, Promise::of(300).unwrap()));
        assert_eq!(held(), 100);
        of_two_at_once_one_gets_the_last();
        Promise::of(300).unwrap().and(Promise::of(100)).keep(100, 350);
        assert_eq!(held(), 350);
        change(500, 0);
        assert_eq!(held(), 0, "some of it was held before it was counted");
        set(None, Some(50));
        let before = Moment::now();
        assert!(!before.saw_a_refusal());
        refuse();
        assert_eq!(refused(), 1);
        assert!(before.saw_a_refusal() && !Moment::now().saw_a_refusal());
        set(None, None);
        assert!(!counts());
    }
}
