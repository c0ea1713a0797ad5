//! Sliding windows: the smallest and largest demand of the recent past.

/// Extremes of one epoch.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    low: u32,
    high: u32,
}

/// `EPOCHS` epochs in a ring. Between observations the value is what it was last.
#[derive(Debug)]
pub(crate) struct Window<const EPOCHS: usize> {
    epoch_ms: u32,
    /// When the newest epoch ends; 0 before the first observation.
    ends_ms: u64,
    newest: usize,
    ring: [Epoch; EPOCHS],
    current: u32,
}

impl<const EPOCHS: usize> Window<EPOCHS> {
    /// A window of `window_ms`. Demand was nothing before it began.
    pub(crate) const fn new(window_ms: u32) -> Self {
        let epoch_ms = window_ms.div_ceil(EPOCHS as u32);
        Self {
            epoch_ms: if epoch_ms == 0 { 1 } else { epoch_ms },
            ends_ms: 0,
            newest: 0,
            ring: [Epoch { low: 0, high: 0 }; EPOCHS],
            current: 0,
        }
    }

    /// Notes the demand at this time. Time that goes backwards stands still.
    #[inline]
    pub(crate) fn observe(&mut self, now_ms: u64, value: u32) {
        if now_ms >= self.ends_ms {
            self.advance(now_ms);
        }
        self.current = value;
        if let Some(epoch) = self.ring.get_mut(self.newest) {
            epoch.low = epoch.low.min(value);
            epoch.high = epoch.high.max(value);
        }
    }

    /// Begins the epochs that time has brought; in all of them demand was what it is.
    pub(crate) fn advance(&mut self, now_ms: u64) {
        if now_ms < self.ends_ms {
            return;
        }
        let epoch_ms = u64::from(self.epoch_ms);
        let steps = ((now_ms - self.ends_ms) / epoch_ms).saturating_add(1);
        for _ in 0..steps.min(EPOCHS as u64) {
            self.newest = (self.newest + 1) % EPOCHS;
            if let Some(epoch) = self.ring.get_mut(self.newest) {
                *epoch = Epoch { low: self.current, high: self.current };
            }
        }
        self.ends_ms = self.ends_ms.saturating_add(steps.saturating_mul(epoch_ms));
    }

    /// The epochs that cover the last `ms` milliseconds, the newest first.
    fn recent(&self, ms: u32) -> impl Iterator<Item = Epoch> + '_ {
        let count = (ms.div_ceil(self.epoch_ms) as usize).clamp(1, EPOCHS);
        (0..count)
            .filter_map(move |back| self.ring.get((self.newest + EPOCHS - back) % EPOCHS).copied())
    }

    /// The largest demand of the last `ms` milliseconds.
    pub(crate) fn high(&self, ms: u32) -> u32 {
        self.recent(ms).map(|e| e.high).max().unwrap_or(0)
    }

    /// The smallest demand of the last `ms` milliseconds.
    pub(crate) fn low(&self, ms: u32) -> u32 {
        self.recent(ms).map(|e| e.low).min().unwrap_or(0)
    }

    /// What the demand is.
    pub(crate) fn current(&self) -> u32 {
        self.current
    }

    /// The most that demand has come back by after it had fallen: growth beyond earlier peaks does
    /// not count. What rises and falls within an epoch is not seen.
    pub(crate) fn rebound(&self) -> u32 {
        let (mut peak, mut trough, mut rebound) = (0, 0, 0);
        for back in (0..EPOCHS).rev() {
            let Some(epoch) = self.ring.get((self.newest + EPOCHS - back) % EPOCHS) else {
                continue;
            };
            rebound = rebound.max(epoch.high.min(peak).saturating_sub(trough));
            if epoch.high >= peak {
                // Whether its low came before or after is not known; the next one tells.
                (peak, trough) = (epoch.high, epoch.high);
            } else {
                trough = trough.min(epoch.low);
            }
        }
        rebound
    }

    /// The largest of what the epochs of the last `ms` milliseconds fell to: demand without its
    /// fluctuation.
    pub(crate) fn trend(&self, ms: u32) -> u32 {
        self.recent(ms).map(|e| e.low).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extremes_leave_with_their_epochs() {
        let mut window = Window::<4>::new(400);
        window.observe(1000, 5);
        window.observe(1010, 50);
        window.observe(1020, 10);
        assert_eq!((window.low(400), window.high(400)), (0, 50));
        window.advance(1150);
        assert_eq!((window.high(100), window.high(400)), (10, 50));
        window.advance(1350);
        assert_eq!((window.low(400), window.high(400)), (0, 50));
        window.advance(1450);
        assert_eq!((window.low(400), window.high(400)), (10, 10));
        window.observe(100_000, 11);
        assert_eq!((window.low(400), window.high(400)), (10, 11));
    }

    #[test]
    fn time_may_stand_still_or_jump() {
        let mut window = Window::<4>::new(0);
        window.observe(u64::MAX, 3);
        window.observe(0, 7);
        window.advance(u64::MAX);
        assert_eq!(window.high(u32::MAX), 7);
    }

    #[test]
    fn rebounds_are_told_from_growth() {
        let mut window = Window::<10>::new(1000);
        let mut at = 0;
        let mut observe = |window: &mut Window<10>, value| {
            at += 100;
            window.observe(at, value);
        };
        for value in [10, 50, 100, 100] {
            observe(&mut window, value);
        }
        assert_eq!(window.rebound(), 0);
        for value in [40, 40, 70, 70] {
            observe(&mut window, value);
        }
        assert_eq!(window.rebound(), 30);
        // Beyond the peak it is growth.
        observe(&mut window, 300);
        assert_eq!(window.rebound(), 60);
        for _ in 0..10 {
            observe(&mut window, 300);
        }
        assert_eq!(window.rebound(), 0);
    }

    #[test]
    fn the_trend_ignores_short_peaks() {
        let mut window = Window::<4>::new(400);
        for (at, value) in [(0, 10), (50, 90), (60, 10), (110, 20), (150, 80), (160, 20)] {
            window.observe(at, value);
        }
        assert_eq!((window.high(400), window.trend(400)), (90, 10));
    }
}
