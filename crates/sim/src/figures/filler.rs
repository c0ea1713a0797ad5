//! Fig. 11: demand on the filler fluctuates and drops once; how much memory does each way to
//! choose huge pages keep?

use super::Drawn;
use crate::driver::Driver;
use crate::error::Error;
use crate::plot::{Axis, Chart, Course, Panel, timeline};
use crate::policy::Policy;
use crate::run::{Config, Outcome, run};
use crate::sizes::Sizes;
use crate::target::{Shape, Target};
use spandrel_pageheap::Settings;
use spandrel_pages::{HEAP_PAGE_BYTES, HugeLength, MIB};

/// The same story with spans of different sizes: which policy is best depends on them.
const MIXES: [(&str, Scenario); 2] = [
    ("1 to 32 pages, equally many", Scenario::FIGURE),
    ("mostly 1 and 2 pages, to 32", Scenario::SHORT),
];
/// Where demand drops and where it has dropped, as parts of the time.
const DROP: f64 = 0.35;
const AFTER: f64 = 0.37;
const END: f64 = 0.9;
/// One run may be luck.
const SEEDS: u32 = 5;

/// What is simulated.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Scenario {
    sizes: &'static str,
    heap_mib: u32,
    operations: u64,
    seed: u64,
    shape: Shape,
}

impl Scenario {
    /// About forty lifetimes of 20 s: long enough to see how well a policy does, not so long that
    /// any would recover.
    const FIGURE: Self = Self {
        sizes: include_str!("../../sizes/figure-11.csv"),
        heap_mib: 1024,
        operations: 400_000,
        seed: 11,
        shape: Shape::Drop { to: 1.0 / 3.0, fluctuation: 0.05 },
    };
    /// As long. Where spans are short a huge page holds more of them, and takes longer to drain.
    const SHORT: Self = Self {
        sizes: include_str!("../../sizes/figure-11-short.csv"),
        heap_mib: 512,
        operations: 1_000_000,
        ..Self::FIGURE
    };
}

/// All policies, on the paper's filler: huge pages leave when they are empty, dense spans lie with
/// the others, nothing is given back from huge pages that are in use.
fn simulate(
    scenario: &Scenario,
    policies: &[Policy],
    progress: &mut dyn FnMut(f64),
) -> Result<(Target, Vec<Outcome>), Error> {
    let sizes = Sizes::parse(scenario.sizes)?;
    let pages = f64::from(scenario.heap_mib) * (MIB / HEAP_PAGE_BYTES) as f64;
    let target = Target::of(scenario.shape, &sizes, pages, scenario.operations, scenario.seed)?;
    let mut outcomes = Vec::new();
    for (at, policy) in policies.iter().enumerate() {
        let mut config = Config::new(*policy, &sizes, &target);
        config.settings = Settings {
            sparse_objects: u32::MAX,
            cache_least: HugeLength::ZERO,
            ..Settings::DEFAULT
        };
        let mut driver = Driver::new(sizes.clone(), target.clone(), scenario.seed, None)?;
        let mut tell = |done: u64| {
            let part = done as f64 / scenario.operations as f64;
            progress((at as f64 + part.min(1.0)) / policies.len() as f64);
        };
        outcomes.push(run(&config, &mut driver, &mut tell)?);
    }
    Ok((target, outcomes))
}

/// Resident for each live page in a part of the time.
fn ratio(outcome: &Outcome, target: &Target, from: f64, to: f64) -> f64 {
    let end = target.end_s();
    let part = outcome.samples.iter().filter(|s| (from * end..to * end).contains(&s.seconds));
    let (resident, live) = part.fold((0.0, 0.0), |(resident, live), sample| {
        (resident + f64::from(sample.resident), live + f64::from(sample.live))
    });
    resident / f64::max(live, 1.0)
}

/// What the seeds come to for one policy: resident for each live page in parts of the time.
#[derive(Default)]
struct Row {
    whole: Vec<f64>,
    before: f64,
    after: f64,
    last: f64,
}

impl Row {
    fn add(&mut self, outcome: &Outcome, target: &Target) {
        let settled = target.settled_s() / target.end_s();
        let share = 1.0 / f64::from(SEEDS);
        self.whole.push(ratio(outcome, target, settled, 1.0));
        self.before += share * ratio(outcome, target, settled, DROP);
        self.after += share * ratio(outcome, target, AFTER, 1.0);
        self.last += share * ratio(outcome, target, END, 1.0);
    }

