//! Every policy keeps the page heap's invariants, and resident memory is never less than live.

use spandrel_sim::{Config, Driver, Policy, Release, Shape, Sizes, Target, run};

fn holds(policy: Policy, shape: Shape, operations: u64, release: Release) {
    let sizes = Sizes::built_in();
    let target = Target::of(shape, &sizes, 12_000.0, operations, 5).unwrap();
    let config =
        Config { checked: true, samples: 100, release, ..Config::new(policy, &sizes, &target) };
    let mut driver = Driver::new(sizes, target, 5, None).unwrap();
    let outcome = run(&config, &mut driver, &mut |_| {}).unwrap();
    let summary = outcome.summary;
    assert_eq!(summary.refused, 0);
    assert!(outcome.samples.len() >= 99, "{}", outcome.samples.len());
    for sample in &outcome.samples {
        assert_eq!(sample.resident, sample.live + sample.cached + sample.free);
        assert!(sample.covered <= sample.live);
    }
    assert!(summary.resident >= summary.live && summary.resident_peak >= summary.live_peak);
    assert!(summary.coverage() <= 1.0 && summary.bookkeeping.per_span > 8.0);
}

#[test]
fn while_the_target_is_steady() {
    Policy::ALL.into_iter().for_each(|policy| holds(policy, Shape::Steady, 40_000, Release::Off));
}

#[test]
fn while_it_drops_and_memory_goes_back() {
    Policy::ALL
        .into_iter()
        .for_each(|policy| holds(policy, Shape::DROP, 40_000, Release::ADAPTIVE));
}

#[test]
fn while_it_swings() {
    Policy::FAST
        .into_iter()
        .for_each(|policy| holds(policy, Shape::SAW_TOOTH, 90_000, Release::ADAPTIVE));
}

#[test]
fn heaps_that_cannot_be_numbered_are_refused() {
    let sizes = Sizes::built_in();
    let target = Target::of(Shape::Steady, &sizes, 1000.0, 10_000, 5).unwrap();
    let mut config = Config::new(Policy::BestFit, &sizes, &target);
    config.heap_bytes = u64::MAX;
    let mut driver = Driver::new(sizes, target, 5, None).unwrap();
    assert!(run(&config, &mut driver, &mut |_| {}).unwrap_err().message.contains("too large"));
}
