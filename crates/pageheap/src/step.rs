//! Work that is done beside the program.

use spandrel_pages::Length;

use crate::heap::PageHeap;
use crate::memory::Memory;
use crate::release::Urgency;

/// What a step came to.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Work {
    /// Pages that went back to the kernel.
    pub released: Length,
    /// Huge pages that were tried to be restored.
    pub tried: u32,
}

/// The most that is released at once, as the time in which the rate allows it.
const AT_ONCE_MS: i64 = 25;

/// When the steady release last ran, and what it may still release.
#[derive(Debug)]
pub(crate) struct Trickle {
    last_ms: Option<u64>,
    /// Thousandths of pages; negative after more was released than asked for.
    due: i64,
}

impl Trickle {
    pub(crate) const fn new() -> Self {
        Self { last_ms: None, due: 0 }
    }

    /// Pages to release now. What was not released for long is not made up for at once: the
    /// caller holds a lock.
    fn pages(&mut self, now_ms: u64, per_s: Length) -> Length {
        let elapsed = self.last_ms.map_or(0, |last| now_ms.saturating_sub(last).min(1 << 20));
        self.last_ms = Some(self.last_ms.map_or(now_ms, |last| last.max(now_ms)));
        let most = i64::from(per_s.0) * AT_ONCE_MS;
        let income = i64::from(per_s.0).saturating_mul(elapsed as i64);
        self.due = self.due.saturating_add(income).min(most);
        Length(u32::try_from(self.due / 1000).unwrap_or(0))
    }
}

impl PageHeap<'_> {
    /// One round of background work: the cache shrinks to what demand justifies, about
    /// `release_per_s` pages go back, and broken huge pages that have filled again are restored as
    /// far as time goes. To be called several times a second, or at least now and then.
    pub fn step(&mut self, memory: &mut impl Memory, now_ms: u64, release_per_s: Length) -> Work {
        let mut work = self.step_release(memory, now_ms, release_per_s);
        while let Some(page) = self.next_to_restore(now_ms) {
            let outcome = memory.collapse(page);
            self.restored(memory, now_ms, page, outcome);
            work.tried += 1;
        }
        work
    }

    /// The same without restoring, for callers that restore without their lock; see
    /// [`Self::next_to_restore`].
    pub fn step_release(
        &mut self,
        memory: &mut impl Memory,
        now_ms: u64,
        release_per_s: Length,
    ) -> Work {
        let before = self.counters.released.total();
        self.trim_cache(memory, now_ms);
        let due = self.trickle.pages(now_ms, release_per_s);
        if due > Length::ZERO {
            let released = self.release(memory, now_ms, due, Urgency::Background);
            self.trickle.due -= i64::from(released.0) * 1000;
        }
        let released = self.counters.released.total() - before;
        Work { released: Length(u32::try_from(released).unwrap_or(u32::MAX)), tried: 0 }
    }
}
