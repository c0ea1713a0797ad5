//! Spans that live = rate × lifetime, for the whole heap and for each class, whatever the target
//! does.

use spandrel_sim::{Class, Driver, Operation, Operations, Sizes, Target};

fn class(pages: u32, weight: f64, lifetime_s: f64) -> Class {
    Class { pages, align: 1, objects: 1, weight, lifetime_s }
}

/// Pages that live, averaged over a time, of all classes and of the first.
fn mean_live(sizes: &Sizes, target: &Target, from_s: f64, to_s: f64) -> (f64, f64) {
    let first = sizes.classes()[0].pages;
    let mut driver = Driver::new(sizes.clone(), target.clone(), 3, None).unwrap();
    let mut pages_of = Vec::new();
    let (mut live, mut live_first, mut sum, mut sum_first) = (0.0, 0.0, 0.0, 0.0);
    let (mut batch, mut before_s) = (Vec::new(), 0.0);
    loop {
        driver.fill(&mut batch).unwrap();
        if batch.is_empty() {
            return (sum / (to_s - from_s), sum_first / (to_s - from_s));
        }
        for event in &batch {
            let now_s = (event.at_ms as f64 / 1000.0).clamp(from_s, to_s);
            sum += live * (now_s - before_s);
            sum_first += live_first * (now_s - before_s);
            before_s = now_s;
            let (pages, sign) = match event.operation {
                Operation::New { id, pages, .. } => {
                    let id = id as usize;
                    pages_of.resize(pages_of.len().max(id + 1), 0);
                    assert_eq!(std::mem::replace(&mut pages_of[id], pages), 0, "{id} lives");
                    (pages, 1.0)
                }
                Operation::Delete { id } => (std::mem::take(&mut pages_of[id as usize]), -1.0),
                _ => continue,
            };
            assert!(pages > 0, "a span that does not live is deleted");
            live += sign * f64::from(pages);
            live_first += if pages == first { sign * f64::from(pages) } else { 0.0 };
        }
    }
}

#[test]
fn the_heap_keeps_to_its_target() {
    let sizes =
        Sizes::new(vec![class(1, 5.0, 2.0), class(3, 1.0, 20.0), class(9, 0.5, 0.1)]).unwrap();
    let target = Target::new(vec![
        (0.0, 0.0),
        (1.0, 90_000.0),
        (21.0, 90_000.0),
        (22.0, 30_000.0),
        (52.0, 30_000.0),
    ])
    .unwrap();
    let share_of_first = 5.0 * 2.0 / sizes.page_seconds() / 6.5;
    // Also at once after it is filled and after a drop: no lifetimes have to pass.
    for (from, to, pages) in [(1.0, 21.0, 90_000.0), (22.0, 24.0, 30_000.0), (24.0, 52.0, 30_000.0)]
    {
        let (all, first) = mean_live(&sizes, &target, from, to);
        assert!((all / pages - 1.0).abs() < 0.04, "{all} from {from} to {to}");
        let share = first / all;
        assert!((share / share_of_first - 1.0).abs() < 0.06, "{share} of {share_of_first}");
    }
}

#[test]
fn the_built_in_distribution_keeps_to_its_target() {
    let sizes = Sizes::built_in();
    let target = Target::new(vec![(0.0, 0.0), (1.0, 1e5), (11.0, 1e5)]).unwrap();
    let (all, _) = mean_live(&sizes, &target, 1.0, 11.0);
    assert!((all / 1e5 - 1.0).abs() < 0.05, "{all}");
}

#[test]
fn requests_come_at_the_rate_that_follows() {
    let sizes = Sizes::new(vec![class(2, 1.0, 4.0)]).unwrap();
    let target = Target::new(vec![(0.0, 0.0), (0.1, 2000.0), (60.1, 2000.0)]).unwrap();
    let mut driver = Driver::new(sizes.clone(), target.clone(), 5, None).unwrap();
    let (mut batch, mut news) = (Vec::new(), 0);
    loop {
        driver.fill(&mut batch).unwrap();
        if batch.is_empty() {
            break;
        }
        news += batch.iter().filter(|e| matches!(e.operation, Operation::New { .. })).count();
    }
    // 1000 spans to begin with, and each is renewed every four seconds.
    let expected = 1000.0 + 60.0 * 1000.0 / 4.0;
    assert!((news as f64 / expected - 1.0).abs() < 0.03, "{news} of {expected}");
    assert!((target.operations(&sizes) / (1000.0 + 2.0 * 15_000.0) - 1.0).abs() < 0.01);
}
