//! Ways to give memory back: what each gives up for less memory, on the same operations.

use spandrel_pages::Length;
use spandrel_sim::{Config, Driver, Outcome, Policy, Release, Shape, Sizes, Target, run};

const RATE: Release = Release::Rate(Length(32_768));

fn outcome(release: Release, shape: Shape) -> Outcome {
    let sizes = Sizes::built_in();
    let target = Target::of(shape, &sizes, 32_768.0, 400_000, 3).unwrap();
    let policy = Policy::RangeThenAllocations;
    let config = Config { release, ..Config::new(policy, &sizes, &target) };
    let mut driver = Driver::new(sizes, target, 3, None).unwrap();
    run(&config, &mut driver, &mut |_| {}).unwrap()
}

#[test]
fn the_more_goes_back_the_less_is_resident_and_whole() {
    let all = [Release::Off, Release::ADAPTIVE, RATE, Release::All];
    for shape in [Shape::DROP, Shape::SAW_TOOTH] {
        let outcomes = all.map(|release| outcome(release, shape));
        for pair in outcomes.windows(2) {
            let (less, more) = (&pair[0].summary, &pair[1].summary);
            let both = format!("{} and {}", pair[0].release, pair[1].release);
            assert_eq!(less.live, more.live, "the operations are the same");
            assert!(less.resident > more.resident, "{both}");
            assert!(less.given_back < more.given_back, "{both}");
            assert!(less.fetched_again < more.fetched_again, "{both}");
        }
        let [off, adaptive, rate, all] = outcomes.map(|outcome| outcome.summary);
        assert_eq!((off.broken, off.coverage()), (0, 1.0));
        assert!(adaptive.coverage() > 0.9 && rate.coverage() < 0.9 && all.coverage() < 0.9);
        assert_eq!((all.cached, off.unbacked), (0.0, 0.0));
    }
}

#[test]
fn while_demand_is_steady_the_guard_keeps_what_will_be_wanted() {
    let [off, adaptive, rate] =
        [Release::Off, Release::ADAPTIVE, RATE].map(|release| outcome(release, Shape::Steady));
    assert!(adaptive.summary.coverage() > 0.98 && rate.summary.coverage() < 0.9);
    assert!(adaptive.calls.total() < 4 * off.calls.total());
    assert!(rate.calls.total() > 10 * adaptive.calls.total());
}

#[test]
fn what_is_gone_at_the_end_was_not_fetched_again() {
    for release in [Release::Off, Release::ADAPTIVE, RATE, Release::All] {
        let outcome = outcome(release, Shape::DROP);
        let summary = outcome.summary;
        let last = outcome.samples.last().unwrap();
        let gone = summary.given_back - summary.fetched_again;
        assert!(gone >= u64::from(last.unbacked), "{release}");
        // All that was ever taken at once is either there at the end or gone.
        let taken = u64::from(summary.hugepages) * 256;
        assert!(gone + u64::from(last.resident) <= taken + 256, "{release}");
        assert!(gone + u64::from(last.resident) >= taken * 9 / 10, "{release}: {gone} of {taken}");
    }
}
