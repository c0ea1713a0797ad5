//! The tuner on programs made of numbers: stationary, drifting, phased, adversarial.

use spandrel_pages::AllocatorId;
use spandrel_policy::tuner::{ARMS, Kind, NO_TALLIES, Subject, Tally, Tuner, Window, row_of};
use spandrel_policy::{Available, Mode, Operation, parse_mode};

const FAULT_NS: u64 = 1700;
/// A window, in milliseconds of the program's own work.
const WINDOW_MS: f64 = 1.0;

/// What a request takes, in nanoseconds: by the time in milliseconds, which habit it is of, who serves it,
/// and who serves that habit all the time.
type Cost<'a> = &'a dyn Fn(f64, usize, AllocatorId, AllocatorId) -> f64;

struct Program<'a> {
    /// Requests that are made again and again: of what, and how often in a millisecond of other work.
    habits: &'a [(Subject, f64)],
    cost: Cost<'a>,
    /// Page faults of each request.
    faults: fn(AllocatorId) -> f64,
    /// Pages that are held while an allocator serves the first habit.
    resident: fn(AllocatorId) -> u64,
}

impl<'a> Program<'a> {
    fn new(habits: &'a [(Subject, f64)], cost: Cost<'a>) -> Self {
        Program { habits, cost, faults: |_| 0.0, resident: |_| 1000 }
    }

    /// Nanoseconds that memory takes in so many milliseconds of other work.
    fn memory_ns(&self, now: f64, ms: f64, served: impl Fn(usize) -> AllocatorId) -> f64 {
        let of = |(n, (_, per_ms)): (usize, &(Subject, f64))| {
            let arm = served(n);
            let faults = (self.faults)(arm) * FAULT_NS as f64;
            ms * per_ms * ((self.cost)(now, n, arm, arm) + faults)
        };
        self.habits.iter().enumerate().map(of).sum()
    }
}

struct Outcome {
    tuner: Tuner,
    /// Nanoseconds of other work, of memory, and of memory had one allocator served all.
    work: f64,
    memory: f64,
    fixed: [f64; ARMS],
    changes: u32,
}

impl Outcome {
    /// The whole time to that with a fixed allocator.
    fn to(&self, memory: f64) -> f64 {
        (self.work + self.memory) / (self.work + memory)
    }

    /// The whole time to that with the best fixed allocator.
    fn to_best(&self) -> f64 {
        self.to(self.fixed.iter().copied().fold(f64::MAX, f64::min))
    }
}

/// xorshift64*: the same numbers each time, from 0 to 1.
fn random(state: &mut u64) -> f64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64
}

/// Runs a program for so many milliseconds of other work.
fn run(program: &Program<'_>, work_ms: f64, seed: u64) -> Outcome {
    run_from(None, program, work_ms, seed)
}

