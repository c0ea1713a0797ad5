//! Tables of plain cases.

use super::case::{Case, Row, Unit};
use spandrel_console::terminal::table;
use spandrel_measure::contender::Role;
use spandrel_report::numbers::{Summary, bytes, count, time};

/// One case in full.
pub fn detail(case: &Case) -> String {
    let measure = match case.unit {
        Unit::CpuNs => "CPU time",
        Unit::NsPerPair => "per pair",
    };
    let mut header = vec![
        case.name.as_str(),
        measure,
        "from – to",
        "× sys",
        "× best peer",
        "peak memory",
        "faults",
    ];
    if case.has_cold() {
        header.extend(["cold", "× sys"]);
    }
    let header: Vec<String> = header.into_iter().map(String::from).collect();
    let mut table = table::new(&header);
    for row in &case.rows {
        let summary = |text: fn(&Summary) -> String| {
            row.summary.as_ref().map_or_else(|| table::NOTHING.to_string(), text)
        };
        let mut cells = vec![
            row.allocator.clone(),
            summary(|s| time(s.median)),
            summary(|s| format!("{} – {}", time(s.min), time(s.max))),
            ratio(row.to_system),
            ratio(row.to_best_peer),
            row.peak_rss.map_or_else(String::new, bytes),
            row.faults.map_or_else(String::new, |faults| count(faults as u64)),
        ];
        if case.has_cold() {
            let cold = row.cold.as_ref();
            let median = cold.and_then(|cold| Some(time(cold.summary?.median)));
            cells.extend([median.unwrap_or_default(), ratio(cold.and_then(|cold| cold.to_system))]);
        }
        table::add(&mut table, row.role == Role::Ours, cells);
    }
    table.to_string()
}

/// Several cases side by side: ratios to the system's allocator, which itself is
/// shown in time.
pub fn matrix(cases: &[Case]) -> String {
    let mut header = vec!["CPU time, × sys".to_string()];
    header.extend(cases.iter().map(|case| case.name.clone()));
    let cold: Vec<&Case> = cases.iter().filter(|case| case.has_cold()).collect();
    header.extend(cold.iter().map(|case| format!("{}\ncold", case.name)));
    let memory: Vec<&Case> = cases.iter().filter(|case| has_object(case)).collect();
    header.extend(memory.iter().map(|case| format!("RSS/size\n{}", case.name)));
    let mut table = table::new(&header);
    // Not every case has a floor: rows are found by name.
    for first in cases.first().map_or(&[][..], |case| &case.rows) {
        let mut cells = vec![first.allocator.clone()];
        cells.extend(cases.iter().map(|case| {
            let Some(row) = case.row(&first.allocator) else { return String::new() };
            against_system(row, row.summary.as_ref(), row.to_system)
        }));
        cells.extend(cold.iter().map(|case| {
            let row = case.row(&first.allocator);
            let cold = row.and_then(|row| Some((row, row.cold.as_ref()?)));
            cold.map_or_else(String::new, |(row, cold)| {
                against_system(row, cold.summary.as_ref(), cold.to_system)
            })
        }));
        cells.extend(
            memory
                .iter()
                .map(|case| ratio(case.row(&first.allocator).and_then(|row| row.rss_per_byte))),
        );
        table::add(&mut table, first.role == Role::Ours, cells);
    }
    table.to_string()
}

/// A cell of the matrix.
fn against_system(row: &Row, summary: Option<&Summary>, to_system: Option<f64>) -> String {
    match (summary, to_system) {
        (Some(summary), _) if row.allocator == "sys" => time(summary.median),
        (Some(summary), Some(to_system)) => {
            format!("{to_system:.2} ±{:.0}%", summary.spread() * 100.0)
        }
        _ => table::NOTHING.into(),
    }
}

/// Whether memory per byte says something: for small objects it is the
/// program's own memory.
fn has_object(case: &Case) -> bool {
    const OWN_SHARE_MAX: f64 = 0.1;
    let system = case.row("sys");
    system.and_then(|row| row.rss_per_byte).is_some_and(|ratio| (ratio - 1.0).abs() < OWN_SHARE_MAX)
        && case.name.ends_with("GiB")
}

fn ratio(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| format!("{value:.2}"))
}
