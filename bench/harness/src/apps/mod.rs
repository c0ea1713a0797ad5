//! Real programs on the system's allocator and on Spandrel: the main job.

mod hugepages;
mod kills;
mod programs;
mod words;

use crate::asked::Asked;
use crate::options::{Allocators, Options};
use crate::report::Section;
use crate::suite::{Bench, Prepared, Suite};
use programs::Program;
use serde_json::{Value, json};
use spandrel_console::Failure;
use spandrel_console::progress::Progress;
use spandrel_console::terminal::table;
use spandrel_measure::contender::Contender;
use spandrel_measure::gather::Gathering;
use spandrel_measure::rounds::{self, Series};
use spandrel_report::numbers::{Summary, bytes, count, range, time};
use spandrel_report::{Requests, Stats};

/// One program's results.
pub struct Outcome {
    /// What tables call it.
    pub name: &'static str,
    /// What its other allocators are called, and Spandrel.
    pub series: Vec<Series>,
    /// Where its requests went on Spandrel.
    pub stats: Option<Stats>,
}

impl Outcome {
    /// The medians of one number: of everyone else, and of Spandrel.
    pub fn medians(&self, key: &str) -> (Vec<(&str, f64)>, Option<f64>) {
        let all = self.series.iter().filter_map(|series| {
            Some((&series.contender, Summary::of(&series.values(key))?.median))
        });
        let (ours, others): (Vec<_>, Vec<_>) = all.partition(|(contender, _)| contender.ours());
        let others =
            others.into_iter().map(|(contender, median)| (contender.name.as_str(), median));
        (others.collect(), ours.first().map(|(_, median)| *median))
    }

    /// Whether every run printed the same; `None` where nothing is printed.
    pub fn same_output(&self) -> Option<bool> {
        let samples = self.series.iter().flat_map(|series| &series.samples);
        let mut digests = samples.filter_map(|sample| sample.get("digest"));
        let first = digests.next()?;
        Some(digests.all(|digest| digest == first))
    }

    /// Whether it did on Spandrel what it does elsewhere.
    pub fn is_broken(&self) -> bool {
        let failed = |ours: bool| {
            self.series
                .iter()
                .any(|series| series.contender.ours() == ours && series.failed.is_some())
        };
        self.same_output() == Some(false) || failed(true) && !failed(false)
    }
}

/// The suite `apps`.
pub struct Apps;

impl Suite for Apps {
    fn name(&self) -> &'static str {
        "apps"
    }

    fn about(&self) -> &'static str {
        "real programs on the system's allocator and on Spandrel"
    }

    fn options(&self) -> Options {
        Options { allocators: Allocators::Usual, runs: 3, is_in_all: false, ..Options::default() }
    }

    fn prepare(&self, _: &Asked) -> Result<Prepared, Failure> {
        Ok(Box::new(run))
    }
}

/// Runs all programs.
fn run(bench: &Bench, progress: &Progress) -> Result<Section, Failure> {
    let ours = bench.contenders.iter().find(|contender| contender.ours()).ok_or_else(|| {
        Failure::refused("libspandrel.so was not found: build it with 'cargo build --release'")
    })?;
    let mut section =
        Section::new("apps", "real programs, on the allocator they come with and on Spandrel");
    let mut outcomes = Vec::new();
    for program in programs::all(bench) {
        match program.missing() {
            Some(what) => section.notes.push(format!("{}: left out, {what}", program.name())),
            None => outcomes.push(measure(bench, &program, ours, progress)),
        }
    }
    let mut of_hugepages = vec![hugepages::Program::Server];
    of_hugepages.extend(programs::interpreter().map(hugepages::Program::Python));
    if Program::Redis.missing().is_none() {
        of_hugepages.insert(0, hugepages::Program::RedisLists);
    }
    let of_hugepages = hugepages::measure(bench, of_hugepages, ours, progress);
    let mut killed = Vec::new();
    if Program::Redis.missing().is_none() {
        match kills::measure(bench.runs, progress) {
            Ok(all) => killed = all,
            Err(why) => section.notes.push(format!("redis-server, killed: left out, {why}")),
        }
    }
    section.tables.push(times(&outcomes));
    section.tables.push(requests(&outcomes));
    section.tables.push(hugepages::table(&of_hugepages));
    if !killed.is_empty() {
        section.tables.push(kills::table(&killed));
    }
    section.notes.extend(words::summary(&outcomes));
    section.notes.push(hugepages::ABOUT.into());
    section.notes.extend(hugepages::failures(&of_hugepages));
    if !killed.is_empty() {
        section.notes.extend(kills::notes(&killed));
    }
    section.broken = outcomes.iter().any(Outcome::is_broken) || kills::is_broken(&killed);
    let programs: Vec<Value> = outcomes.iter().map(data).collect();
    section.data = json!({
        "programs": programs,
        "hugepages": hugepages::data(&of_hugepages),
        "killed": kills::data(&killed),
    });
    Ok(section)
}

