//! The tuner: which allocator serves a range of sizes best, learnt while the program runs (Brug, section
//! III.A, `BrugAutoOpt`).
//!
//! It is told of *windows*, short times in which each request was timed, and says when the next one is to
//! be. In a window it may have another allocator than the chosen one serve the requests of one row
//! (*exploring*). One that is cheaper for certain gets the row on *trial*; the row stays with it if
//! its requests are cheaper then too, and if all that memory costs the program, page faults and
//! memory held included, has not become more.
//!
//! What differs from the paper: an allocator that was not tried is not the best one at zero nanoseconds,
//! but is tried; one measurement does not count as much as all before it; a choice changes only by a
//! margin, and comes back the later the more often it was wrong; and all of it ends where little is to be had.

mod cost;
mod decide;
mod history;
mod window;

use spandrel_pages::AllocatorId;

pub use cost::{Estimate, Pair, Tally};
pub use history::{CHANGES_KEPT, Change};
pub use window::{ARMS, KINDS, Kind, NO_TALLIES, ROWS, Tallies, Window, row_of, sizes_of};

use crate::{Available, Decision, Mode, Operation, exact};
use history::History;

const OPERATIONS: usize = 2;

/// The shortest time between two windows, in milliseconds...
const PAUSE_MS: u32 = 100;
/// ... and the longest, where there is nothing to learn.
const LONGEST_PAUSE_MS: u32 = 16_000;
/// Memory that costs less than this part of the processor's time is not worth a change.
const LITTLE: f32 = 0.03;
/// A row where no more than this part of the processor's time could be had is left as it is.
const LITTLE_OF_A_ROW: f32 = 0.02;
/// No allocator makes an object and takes it back in less nanoseconds, and none grows it in less.
const FLOOR_NS: f32 = 30.0;
/// An allocator gets a row on trial if it takes so much less of what the row's requests take...
const MARGIN: f32 = 0.15;
/// ... and keeps it if it still takes so much less.
const KEPT_MARGIN: f32 = 0.075;
/// Windows in which an allocator is explored; what it does in the first, with nothing at hand, is not counted.
const EXPLORED: u8 = 4;
/// Windows of a trial; the first is not counted.
const TRIED: u8 = 6;
/// All that memory costs may be so much more in a trial, as chance has it.
const WORSE: f32 = 1.02;
/// Windows after which an allocator that was found wanting is explored again; twice as many each time.
const REST: u32 = 64;
/// Doublings of [`REST`] at most.
const MOST_MISSES: u8 = 8;
/// A page that is held beyond what was held before a trial costs a fault in each of these periods, in nanoseconds.
const HELD_NS: f32 = 1e9;
/// Rows whose objects may be page-mapped: those of a page or more.
const MAPPED_FROM_ROW: usize = 12;
/// A row whose requests have become so much dearer than they were when it was decided is looked at anew.
const CHANGED: f32 = 1.5;
/// Of the processor's time exploring and timing may take so much.
const BUDGET: f32 = 0.005;

/// What a row is decided for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Subject {
    /// New objects, or growing ones.
    pub operation: Operation,
    /// The power of two that their sizes have reached: see [`row_of`].
    pub row: usize,
}

/// An allocator for a subject.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    /// For what.
    pub subject: Subject,
    /// The allocator that serves it.
    pub arm: AllocatorId,
}

/// What is to be done after a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Next {
    /// A row has another allocator from now on.
    pub change: Option<Choice>,
    /// Milliseconds to the next window.
    pub pause_ms: u32,
}

#[derive(Clone, Copy)]
struct Row {
    usual: AllocatorId,
    chosen: AllocatorId,
    /// Part of the processor's time, lately.
    share: f32,
    /// What a request took when the row was decided last; 0: it was not.
    settled_ns: f32,
    /// Windows that an allocator was explored in.
    explored: [u8; ARMS],
    /// How often it was found wanting, and until which window it rests for that.
    misses: [u8; ARMS],
    rests_until: [u32; ARMS],
    /// How often the choice has changed.
    changes: u16,
}

