//! What happens depends on the arguments and the seed alone.

use spandrel_sim::{Config, Driver, Event, Operations, Outcome, Policy, Shape, Sizes, Target, run};

const PAGES: f64 = 20_000.0;
const OPERATIONS: u64 = 60_000;

fn target(sizes: &Sizes, seed: u64) -> Target {
    Target::of(Shape::DROP, sizes, PAGES, OPERATIONS, seed).unwrap()
}

fn events(seed: u64, operations: Option<u64>) -> Vec<Event> {
    let sizes = Sizes::built_in();
    let target = target(&sizes, 1);
    let mut driver = Driver::new(sizes, target, seed, operations).unwrap();
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    loop {
        driver.fill(&mut batch).unwrap();
        if batch.is_empty() {
            return all;
        }
        all.append(&mut batch);
    }
}

fn outcome(policy: Policy) -> Outcome {
    let sizes = Sizes::built_in();
    let target = target(&sizes, 1);
    let config = Config::new(policy, &sizes, &target);
    let mut driver = Driver::new(sizes, target, 7, None).unwrap();
    let mut outcome = run(&config, &mut driver, &mut |_| {}).unwrap();
    outcome.summary.seconds = 0.0;
    outcome
}

#[test]
fn the_same_seed_gives_the_same_operations() {
    let first = events(7, None);
    assert_eq!(first, events(7, None));
    assert_ne!(first, events(8, None));
    assert!((first.len() as f64 / OPERATIONS as f64 - 1.0).abs() < 0.1, "{}", first.len());
    assert!(first.windows(2).all(|pair| pair[0].at_ms <= pair[1].at_ms));
}

#[test]
fn a_limit_cuts_the_same_operations_short() {
    let (all, few) = (events(7, None), events(7, Some(1000)));
    assert_eq!(few.len(), 1001, "and one for the end");
    assert_eq!(few[..1000], all[..1000]);
}

#[test]
fn the_same_operations_give_the_same_heap() {
    let first = outcome(Policy::RangeThenAllocations);
    assert_eq!(first, outcome(Policy::RangeThenAllocations));
    let other = outcome(Policy::AllocationsThenRange);
    let live = |outcome: &Outcome| outcome.samples.iter().map(|s| s.live).collect::<Vec<_>>();
    assert_eq!(live(&first), live(&other), "policies differ in what is resident alone");
}
