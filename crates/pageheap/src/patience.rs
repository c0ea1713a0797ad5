//! How long demand is remembered before memory that it does not use is released.
//!
//! google/tcmalloc waits for minutes (60 s and 300 s), as a huge page that it breaks stays broken.
//! Here it is mended when it fills again, so that waiting for seconds does when demand has dropped
//! for good. Where it comes back soon, waiting longer is cheaper: what was given back and wanted
//! again makes the memory longer, and long quiet makes it shorter. However long it is, no more is
//! kept than demand has come back by before.

use crate::demand::Window;

/// Memory, in seconds: the first level has a window of its own.
const LEVELS_S: [u32; 6] = [5, 20, 40, 80, 160, 300];
/// Demand's swing is looked at over this part of the memory (google/tcmalloc: 60 s of 300 s).
const SWING_PART: u32 = 5;
/// Pages that are wanted again after so long were worth giving back.
const REGRET_MS: u64 = 60_000;
/// This many times the memory without regret, and it becomes shorter.
const QUIET: u64 = 10;
/// Fewer pages than this tell nothing: four huge pages.
const TELLING: u64 = 1024;
/// What stays free beyond what demand requires: this part of it, and four huge
/// pages. Otherwise the huge page that was opened last would be broken while it
/// fills.
const SPARE_PART: u32 = 32;
const SPARE_LEAST: u32 = 1024;
/// Instead of the latter, where demand has not changed in the whole memory: no huge page fills.
const SPARE_AT_REST: u32 = 128;

const FAST_EPOCHS: usize = 20;
const SLOW_EPOCHS: usize = 30;

/// Recent demand, and how much of the past counts as recent.
#[derive(Debug)]
pub(crate) struct Patience {
    fast: Window<FAST_EPOCHS>,
    slow: Window<SLOW_EPOCHS>,
    level: usize,
    /// Pages that went back since this was judged last, and when the last of them did.
    released: u64,
    released_ms: u64,
    /// What [`Self::unwanted`] was told then of pages that were wanted again.
    wanted_again: u64,
    judged_ms: u64,
}

impl Patience {
    pub(crate) const fn new() -> Self {
        let [first, .., last] = LEVELS_S;
        Self {
            fast: Window::new(first * 1000),
            slow: Window::new(last * 1000),
            level: 0,
            released: 0,
            released_ms: 0,
            wanted_again: 0,
            judged_ms: 0,
        }
    }

    /// Notes the demand at this time.
    #[inline]
    pub(crate) fn observe(&mut self, now_ms: u64, used: u32) {
        self.fast.observe(now_ms, used);
        self.slow.observe(now_ms, used);
    }

    /// Seconds of the past that count.
    pub(crate) fn seconds(&self) -> u32 {
        LEVELS_S.get(self.level).copied().unwrap_or(0)
    }

    /// Of `backed` pages those that recent demand will not refill, less some to spare. What it swung
    /// by lately comes on top of what it keeps coming back to; its peak bounds both. `wanted_again` is how many
    /// pages that had gone back were ever wanted again.
    pub(crate) fn unwanted(&mut self, now_ms: u64, backed: u32, wanted_again: u64) -> u32 {
        self.fast.advance(now_ms);
        self.slow.advance(now_ms);
        self.judge(now_ms, wanted_again);
        let [first, ..] = LEVELS_S;
        let mut required = required(&self.fast, first * 1000);
        if self.level > 0 {
            let longer = self::required(&self.slow, self.seconds() * 1000);
            let comes_back = self.slow.current().saturating_add(self.slow.rebound());
            required = required.max(longer.min(comes_back));
        }
        let spare = if self.rests() { SPARE_AT_REST } else { SPARE_LEAST };
        backed.saturating_sub(required + required / SPARE_PART + spare)
    }

