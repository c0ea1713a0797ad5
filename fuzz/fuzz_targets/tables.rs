//! Tables of sizes and targets: no text is a panic, a refusal names a line that there is, and what is
//! accepted can be simulated.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spandrel_sim::{Driver, Error, Operations, Sizes, Target};

/// Batches of operations that are asked for.
const BATCHES: u32 = 3;

/// As long as the command would go on for minutes, nothing is simulated here: the target is looked at
/// a hundred times a second.
const LONG_S: f64 = 1000.0;
/// So many spans take memory that a fuzzer does not have.
const SPANS_MAX: f64 = 1e5;

fuzz_target!(|text: &str| {
    if let Some(sizes) = understood(text, Sizes::parse) {
        assert!((1..text.lines().count()).contains(&sizes.classes().len()));
        for quantity in [sizes.page_seconds(), sizes.lifetime_s(), sizes.mean_live_pages()] {
            assert!(quantity.is_finite() && quantity > 0.0, "{quantity}");
        }
        let usual = "seconds,bytes\n0,64MiB\n5,1MiB\n9,64MiB";
        simulate(sizes, Target::parse(usual).expect("it is right"));
    }
    if let Some(target) = understood(text, Target::parse) {
        assert!(target.points().windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(target.peak().is_finite() && target.peak() >= 1.0);
        assert!(target.settled_s() <= target.end_s() && target.end_s() > 0.0);
        simulate(Sizes::built_in(), target);
    }
});

fn understood<T>(text: &str, parse: fn(&str) -> Result<T, Error>) -> Option<T> {
    match parse(text) {
        Ok(value) => Some(value),
        Err(error) => {
            let lines = text.lines().count().max(1);
            assert!(
                error.line.is_some_and(|line| (1..=lines).contains(&line)),
                "{error} of {lines}"
            );
            assert!(!error.message.is_empty());
            None
        }
    }
}

fn simulate(sizes: Sizes, target: Target) {
    let spans = target.peak() / sizes.mean_live_pages();
    if spans > SPANS_MAX || target.end_s() > LONG_S {
        return;
    }
    let Ok(mut driver) = Driver::new(sizes, target, 1, Some(1000)) else { return };
    let (mut batch, mut before_ms) = (Vec::new(), 0);
    for _ in 0..BATCHES {
        driver.fill(&mut batch).expect("a driver does not fail");
        for event in &batch {
            assert!(event.at_ms >= before_ms);
            before_ms = event.at_ms;
        }
        if batch.is_empty() {
            return;
        }
    }
}
