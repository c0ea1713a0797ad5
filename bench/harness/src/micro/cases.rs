//! The plain suites: jobs of the worker of which one number counts.

use crate::asked::Asked;
use crate::report::case::{Case, Unit};
use crate::report::target::{self, Limit};
use crate::report::{Section, tables};
use crate::suite::{Bench, Prepared, Suite};
use spandrel_console::Failure;
use spandrel_console::progress::Progress;
use spandrel_measure::contender::{Contender, Role};
use spandrel_measure::rounds;

/// A job and how it is judged.
struct Plan {
    name: &'static str,
    words: Vec<&'static str>,
    /// The number that counts, in the worker's JSON.
    key: &'static str,
    unit: Unit,
    /// Whether the worker can do the work without an allocator.
    has_floor: bool,
    /// Whether the job is measured on cold memory too: one that takes much fresh memory.
    has_cold: bool,
    limits: Vec<Limit>,
}

/// Rounds on cold memory at most: each takes some seconds of rest.
const COLD_RUNS: usize = 3;
/// What is promised on cold memory, to the faster of the system's allocator and jemalloc.
const COLD_MOST: f64 = 1.1;
const NO_PEER_FASTER: Limit = Limit::BestPeer("A1", 1.0);

/// A plain suite.
#[derive(Clone, Copy)]
pub struct Cases {
    name: &'static str,
    about: &'static str,
    /// Its jobs; smaller ones where it is to be quick.
    plans: fn(bool) -> Vec<Plan>,
    /// Its tables.
    draw: fn(&[Case]) -> Vec<String>,
}

/// An object that doubles.
pub static REALLOC: Cases = Cases {
    name: "realloc",
    about: "an object doubles from 4 KiB to 128 KiB … 1 GiB",
    plans: realloc,
    draw: |cases| vec![tables::matrix(cases)],
};
/// An object that grows by pages.
pub static APPEND: Cases =
    Cases { name: "append", about: "an object grows by 4 KiB to 256 MiB", plans: append, draw };
/// A vector of Rust.
pub static VEC: Cases =
    Cases { name: "vec", about: "100 million pushes to a Rust Vec", plans: vec, draw };
/// A buffer of Arrow.
pub static ARROW: Cases = Cases {
    name: "arrow",
    about: "100 million pushes to an Apache Arrow buffer",
    plans: arrow,
    draw,
};
/// Pairs of `malloc` and `free`.
pub static PAIR: Cases = Cases {
    name: "pair",
    about: "malloc and free of 64 B and of large objects, in pairs and in batches",
    plans: pairs,
    draw,
};
/// Small objects that grow.
pub static SMALL: Cases = Cases {
    name: "small",
    about: "many small objects that grow to 4 KiB",
    plans: |_| vec![cpu("small", &["small-realloc"], &[])],
    draw,
};
/// Random requests.
pub static MIXED: Cases = Cases {
    name: "mixed",
    about: "random requests of 16 B to 1 MiB, two threads",
    plans: |quick| {
        let operations = if quick { "400000" } else { "1500000" };
        vec![cpu("mixed", &["mixed", "--operations", operations], &[])]
    },
    draw,
};

impl Suite for Cases {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn prepare(&self, _: &Asked) -> Result<Prepared, Failure> {
        let cases = *self;
        Ok(Box::new(move |bench, progress| cases.run(bench, progress)))
    }
}

impl Cases {
    fn run(&self, bench: &Bench, progress: &Progress) -> Result<Section, Failure> {
        let name = self.name;
        let mut section = Section::new(name, self.about);
        for plan in (self.plans)(bench.quick) {
            let label =
                if plan.name == name { name.into() } else { format!("{name} {}", plan.name) };
            let mut contenders = bench.contenders.clone();
            if plan.has_floor {
                contenders.insert(0, Contender::floor("the work alone"));
            }
            let series = rounds::in_turns(&contenders, bench.runs, progress, &label, |contender| {
                let mut words = plan.words.clone();
                words.extend((contender.role == Role::Floor).then_some("--floor"));
                rounds::worker(&bench.worker, contender, &words)
            });
            let mut case = Case::of(plan.name, plan.unit, plan.key, series);
            if plan.has_cold {
                let label = format!("{label}, cold");
                let runs = bench.runs.min(COLD_RUNS);
                let series = rounds::cold(&bench.contenders, runs, progress, &label, |contender| {
                    rounds::worker(&bench.worker, contender, &plan.words)
                });
                case.add_cold(plan.key, &series);
            }
            section.verdicts.extend(target::judge(&case, &plan.limits));
            section.cases.push(case);
        }
        section.tables = (self.draw)(&section.cases);
        for case in &section.cases {
            let failed =
                case.rows.iter().filter_map(|row| Some((&row.allocator, row.failed.as_ref()?)));
            section.notes.extend(failed.map(|(who, why)| format!("{who}, {}: {why}", case.name)));
        }
        Ok(section)
    }
}

