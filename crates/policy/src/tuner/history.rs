//! When rows got another allocator.

use spandrel_pages::AllocatorId;

use super::Subject;

/// Changes that are remembered.
pub const CHANGES_KEPT: usize = 32;

/// A row got another allocator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// Milliseconds of the processor's time since learning began.
    pub after_ms: u32,
    /// Which row.
    pub subject: Subject,
    /// The allocator that serves it from then on.
    pub arm: AllocatorId,
    /// On trial; else the one before it came back, as the trial was not passed.
    pub trial: bool,
}

/// The last changes.
pub(super) struct History {
    kept: [Option<Change>; CHANGES_KEPT],
    /// All that there were.
    count: usize,
}

impl History {
    pub(super) const NONE: Self = History { kept: [None; CHANGES_KEPT], count: 0 };

    pub(super) fn note(&mut self, change: Change) {
        self.kept[self.count % CHANGES_KEPT] = Some(change);
        self.count = self.count.wrapping_add(1);
    }

    /// The oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = Change> + '_ {
        let oldest = if self.count > CHANGES_KEPT { self.count % CHANGES_KEPT } else { 0 };
        (0..CHANGES_KEPT).filter_map(move |at| self.kept[(oldest + at) % CHANGES_KEPT])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Operation;

    #[test]
    fn the_last_changes_are_kept_in_order() {
        let mut history = History::NONE;
        let change = |after_ms| Change {
            after_ms,
            subject: Subject { operation: Operation::Grow, row: 3 },
            arm: AllocatorId::Mmap,
            trial: true,
        };
        assert_eq!(history.iter().count(), 0);
        (0..5).for_each(|n| history.note(change(n)));
        assert!(history.iter().map(|c| c.after_ms).eq(0..5));
        (5..100).for_each(|n| history.note(change(n)));
        assert!(history.iter().map(|c| c.after_ms).eq(68..100));
    }
}
