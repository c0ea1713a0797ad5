//! The tables of the allocation programs.

use super::outcome::{CPU, DRAINED, Outcome, PEAK, WALL, mean};
use serde_json::Value;
use spandrel_console::terminal::table;
use spandrel_report::numbers::{bytes, median, time};

/// Programs beside each other in a table of a terminal's width.
const COLUMNS: usize = 7;

/// A header that is broken where a name has a hyphen.
fn header(name: &str) -> String {
    name.replace('-', "-\n")
}

/// One number of every program on every allocator, in as many tables as it takes.
fn matrix(
    title: &str,
    outcomes: &[Outcome],
    cell: impl Fn(&Outcome, &str) -> Option<String>,
) -> Vec<String> {
    let mut tables = Vec::new();
    for part in outcomes.chunks(COLUMNS) {
        let mut names = vec![title.to_string()];
        names.extend(part.iter().map(|outcome| header(outcome.name)));
        let mut table = table::new(&names);
        for series in &part[0].series {
            let name = &series.contender.name;
            let mut cells = vec![name.clone()];
            cells.extend(
                part.iter().map(|outcome| cell(outcome, name).unwrap_or(table::NOTHING.into())),
            );
            table::add(&mut table, series.contender.ours(), cells);
        }
        tables.push(table.to_string());
    }
    tables
}

/// A table for each number.
pub fn matrices(outcomes: &[Outcome]) -> Vec<String> {
    let to_system = |outcome: &Outcome, name: &str, key| match name {
        "sys" => outcome.median(name, key).map(time),
        _ => outcome.to_system(name, key).map(|ratio| format!("{ratio:.2}")),
    };
    let mut tables =
        matrix("CPU time, × sys", outcomes, |outcome, name| to_system(outcome, name, CPU));
    tables.extend(matrix("elapsed, × sys", outcomes, |outcome, name| {
        to_system(outcome, name, WALL)
    }));
    tables.extend(matrix("peak memory", outcomes, |outcome, name| {
        outcome.median(name, PEAK).map(bytes)
    }));
    tables.extend(matrix("drained", outcomes, |outcome, name| {
        outcome.median(name, DRAINED).map(bytes)
    }));
    tables
}

/// Spandrel beside the best peer, program by program.
pub fn beside_the_best(outcomes: &[Outcome]) -> String {
    let titles = ["program", "on", "CPU time", "best peer", "×", "peak memory", "leanest", "×"];
    let mut table = table::new(&titles.map(String::from));
    table::left(&mut table, 1);
    for outcome in outcomes {
        for series in outcome.series.iter().filter(|series| series.contender.ours()) {
            let ours = &series.contender.name;
            let cells = |key, peer: Option<(&str, f64)>, text: fn(f64) -> String| {
                let value = outcome.median(ours, key);
                let ratio =
                    value.zip(peer).map(|(value, (_, base))| format!("{:.2}", value / base));
                [value.map(text), peer.map(|(name, base)| format!("{} {name}", text(base))), ratio]
                    .map(|cell| cell.unwrap_or(table::NOTHING.into()))
            };
            let mut row = vec![outcome.name.to_string(), ours.clone()];
            row.extend(cells(CPU, outcome.best_peer(), time));
            row.extend(cells(PEAK, outcome.leanest_peer(), bytes));
            table::add(&mut table, false, row);
        }
    }
    table.to_string()
}

/// Each allocator over all programs.
pub fn means(outcomes: &[Outcome]) -> String {
    let titles = ["geometric mean, × sys", "CPU time", "elapsed", "peak memory", "drained"];
    let mut table = table::new(&titles.map(String::from));
    for series in outcomes.first().map_or(&[][..], |outcome| &outcome.series) {
        let name = &series.contender.name;
        let mut cells = vec![name.clone()];
        cells.extend([CPU, WALL, PEAK, DRAINED].map(|key| {
            mean(outcomes, name, key).map_or(table::NOTHING.into(), |mean| format!("{mean:.2}"))
        }));
        table::add(&mut table, series.contender.ours(), cells);
    }
    table.to_string()
}

/// What was resident for each live byte, phase by phase, for programs that say so:
/// at the end of a phase and after a moment without work.
pub fn phases(outcome: &Outcome) -> Vec<String> {
    let list = |sample: &Value| sample.get("phases").and_then(Value::as_array).cloned();
    let mut samples = outcome.series.iter().flat_map(|series| &series.samples);
    let Some(names) = samples.find_map(list) else { return Vec::new() };
    let names: Vec<String> = names.iter().map(|phase| text(phase, "name")).collect();
    let mut tables = Vec::new();
    for (part, chunk) in names.chunks(COLUMNS - 1).enumerate() {
        let mut titles = vec!["resident to live".to_string()];
        titles.extend(chunk.iter().map(|name| name.replace(' ', "\n")));
        let mut table = table::new(&titles);
        for series in &outcome.series {
            let mut cells = vec![series.contender.name.clone()];
            for at in 0..chunk.len() {
                let ratio = |key| {
                    let ratios = series.samples.iter().filter_map(|sample| {
                        let phase = list(sample)?.get(part * (COLUMNS - 1) + at).cloned()?;
                        Some(phase.get(key)?.as_f64()? / phase.get("live")?.as_f64()?)
                    });
                    median(&ratios.collect::<Vec<_>>())
                };
                let both = ratio("rss").zip(ratio("rss_idle"));
                let cell = both.map(|(busy, idle)| format!("{busy:.2} {idle:.2}"));
                cells.push(cell.unwrap_or(table::NOTHING.into()));
            }
            table::add(&mut table, series.contender.ours(), cells);
        }
        tables.push(table.to_string());
    }
    tables
}

fn text(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).unwrap_or("?").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use spandrel_measure::contender::Contender;
    use spandrel_measure::rounds::Series;

    #[test]
    fn elapsed_time_has_a_table_of_its_own() {
        let series = |contender, wall: f64| Series {
            contender,
            samples: vec![json!({"cpu_ns": 100.0, "wall_ns": wall})],
            failed: None,
        };
        let series =
            vec![series(Contender::system(), 80.0), series(Contender::tuned("peer", "x"), 60.0)];
        let outcomes = [Outcome { name: "cfrac", words: Vec::new(), series }];
        let row = |table: &str, name: &str| {
            let row = table.lines().find(|line| line.trim_start().starts_with(name));
            row.map(str::to_string).unwrap_or_default()
        };
        let tables = matrices(&outcomes);
        let elapsed = tables.iter().find(|table| table.contains("elapsed")).unwrap();
        assert!(row(elapsed, "sys").contains("80.0 ns"), "{elapsed}");
        assert!(row(elapsed, "peer").contains("0.75"), "{elapsed}");
        let means = means(&outcomes);
        assert!(means.contains("elapsed") && row(&means, "peer").contains("0.75"), "{means}");
    }
}