/// The same, beginning with what was learnt elsewhere.
fn run_from(prior: Option<&Mode>, program: &Program<'_>, work_ms: f64, seed: u64) -> Outcome {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let everything = AllocatorId::ALL.into_iter().fold(Available::BASE, Available::with);
    let mut outcome =
        Outcome { tuner: Tuner::blank(), work: 0.0, memory: 0.0, fixed: [0.0; ARMS], changes: 0 };
    outcome.tuner.begin(everything, prior);
    let mut now = 0.0;
    let mut paused = 100.0;
    let mut is_cold = [true; ARMS];
    while now < work_ms {
        let chosen: Vec<_> =
            program.habits.iter().map(|(subject, _)| outcome.tuner.chosen(*subject)).collect();
        let memory_paused = program.memory_ns(now, paused, |n| chosen[n]);
        let mut tallies = NO_TALLIES;
        let mut in_window = 0.0;
        for (n, (subject, per_ms)) in program.habits.iter().enumerate() {
            let explored = outcome.tuner.exploring().filter(|choice| choice.subject == *subject);
            let arm = explored.map_or(chosen[n], |choice| choice.arm);
            let usual = (program.cost)(now, n, arm, chosen[n]);
            let cold = if is_cold[arm as usize] { 3.0 } else { 1.0 };
            for _ in 0..(per_ms * WINDOW_MS) as usize {
                // One in two hundred takes thirty times as long: a refill, an interrupt.
                let tail = if random(&mut state) < 0.005 { 30.0 } else { 0.854 };
                let nanos = usual * (0.5 + random(&mut state)) * tail * cold;
                in_window += nanos;
                let kinds: &[Kind] = match subject.operation {
                    Operation::Allocate => &[Kind::Made, Kind::Freed],
                    Operation::Grow => &[Kind::Grown],
                };
                for kind in kinds {
                    let part = (nanos / kinds.len() as f64) as u64;
                    let tally = &mut tallies[*kind as usize][subject.row][arm as usize];
                    tally.count += 1;
                    tally.nanos += part;
                    tally.squares += part * part;
                }
            }
            is_cold[arm as usize] = false;
        }
        let faults: f64 = program
            .habits
            .iter()
            .zip(&chosen)
            .map(|((_, per_ms), arm)| per_ms * (program.faults)(*arm) * paused)
            .sum();
        let next = outcome.tuner.learn(&Window {
            busy_ns: (WINDOW_MS * 1e6 + in_window) as u64,
            since_ns: (paused * 1e6 + memory_paused + in_window) as u64,
            faults: faults as u64,
            fault_ns: FAULT_NS,
            resident_pages: (program.resident)(chosen[0]),
            tallies: &tallies,
        });
        outcome.memory += memory_paused + in_window;
        for arm in AllocatorId::ALL {
            outcome.fixed[arm as usize] += program.memory_ns(now, paused + WINDOW_MS, |_| arm);
        }
        outcome.work += (paused + WINDOW_MS) * 1e6;
        if next.change.is_some() {
            outcome.changes += 1;
            outcome.tuner.note_resident((program.resident)(chosen[0]));
        }
        now += paused + WINDOW_MS;
        paused = f64::from(next.pause_ms);
    }
    outcome
}

fn allocate(size: usize) -> Subject {
    Subject { operation: Operation::Allocate, row: row_of(size) }
}

#[test]
fn the_best_for_a_program_that_stays_as_it_is_is_found_and_kept() {
    let cost = |_: f64, _: usize, arm: AllocatorId, _: AllocatorId| match arm {
        AllocatorId::Mimalloc => 40.0,
        AllocatorId::Native => 80.0,
        _ => 120.0,
    };
    for seed in 1..20 {
        let habits = [(allocate(100), 4000.0)];
        let outcome = run(&Program::new(&habits, &cost), 120_000.0, seed);
        assert_eq!(outcome.tuner.chosen(allocate(100)), AllocatorId::Mimalloc, "seed {seed}");
        assert!(outcome.to_best() < 1.02, "seed {seed}: {} of the best", outcome.to_best());
        assert!(outcome.changes <= 3, "seed {seed}: {} changes", outcome.changes);
        assert!(outcome.tuner.spent() < 0.01, "seed {seed}: {}", outcome.tuner.spent());
    }
}

#[test]
fn noise_does_not_change_what_is_chosen() {
    let cost = |_: f64, _: usize, _: AllocatorId, _: AllocatorId| 80.0;
    let mut changes = 0;
    for seed in 1..40 {
        let habits = [(allocate(100), 3000.0), (allocate(5000), 300.0)];
        let outcome = run(&Program::new(&habits, &cost), 60_000.0, seed);
        assert!(outcome.to_best() < 1.01, "seed {seed}: {}", outcome.to_best());
        changes += outcome.changes;
    }
    assert!(changes <= 4, "{changes} changes in 39 minutes");
}