    fn mean(&self) -> f64 {
        self.whole.iter().sum::<f64>() / self.whole.len().max(1) as f64
    }

    fn cells(&self, policy: Policy) -> Vec<String> {
        let low = self.whole.iter().copied().fold(f64::INFINITY, f64::min);
        let high = self.whole.iter().copied().fold(0.0, f64::max);
        let mut cells = vec![policy.name().to_string(), format!("{:.3}", self.mean())];
        cells.push(format!("{low:.3} – {high:.3}"));
        cells.extend([self.before, self.after, self.last].map(|r| format!("{r:.3}")));
        cells
    }
}

/// All seeds of a scenario: what they come to, and the course of the first.
fn seeds(
    scenario: &Scenario,
    progress: &mut dyn FnMut(f64),
) -> Result<([Row; Policy::ALL.len()], Target, Vec<Outcome>), Error> {
    let mut rows: [Row; Policy::ALL.len()] = Default::default();
    let mut first = None;
    for n in 0..SEEDS {
        let scenario = Scenario { seed: scenario.seed + u64::from(n), ..*scenario };
        let mut part = |done: f64| progress((f64::from(n) + done) / f64::from(SEEDS));
        let (target, outcomes) = simulate(&scenario, &Policy::ALL, &mut part)?;
        for (row, outcome) in rows.iter_mut().zip(&outcomes) {
            row.add(outcome, &target);
        }
        first.get_or_insert((target, outcomes));
    }
    let (target, outcomes) = first.ok_or_else(|| Error::new("a figure of no seeds"))?;
    Ok((rows, target, outcomes))
}

/// How the paper's policy does beside the others.
fn finding(mix: &str, rows: &[Row]) -> String {
    let ours = rows.first().map_or(f64::NAN, Row::mean);
    let beside = rows.iter().zip(Policy::ALL).skip(1).map(|(row, policy)| {
        let by = (row.mean() - ours) * 100.0;
        let word = if by > 0.0 { "less" } else { "more" };
        format!("{:.1} % {word} than {}", by.abs(), policy.name())
    });
    let beside: Vec<String> = beside.collect();
    format!("{mix}: {} keeps, of live memory, {}", Policy::ALL[0].name(), beside.join(", "))
}

pub(super) fn draw(progress: &mut dyn FnMut(f64)) -> Result<Drawn, Error> {
    let title = "Fig. 11: the filler after a drop of demand";
    let about = "demand drops to a third; spans live 20 s, whatever their size".to_string();
    let (mut cells, mut findings, mut panels) = (Vec::new(), Vec::new(), Vec::new());
    for (at, (mix, scenario)) in MIXES.iter().enumerate() {
        let mut part = |done: f64| progress((at as f64 + done) / MIXES.len() as f64);
        let (rows, target, outcomes) = seeds(scenario, &mut part)?;
        let operations = scenario.operations as f64 / 1e6;
        let size = format!("{} MiB, {operations} M operations", scenario.heap_mib);
        cells.push(vec![format!("{mix}: {size}, {:.0} s", target.end_s())]);
        cells.extend(rows.iter().zip(Policy::ALL).map(|(row, policy)| row.cells(policy)));
        findings.push(finding(mix, &rows));
        let course = Course { title: mix, outcomes: &outcomes, settled_s: target.settled_s() };
        let chart = timeline(title, &about, &[course]);
        panels.extend(chart.panels.into_iter().take(2).map(|panel| Panel {
            y: panel.y.replace("backed, not live (% of live)", "not live (% of live)"),
            ..panel
        }));
    }
    let header = ["resident/live", "mean", "five seeds", "before", "after", "last tenth"];
    Ok(Drawn {
        name: "figure-11",
        title: title.into(),
        header: header.map(String::from).into(),
        rows: cells,
        findings,
        chart: Chart {
            title: title.into(),
            subtitle: about.clone(),
            x: "simulated time (s)".into(),
            axis: Axis::Number,
            panels,
        },
        about,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_the_paper_comes_out() {
        let scenario = Scenario { heap_mib: 256, operations: 60_000, ..Scenario::FIGURE };
        let (target, outcomes) = simulate(&scenario, &Policy::ALL, &mut |_| {}).unwrap();
        let ratios: Vec<f64> = outcomes.iter().map(|o| ratio(o, &target, 0.02, 1.0)).collect();
        let [lfr, _, fullness, best_fit] = ratios[..] else { panic!("four policies") };
        assert!(lfr < fullness && fullness < best_fit, "{ratios:?}");
    }
}