#[derive(Clone, Copy)]
struct Trial {
    subject: Subject,
    from: AllocatorId,
    windows: u8,
    /// What the requests took with the former allocator.
    before: Pair,
    /// What memory cost for each unit of other work, before, and since.
    overhead_before: f32,
    overhead: f32,
    /// What was resident when it began.
    resident_pages: u64,
}

/// What is known of a row, for people.
#[derive(Clone, Copy, Debug)]
pub struct RowView {
    /// Which.
    pub subject: Subject,
    /// The allocator that serves it where nothing was learnt.
    pub usual: AllocatorId,
    /// The allocator that serves it now.
    pub chosen: AllocatorId,
    /// Part of the processor's time that its requests took lately.
    pub share: f32,
    /// Nanoseconds of an object with each allocator: made and given back, or grown; `None`: not known.
    pub nanos: [Option<f32>; ARMS],
    /// How often the choice has changed.
    pub changes: u16,
    /// Whether the choice is on trial.
    pub on_trial: bool,
}

/// See the head of this file. All of it is numbers: no clock, no lock, no memory.
pub struct Tuner {
    available: Available,
    rows: [[Row; ROWS]; OPERATIONS],
    costs: [[[Pair; ARMS]; ROWS]; OPERATIONS],
    windows: u32,
    /// What was explored in the window that is open or comes next.
    exploring: Option<Choice>,
    trial: Option<Trial>,
    /// What memory cost for each unit of other work, lately.
    overhead: f32,
    pause_ms: u32,
    /// Nanoseconds that exploring has cost, and those of the processor since then.
    spent_ns: f32,
    busy_ns: f32,
    history: History,
}

impl Row {
    const BLANK: Row = Row {
        usual: AllocatorId::Sys,
        chosen: AllocatorId::Sys,
        share: 0.0,
        settled_ns: 0.0,
        explored: [0; ARMS],
        misses: [0; ARMS],
        rests_until: [0; ARMS],
        changes: 0,
    };
}

impl Tuner {
    /// One that knows nothing, and must [`Tuner::begin`]. It is too large for a small stack.
    pub const fn blank() -> Self {
        Tuner {
            available: Available::BASE,
            rows: [[Row::BLANK; ROWS]; OPERATIONS],
            costs: [[[Pair::NONE; ARMS]; ROWS]; OPERATIONS],
            windows: 0,
            exploring: None,
            trial: None,
            overhead: 0.0,
            pause_ms: PAUSE_MS,
            spent_ns: 0.0,
            busy_ns: 0.0,
            history: History::NONE,
        }
    }

    /// Begins anew. The usual choices are those of mode `auto`; only allocators that are available are
    /// tried. The first choices are those of `prior`, which others have learnt elsewhere; else the usual ones.
    pub fn begin(&mut self, available: Available, prior: Option<&Mode>) {
        self.available = available;
        for subject in subjects() {
            // The mode decides for whole rows, but for the largest.
            let size = sizes_of(subject.row).1.min(1 << (ROWS - 1));
            let usual = exact(&Mode::Auto, available, subject.operation, size).allocator();
            *self.row_mut(subject) = Row { usual, chosen: usual, ..Row::BLANK };
            let prior = prior.map(|mode| exact(mode, available, subject.operation, size));
            if let Some(arm) = prior.map(Decision::allocator).filter(|arm| self.may(subject, *arm))
            {
                self.row_mut(subject).chosen = arm;
            }
            self.costs[subject.operation as usize][subject.row] = [Pair::NONE; ARMS];
        }
        (self.windows, self.exploring, self.trial) = (0, None, None);
        (self.overhead, self.pause_ms, self.spent_ns, self.busy_ns) = (0.0, PAUSE_MS, 0.0, 0.0);
        self.history = History::NONE;
    }

    /// An allocator cannot be had: it is not tried any more, and the window that was to explore it
    /// explores nothing.
    pub fn forget(&mut self, arm: AllocatorId) {
        self.available = self.available.without(arm);
        self.exploring = None;
    }

    /// What the next window is to explore: requests of that row and operation go to that allocator in
    /// it. `None`: all are served as chosen.
    pub fn exploring(&self) -> Option<Choice> {
        self.exploring
    }

    /// The allocator of a subject.
    pub fn chosen(&self, subject: Subject) -> AllocatorId {
        self.row(subject).chosen
    }