#[test]
fn who_is_served_as_fast_as_can_be_is_left_alone() {
    let cost = |_: f64, _: usize, _: AllocatorId, _: AllocatorId| 30.0;
    let outcome = run(&Program::new(&[(allocate(100), 20_000.0)], &cost), 60_000.0, 3);
    assert_eq!(outcome.changes, 0);
    assert!(outcome.to_best() < 1.0005, "{}", outcome.to_best());
}

#[test]
fn who_hardly_allocates_is_left_alone() {
    let cost = |_: f64, _: usize, arm: AllocatorId, _: AllocatorId| {
        if arm == AllocatorId::Sys { 10.0 } else { 100.0 }
    };
    let outcome = run(&Program::new(&[(allocate(100), 100.0)], &cost), 100_000.0, 7);
    assert_eq!(outcome.changes, 0);
    assert!(outcome.tuner.windows() < 20, "{} windows", outcome.tuner.windows());
    assert!(outcome.tuner.spent() < 0.0002, "{}", outcome.tuner.spent());
}

#[test]
fn phases_are_followed() {
    // Twenty seconds of this, twenty of that: nobody is good at both.
    let cost = |now: f64, _: usize, arm: AllocatorId, _: AllocatorId| {
        let is_first = ((now / 20_000.0) as u64).is_multiple_of(2);
        match (arm, is_first) {
            (AllocatorId::Native, true) | (AllocatorId::Jemalloc, false) => 60.0,
            (AllocatorId::Native, false) | (AllocatorId::Jemalloc, true) => 240.0,
            _ => 250.0,
        }
    };
    for seed in 1..10 {
        let habits = [(allocate(300), 3000.0)];
        let outcome = run(&Program::new(&habits, &cost), 400_000.0, seed);
        assert!(outcome.to_best() < 0.9, "seed {seed}: {} of the best", outcome.to_best());
    }
}

#[test]
fn drift_is_followed() {
    // One becomes dearer, the other cheaper, over two minutes.
    let cost = |now: f64, _: usize, arm: AllocatorId, _: AllocatorId| {
        let part = (now / 120_000.0).min(1.0);
        match arm {
            AllocatorId::Native => 50.0 + 200.0 * part,
            AllocatorId::Mimalloc => 250.0 - 200.0 * part,
            _ => 300.0,
        }
    };
    let outcome = run(&Program::new(&[(allocate(64), 3000.0)], &cost), 240_000.0, 3);
    assert_eq!(outcome.tuner.chosen(allocate(64)), AllocatorId::Mimalloc);
    assert!(outcome.to_best() < 1.0, "{}", outcome.to_best());
    assert!(outcome.changes <= 8, "{} changes", outcome.changes);
}

#[test]
fn who_is_cheap_only_while_it_serves_little_is_soon_left_alone() {
    // The adversary: the usual one takes 100, others 20 while they are tried and 200 when chosen.
    let cost = |_: f64, _: usize, arm: AllocatorId, chosen: AllocatorId| match arm {
        AllocatorId::Native => 100.0,
        arm if arm == chosen => 200.0,
        _ => 20.0,
    };
    let outcome = run(&Program::new(&[(allocate(64), 3000.0)], &cost), 600_000.0, 5);
    let ratio = outcome.to(outcome.fixed[AllocatorId::Native as usize]);
    assert!(ratio < 1.02, "{ratio} of never trying");
    assert!(outcome.changes > 4, "it was tried");
}

#[test]
fn faults_and_memory_held_count_as_calls_do() {
    let cost = |_: f64, _: usize, arm: AllocatorId, _: AllocatorId| {
        if arm == AllocatorId::Mmap { 200.0 } else { 600.0 }
    };
    let habits = [(allocate(20_000), 400.0)];
    // Cheaper calls, but a fault for each request, or fifteen gibibytes held.
    let faults = |arm| if arm == AllocatorId::Mmap { 1.0 } else { 0.0 };
    let resident = |arm| if arm == AllocatorId::Mmap { 4_000_000 } else { 1000 };
    for program in [
        Program { faults, ..Program::new(&habits, &cost) },
        Program { resident, ..Program::new(&habits, &cost) },
    ] {
        let outcome = run(&program, 60_000.0, 11);
        assert_eq!(outcome.tuner.chosen(habits[0].0), AllocatorId::Native);
        assert!(outcome.changes >= 2, "it was tried, and given up");
    }
}

