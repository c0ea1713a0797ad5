//! Which allocator is explored next, gets a row on trial, keeps it or rests.

use spandrel_pages::AllocatorId;

use super::{
    BUDGET, CHANGED, Choice, EXPLORED, KEPT_MARGIN, LITTLE_OF_A_ROW, MARGIN, MOST_MISSES, Pair,
    REST, Subject, TRIED, Trial, Tuner, WORSE, subjects,
};

impl Tuner {
    /// Ends a trial that has gone on for long enough; the change if the row returns to its old allocator.
    pub(super) fn judge(&mut self) -> Option<Choice> {
        let trial = self.trial.filter(|trial| trial.windows >= TRIED)?;
        self.trial = None;
        let subject = trial.subject;
        let arm = self.row(subject).chosen;
        let ours = self.costs(subject)[arm as usize];
        let is_cheaper = ours.beats(&trial.before, KEPT_MARGIN);
        let is_no_dearer = trial.overhead <= trial.overhead_before * WORSE + 0.002;
        if is_cheaper && is_no_dearer {
            self.overhead = trial.overhead;
            let row = self.row_mut(subject);
            row.settled_ns = ours.nanos().unwrap_or(0.0);
            row.misses[arm as usize] = row.misses[arm as usize].saturating_sub(1);
            return None;
        }
        self.reject(subject, arm);
        let row = self.row_mut(subject);
        row.chosen = trial.from;
        Some(Choice { subject, arm: trial.from })
    }

    /// An allocator was not better for a subject: it rests.
    fn reject(&mut self, subject: Subject, arm: AllocatorId) {
        let now = self.windows;
        let row = self.row_mut(subject);
        let misses = &mut row.misses[arm as usize];
        row.rests_until[arm as usize] = now.saturating_add(REST << *misses);
        *misses = (*misses + 1).min(MOST_MISSES);
        row.explored[arm as usize] = 0;
    }

    /// Puts a row on trial with an allocator that is cheaper for certain, if there is one.
    pub(super) fn try_better(&mut self) -> Option<Choice> {
        if self.trial.is_some() {
            return None;
        }
        let candidates = subjects().flat_map(|subject| {
            AllocatorId::ALL.into_iter().map(move |arm| Choice { subject, arm })
        });
        let is_better = |choice: &Choice| {
            let row = self.row(choice.subject);
            let costs = self.costs(choice.subject);
            row.explored[choice.arm as usize] >= EXPLORED
                && choice.arm != row.chosen
                && self.to_be_had(choice.subject) >= LITTLE_OF_A_ROW
                && row.rests_until[choice.arm as usize] <= self.windows
                && costs[choice.arm as usize].beats(&costs[row.chosen as usize], MARGIN)
        };
        let best = candidates.filter(is_better).min_by(|one, other| {
            let nanos = |choice: &Choice| {
                self.costs(choice.subject)[choice.arm as usize].nanos().unwrap_or(f32::MAX)
            };
            nanos(one).total_cmp(&nanos(other))
        })?;
        let row = *self.row(best.subject);
        let before = self.costs(best.subject)[row.chosen as usize];
        self.trial = Some(Trial {
            subject: best.subject,
            from: row.chosen,
            windows: 0,
            before,
            overhead_before: self.overhead,
            overhead: 0.0,
            // Until the caller says.
            resident_pages: u64::MAX,
        });
        // What it did while it was explored says little of what it does all the time.
        self.costs[best.subject.operation as usize][best.subject.row][best.arm as usize] =
            Pair::NONE;
        let row = self.row_mut(best.subject);
        row.chosen = best.arm;
        row.changes = row.changes.saturating_add(1);
        Some(best)
    }

    /// What to explore next: the row that takes most of the time, and its least explored allocator.
    pub(super) fn next_to_explore(&mut self) -> Option<Choice> {
        if !self.is_worth_it() || self.spent() > BUDGET {
            return None;
        }
        self.settle();
        let this = &*self;
        let is_due = |choice: &Choice| {
            let (row, arm) = (this.row(choice.subject), choice.arm as usize);
            choice.arm != row.chosen
                && this.may(choice.subject, choice.arm)
                && row.rests_until[arm] <= this.windows
                && row.explored[arm] < EXPLORED
        };
        // An allocator that was begun with is explored to the end.
        let due = |subject: Subject| {
            let choices = AllocatorId::ALL.into_iter().map(|arm| Choice { subject, arm });
            choices
                .filter(is_due)
                .max_by_key(|choice| this.row(subject).explored[choice.arm as usize])
        };
        subjects()
            .filter(|subject| this.to_be_had(*subject) >= LITTLE_OF_A_ROW)
            .filter_map(due)
            .max_by(|a, b| this.row(a.subject).share.total_cmp(&this.row(b.subject).share))
    }

    /// Allocators that were explored and are not better rest; those of rows whose costs have changed do not
    /// any longer.
    fn settle(&mut self) {
        for subject in subjects() {
            let (row, costs) = (*self.row(subject), *self.costs(subject));
            if self.to_be_had(subject) < LITTLE_OF_A_ROW {
                continue;
            }
            let now = costs[row.chosen as usize].nanos().unwrap_or(0.0);
            let has_changed = row.settled_ns > 0.0
                && (now > row.settled_ns * CHANGED || now * CHANGED < row.settled_ns);
            for arm in AllocatorId::ALL {
                if has_changed {
                    self.row_mut(subject).rests_until[arm as usize] = 0;
                } else if arm != row.chosen && row.explored[arm as usize] >= EXPLORED {
                    self.reject(subject, arm);
                }
            }
            if has_changed || row.settled_ns == 0.0 {
                self.row_mut(subject).settled_ns = now;
            }
        }
    }
}