    /// The allocator that serves a subject where nothing was learnt.
    pub fn usual(&self, subject: Subject) -> AllocatorId {
        self.row(subject).usual
    }

    /// Whether the window that is open or comes next should say what is resident.
    pub fn wants_resident(&self) -> bool {
        self.trial.is_some()
    }

    /// What is resident, in pages of 4 KiB, when a change ([`Next::change`]) comes into force.
    pub fn note_resident(&mut self, pages: u64) {
        if let Some(trial) = &mut self.trial {
            trial.resident_pages = pages;
        }
    }

    /// Windows so far.
    pub fn windows(&self) -> u32 {
        self.windows
    }

    /// Part of the processor's time that exploring and timing have taken, as far as is known.
    pub fn spent(&self) -> f32 {
        if self.busy_ns > 0.0 { self.spent_ns / self.busy_ns } else { 0.0 }
    }

    /// What is known of the rows that had requests.
    pub fn rows(&self) -> impl Iterator<Item = RowView> + '_ {
        subjects().filter_map(|subject| {
            let (row, costs) = (self.row(subject), self.costs(subject));
            let nanos = costs.map(|pair| pair.nanos());
            (nanos.iter().any(Option::is_some) || row.changes > 0).then_some(RowView {
                subject,
                usual: row.usual,
                chosen: row.chosen,
                share: row.share,
                nanos,
                changes: row.changes,
                on_trial: self.trial.is_some_and(|trial| trial.subject == subject),
            })
        })
    }

    /// When rows got another allocator: the last [`CHANGES_KEPT`] times, oldest first.
    pub fn changes(&self) -> impl Iterator<Item = Change> + '_ {
        self.history.iter()
    }

    /// Learns from a window, and says what comes next.
    pub fn learn(&mut self, window: &Window<'_>) -> Next {
        self.windows = self.windows.saturating_add(1);
        let in_calls = self.learn_costs(window);
        self.learn_overhead(window, in_calls);
        let change = self.judge().or_else(|| self.try_better());
        if let Some(Choice { subject, arm }) = change {
            let (after_ms, trial) = ((self.busy_ns / 1e6) as u32, self.trial.is_some());
            self.history.note(Change { after_ms, subject, arm, trial });
        }
        self.exploring = if self.trial.is_some() { None } else { self.next_to_explore() };
        self.pause_ms = self.pause();
        Next { change, pause_ms: self.pause_ms }
    }

    fn row(&self, subject: Subject) -> &Row {
        &self.rows[subject.operation as usize][subject.row % ROWS]
    }

    fn row_mut(&mut self, subject: Subject) -> &mut Row {
        &mut self.rows[subject.operation as usize][subject.row % ROWS]
    }

    fn costs(&self, subject: Subject) -> &[Pair; ARMS] {
        &self.costs[subject.operation as usize][subject.row % ROWS]
    }

    /// Whether an allocator may be tried for a subject.
    fn may(&self, subject: Subject, arm: AllocatorId) -> bool {
        let row = self.row(subject);
        match (subject.operation, arm) {
            (_, arm) if arm == row.usual => true,
            (_, AllocatorId::Mmap) => subject.row >= MAPPED_FROM_ROW,
            // The maker of a row's objects grows them, or their pages do: a third one would copy them for nothing.
            (Operation::Grow, _) => false,
            (Operation::Allocate, arm) => self.available.has(arm),
        }
    }

    /// The requests of the window; how many nanoseconds they took together.
    fn learn_costs(&mut self, window: &Window<'_>) -> f32 {
        let busy = window.busy_ns.max(1) as f32;
        let explored = self.exploring.take();
        let mut in_calls = 0.0;
        for subject in subjects() {
            let (first, second) = match subject.operation {
                Operation::Allocate => (Kind::Made, Some(Kind::Freed)),
                Operation::Grow => (Kind::Grown, None),
            };
            let tallies = |kind: Kind| &window.tallies[kind as usize][subject.row];
            let mut nanos = 0;
            for arm in AllocatorId::ALL {
                let id = arm as usize;
                let made = tallies(first)[id];
                let freed = second.map_or(Tally::NONE, |kind| tallies(kind)[id]);
                nanos += made.nanos + freed.nanos;
                let is_explored = explored == Some(Choice { subject, arm });
                if is_explored && self.note_explored(subject, arm, made) {
                    continue;
                }
                // In the first window caches are cold, those of what is measured with among them.
                if self.windows > 1 {
                    let pair = &mut self.costs[subject.operation as usize][subject.row][id];
                    pair.made.learn(made);
                    pair.freed.learn(freed);
                }
            }
            in_calls += nanos as f32;
            let row = self.row_mut(subject);
            row.share = row.share * 0.75 + 0.25 * nanos as f32 / busy;
        }
        in_calls
    }

    /// Counts a window in which an allocator was explored, and what that cost; true: what was seen in it
    /// does not count, since the allocator had nothing at hand yet.
    fn note_explored(&mut self, subject: Subject, arm: AllocatorId, seen: Tally) -> bool {
        if seen.count == 0 {
            // No request came: there is no row any more.
            self.row_mut(subject).share = 0.0;
            return false;
        }
        let usual = self.costs(subject)[self.row(subject).chosen as usize].made.nanos();
        let due = usual.unwrap_or(0.0) * seen.count as f32;
        self.spent_ns += (seen.nanos as f32 - due).max(0.0);
        let explored = &mut self.row_mut(subject).explored[arm as usize];
        *explored = explored.saturating_add(1);
        let is_first = *explored == 1;
        if is_first {
            // What was known is old.
            self.costs[subject.operation as usize][subject.row][arm as usize] = Pair::NONE;
        }
        is_first
    }

    /// What memory costs the program for each unit of its own work.
    fn learn_overhead(&mut self, window: &Window<'_>, in_calls: f32) {
        // Timing takes about as long as a request does, and is beside the calls that it times.
        let requests: u32 =
            window.tallies.iter().flatten().flatten().map(|tally| tally.count).sum();
        self.spent_ns += requests as f32 * 60.0;
        self.busy_ns += window.since_ns as f32;
        let part = |of: f32, whole: u64| (of / whole.max(1) as f32).min(0.95);
        let faults = part((window.faults * window.fault_ns) as f32, window.since_ns);
        let before = self.trial.map_or(window.resident_pages, |trial| trial.resident_pages);
        let held = window.resident_pages.saturating_sub(before) as f32;
        let held = held * window.fault_ns as f32 / HELD_NS;
        let memory = (part(in_calls, window.busy_ns) + faults + held).min(0.95);
        let overhead = memory / (1.0 - memory);
        match &mut self.trial {
            Some(trial) => {
                trial.windows += 1;
                // The first one pays for what the allocator had not at hand yet.
                if trial.windows > 1 {
                    let counted = f32::from(trial.windows - 1);
                    trial.overhead += (overhead - trial.overhead) / counted;
                }
            }
            None if self.overhead == 0.0 => self.overhead = overhead,
            None => self.overhead += 0.25 * (overhead - self.overhead),
        }
    }

    /// The part of the processor's time that a row would take less if its requests were served as fast as
    /// can be; 0 where too few were seen to compare with.
    fn to_be_had(&self, subject: Subject) -> f32 {
        let row = self.row(subject);
        let nanos = self.costs(subject)[row.chosen as usize].nanos();
        nanos.map_or(0.0, |nanos| row.share * (1.0 - FLOOR_NS / nanos.max(FLOOR_NS)))
    }

    /// Whether memory costs enough for a better choice to be felt.
    fn is_worth_it(&self) -> bool {
        self.overhead >= LITTLE
    }

    fn pause(&self) -> u32 {
        if self.trial.is_some() || self.exploring.is_some() || self.windows < EXPLORED.into() {
            return PAUSE_MS;
        }
        // Nothing to learn just now: ever more seldom, but not so seldom that a new phase is missed.
        let longest = if self.is_worth_it() { LONGEST_PAUSE_MS / 16 } else { LONGEST_PAUSE_MS };
        (self.pause_ms * 2).min(longest)
    }
}

/// All that is decided.
fn subjects() -> impl Iterator<Item = Subject> {
    [Operation::Allocate, Operation::Grow]
        .into_iter()
        .flat_map(|operation| (0..ROWS).map(move |row| Subject { operation, row }))
}