#[test]
fn growing_objects_are_decided_by_themselves() {
    let subject = Subject { operation: Operation::Grow, row: row_of(32 * 1024) };
    let cost = |_: f64, n: usize, arm: AllocatorId, _: AllocatorId| match (n, arm) {
        (0, AllocatorId::Mmap) => 100.0,
        (0, _) => 2000.0,
        (_, AllocatorId::Mmap) => 900.0,
        _ => 60.0,
    };
    let habits = [(subject, 300.0), (allocate(32 * 1024), 300.0)];
    let outcome = run(&Program::new(&habits, &cost), 30_000.0, 13);
    assert_eq!(outcome.tuner.chosen(subject), AllocatorId::Mmap);
    assert_eq!(outcome.tuner.chosen(allocate(32 * 1024)), AllocatorId::Native);
    let rows: Vec<_> = outcome.tuner.rows().filter(|row| row.subject == subject).collect();
    assert_eq!((rows.len(), rows[0].chosen, rows[0].changes), (1, AllocatorId::Mmap, 1));
    assert!(rows[0].nanos[AllocatorId::Native as usize].is_some());
}

#[test]
fn what_others_have_learnt_is_a_beginning_and_no_order() {
    let subject = allocate(64);
    let habits = [(subject, 1000.0)];
    let prior = parse_mode("jemalloc").expect("a mode");
    let good = |_: f64, _: usize, arm: AllocatorId, _: AllocatorId| match arm {
        AllocatorId::Jemalloc => 60.0,
        _ => 140.0,
    };
    let outcome = run_from(Some(&prior), &Program::new(&habits, &good), 20_000.0, 5);
    assert_eq!(outcome.tuner.chosen(subject), AllocatorId::Jemalloc);
    assert!(outcome.changes == 0 && outcome.to_best() < 1.01, "{}", outcome.to_best());
    let bad = |_: f64, _: usize, arm: AllocatorId, _: AllocatorId| match arm {
        AllocatorId::Native => 60.0,
        _ => 140.0,
    };
    let outcome = run_from(Some(&prior), &Program::new(&habits, &bad), 20_000.0, 6);
    assert_eq!(outcome.tuner.chosen(subject), AllocatorId::Native);
    // A mapping for each small object is no choice, whoever says so.
    let prior = parse_mode("mmap").expect("a mode");
    let mut tuner = Tuner::blank();
    tuner.begin(Available::BASE, Some(&prior));
    assert_eq!(tuner.chosen(subject), AllocatorId::Native);
    assert_eq!(tuner.chosen(allocate(1 << 16)), AllocatorId::Mmap);
    assert_eq!(tuner.usual(allocate(1 << 16)), AllocatorId::Native);
}

#[test]
fn what_is_not_there_is_not_tried() {
    let mut tuner = Tuner::blank();
    tuner.begin(Available::BASE, None);
    let mut tallies = NO_TALLIES;
    tallies[0][6][AllocatorId::Native as usize] =
        Tally { count: 5000, nanos: 500_000, squares: 50_000_000 };
    let mut tried = Vec::new();
    for _ in 0..100 {
        let _ = tuner.learn(&Window {
            busy_ns: 1_000_000,
            since_ns: 100_000_000,
            faults: 0,
            fault_ns: FAULT_NS,
            resident_pages: 0,
            tallies: &tallies,
        });
        tried.extend(tuner.exploring().map(|choice| choice.arm));
    }
    assert!(!tried.is_empty() && tried.iter().all(|arm| *arm == AllocatorId::Sys), "{tried:?}");
}