    /// Whether demand has been the same throughout the memory, and never came back soon after it had dropped.
    fn rests(&self) -> bool {
        let [first, ..] = LEVELS_S;
        self.level == 0 && self.fast.high(first * 1000) == self.fast.low(first * 1000)
    }

    /// `pages` were released.
    pub(crate) fn released(&mut self, now_ms: u64, pages: u32) {
        if pages > 0 {
            self.released += u64::from(pages);
            self.released_ms = now_ms;
        }
    }

    fn judge(&mut self, now_ms: u64, wanted_again: u64) {
        if self.judged_ms == 0 {
            self.judged_ms = now_ms;
        }
        let again = wanted_again.saturating_sub(self.wanted_again);
        if self.released >= TELLING && again * 2 > self.released {
            self.level = (self.level + 1).min(LEVELS_S.len() - 1);
        } else if now_ms.saturating_sub(self.judged_ms) > QUIET * u64::from(self.seconds()) * 1000 {
            self.level = self.level.saturating_sub(1);
        } else if self.released == 0 || now_ms.saturating_sub(self.released_ms) <= REGRET_MS {
            return;
        }
        self.released = 0;
        self.wanted_again = wanted_again;
        self.judged_ms = now_ms;
    }
}

fn required<const N: usize>(demand: &Window<N>, long_ms: u32) -> u32 {
    let short_ms = long_ms / SWING_PART;
    let swing = demand.high(short_ms).saturating_sub(demand.low(short_ms));
    demand.trend(long_ms).saturating_add(swing).min(demand.high(long_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Demand of 10,000 pages for a second in every `period`, else none; all unwanted pages go
    /// back each second. How many did in an hour.
    fn released_in_an_hour(period: u64) -> u64 {
        let mut patience = Patience::new();
        let (mut gone, mut wanted_again, mut released) = (0, 0, 0);
        for second in 1..3600 {
            let now_ms = second * 1000;
            let used = if second % period == 0 { 10_000 } else { 0 };
            if used > 0 {
                wanted_again += u64::from(gone);
                gone = 0;
            }
            patience.observe(now_ms, used);
            let goes = patience.unwanted(now_ms, 10_000 - gone, wanted_again);
            patience.released(now_ms, goes);
            gone += goes;
            released += u64::from(goes);
        }
        released
    }

    #[test]
    fn what_comes_back_soon_is_waited_for() {
        // Nine times in an hour anyway.
        assert!(released_in_an_hour(400) >= 80_000);
        // Of 180 times that it could have gone back.
        let often = released_in_an_hour(20);
        assert!(often < 150_000, "{often}");
    }

    #[test]
    fn a_drop_that_never_came_back_by_as_much_is_not_waited_for() {
        let mut patience = Patience::new();
        patience.level = LEVELS_S.len() - 1;
        for second in 1..300_u64 {
            let used = if second / 20 % 2 == 0 { 100_000 } else { 90_000 };
            patience.observe(second * 1000, used);
        }
        for second in 300..310_u64 {
            patience.observe(second * 1000, 30_000);
        }
        let kept = 100_000 - patience.unwanted(310_000, 100_000, 0);
        assert!((40_000..43_000).contains(&kept), "{kept}");
    }

    #[test]
    fn a_drop_for_good_is_seen_within_seconds() {
        let mut patience = Patience::new();
        for now_ms in (1_000..9_000).step_by(100) {
            patience.observe(now_ms, 10_000);
        }
        patience.observe(9_000, 2_000);
        assert_eq!(patience.unwanted(9_100, 10_000, 0), 0);
        // As long as it changes a little, a huge page may be filling.
        patience.observe(12_000, 2_001);
        patience.observe(12_100, 2_000);
        assert_eq!(patience.unwanted(14_600, 10_000, 0), 8_000 - 62 - 1024);
        assert_eq!(patience.unwanted(18_000, 10_000, 0), 8_000 - 62 - 128);
        assert_eq!(patience.seconds(), 5);
    }
}