fn measure(bench: &Bench, program: &Program, ours: &Contender, progress: &Progress) -> Outcome {
    let contenders = program.contenders(bench, ours);
    let series = rounds::in_turns(&contenders, bench.runs, progress, program.name(), |one| {
        program.run(bench, one)
    });
    progress.stage(&format!("{}, counting", program.name()), 1);
    let stats = counted(bench, program, ours);
    progress.step();
    Outcome { name: program.name(), series, stats }
}

/// One more run, with the library counting.
fn counted(bench: &Bench, program: &Program, ours: &Contender) -> Option<Stats> {
    let gathering = Gathering::new().ok()?;
    let mut counting = ours.clone();
    let pattern = gathering.pattern().into_string().ok()?;
    counting.env.push(("SPANDREL_STATS".into(), pattern.into()));
    program.run(bench, &counting).ok()?;
    let (all, _) = gathering.read();
    (!all.is_empty()).then(|| Stats::sum(&all))
}

/// Time and memory.
fn times(outcomes: &[Outcome]) -> String {
    let header = [
        "program",
        "allocator",
        "CPU time",
        "from – to",
        "elapsed",
        "peak memory",
        "CPU",
        "memory",
    ];
    let mut table = table::new(&header.map(String::from));
    table::left(&mut table, 1);
    for outcome in outcomes {
        let base = |key: &str| outcome.medians(key).0.first().map(|(_, median)| *median);
        for (at, series) in outcome.series.iter().enumerate() {
            let of = |key: &str| Summary::of(&series.values(key));
            let text = |key: &str, show: fn(f64) -> String| {
                of(key).map_or(table::NOTHING.into(), |summary| show(summary.median))
            };
            let times = |key: &str| match (of(key), base(key)) {
                (Some(summary), Some(base)) => format!("{:.2}×", summary.median / base),
                _ => String::new(),
            };
            let spread = of("cpu_ns").map_or(String::new(), |s| range(s.min, s.max));
            table::add(
                &mut table,
                series.contender.ours(),
                vec![
                    if at == 0 { outcome.name.into() } else { String::new() },
                    series.contender.name.clone(),
                    text("cpu_ns", time),
                    spread,
                    text("wall_ns", time),
                    text("peak_rss", bytes),
                    times("cpu_ns"),
                    times("peak_rss"),
                ],
            );
        }
    }
    table.to_string()
}

/// Where requests went.
fn requests(outcomes: &[Outcome]) -> String {
    let counted: Vec<(&str, &Stats)> = outcomes
        .iter()
        .filter_map(|outcome| Some((outcome.name, outcome.stats.as_ref()?)))
        .collect();
    if counted.is_empty() {
        return "the library wrote no statistics: where requests went is not known".into();
    }
    let mut backends: Vec<&str> = counted.iter().flat_map(|(_, stats)| stats.backends()).collect();
    backends.sort_unstable();
    backends.dedup();
    let mut header = vec!["on Spandrel".to_string(), "requests".into()];
    header.extend(backends.iter().map(|name| format!("{name}\nby count, bytes")));
    header.push("reallocations: in place,\npages moved, copied".into());
    let mut table = table::new(&header);
    for (name, stats) in counted {
        let totals: Vec<_> = backends.iter().map(|backend| stats.total(backend)).collect();
        let requests: u64 = totals.iter().map(Requests::count).sum();
        let all_bytes: u64 = totals.iter().map(Requests::bytes).sum();
        let mut cells = vec![name.to_string(), count(requests)];
        cells.extend(totals.iter().map(|row| match row.count() {
            0 => String::new(),
            some => format!(
                "{}, {}",
                table::share(some, requests),
                table::share(row.bytes(), all_bytes)
            ),
        }));
        let realloc = &stats.realloc;
        cells.push(format!(
            "{}, {}, {}",
            count(realloc.in_place),
            count(realloc.moved_pages),
            count(realloc.copied)
        ));
        table::add(&mut table, false, cells);
    }
    table.to_string()
}

fn data(outcome: &Outcome) -> Value {
    let series = outcome.series.iter().map(|series| {
        json!({
            "allocator": series.contender.name,
            "cpu_ns": Summary::of(&series.values("cpu_ns")),
            "wall_ns": Summary::of(&series.values("wall_ns")),
            "peak_rss": Summary::of(&series.values("peak_rss")),
            "failed": series.failed,
            "samples": series.samples,
        })
    });
    json!({
        "program": outcome.name,
        "allocators": series.collect::<Vec<_>>(),
        "same_output": outcome.same_output(),
        "stats": outcome.stats,
    })
}