/// A table for each case.
fn draw(cases: &[Case]) -> Vec<String> {
    cases.iter().map(tables::detail).collect()
}

fn cpu(name: &'static str, words: &[&'static str], limits: &[Limit]) -> Plan {
    Plan {
        name,
        words: words.to_vec(),
        key: "cpu_ns",
        unit: Unit::CpuNs,
        has_floor: false,
        has_cold: false,
        limits: limits.to_vec(),
    }
}

fn cold(plan: Plan) -> Plan {
    Plan { has_cold: true, ..plan }
}

fn pair(name: &'static str, words: &[&'static str], ticks: f64) -> Plan {
    Plan {
        key: "ns_per_pair",
        unit: Unit::NsPerPair,
        ..cpu(name, words, &[Limit::Ticks("B2", ticks)])
    }
}

fn doubling(name: &'static str, to: &'static str, cycles: &'static str, limits: &[Limit]) -> Plan {
    cpu(name, &["realloc", "--to", to, "--cycles", cycles], limits)
}

/// Many short cycles: the median one, and beside it the work alone.
fn short(name: &'static str, to: &'static str, cycles: &'static str, limits: &[Limit]) -> Plan {
    Plan { key: "cycle_cpu_ns", has_floor: true, ..doubling(name, to, cycles, limits) }
}

/// Cycles are chosen so that a run takes some tenths of a second; an object of 1 GiB grows once, in a process that has no
/// warm memory.
fn realloc(quick: bool) -> Vec<Plan> {
    let choose = |quick_choice, full| if quick { quick_choice } else { full };
    let small = [Limit::System("A1", 0.95), NO_PEER_FASTER];
    vec![
        short("128 KiB", "128KiB", choose("20000", "60000"), &small),
        short("1 MiB", "1MiB", choose("2000", "6000"), &small),
        doubling(
            "32 MiB",
            "32MiB",
            choose("10", "20"),
            &[Limit::System("A1", 0.25), NO_PEER_FASTER, Limit::Memory("A1", 1.02)],
        ),
        cold(doubling(
            "1 GiB",
            "1GiB",
            "1",
            &[
                Limit::System("A1", 0.45),
                NO_PEER_FASTER,
                Limit::Memory("A1", 1.02),
                Limit::Cold("A1", COLD_MOST),
            ],
        )),
    ]
}

fn append(_: bool) -> Vec<Plan> {
    let limits = [Limit::System("A2", 0.30), Limit::Cold("A2", COLD_MOST)];
    vec![cold(cpu("append", &["append"], &limits))]
}

fn vec(_: bool) -> Vec<Plan> {
    let limits = [Limit::System("A3", 0.45), Limit::Cold("A3", COLD_MOST)];
    vec![cold(Plan { has_floor: true, ..cpu("vec", &["vec"], &limits) })]
}

fn arrow(_: bool) -> Vec<Plan> {
    vec![
        cold(cpu("integers", &["arrow"], &[])),
        cpu("pages", &["arrow", "--pages", "--pushes", "200000"], &[]),
    ]
}

fn pairs(_: bool) -> Vec<Plan> {
    vec![
        pair("pair", &["pair"], 11.0),
        pair("batch of 1000", &["batch"], 11.0),
        pair("300 KiB", &["pair", "--size", "300KiB", "--pairs", "2000"], 45.0),
        pair(
            "64 of 400 KiB",
            &["batch", "--size", "400KiB", "--batch", "64", "--batches", "4"],
            200.0,
        ),
    ]
}
