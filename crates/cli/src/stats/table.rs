//! Where the requests went, on one screen.

use super::{Requests, Stats, native};
use spandrel_console::terminal::{Stream, table};
use spandrel_pages::Figure;
use spandrel_report::numbers::{bytes, count, counted};
use spandrel_report::{LearntRow, Tuner};
use std::fmt::Write;

/// Upper ends of the size ranges that are shown.
const RANGES: &[(u64, &str)] = &[
    (64, "below 64 B"),
    (1 << 10, "64 B – 1 KiB"),
    (4 << 10, "1 – 4 KiB"),
    (32 << 10, "4 – 32 KiB"),
    (128 << 10, "32 – 128 KiB"),
    (1 << 20, "128 KiB – 1 MiB"),
    (32 << 20, "1 – 32 MiB"),
    (u64::MAX, "32 MiB and more"),
];

/// The whole report.
pub fn draw(stats: &Stats, processes: usize) -> String {
    let mut text = String::new();
    let processes = counted(processes as u64, "process", "processes");
    let _ = writeln!(text, "\nspandrel: {processes}, mode {}", stats.mode);
    let _ = writeln!(text, "{}", backends(stats));
    let _ = writeln!(text, "{}", sizes(stats));
    let realloc = &stats.realloc;
    let line = |text: &mut String, said: &str| {
        let _ = writeln!(text, "{}", table::wrap_on(Stream::Err, said));
    };
    let said = format!(
        "reallocations: {} in place, {} by moving pages, {} by copying {}; {} changed allocator",
        count(realloc.in_place),
        count(realloc.moved_pages),
        count(realloc.copied),
        bytes(realloc.copied_bytes as f64),
        count(realloc.migrated),
    );
    line(&mut text, &said);
    if stats.mmap.faults_avoided_bytes > 0 {
        let avoided = bytes(stats.mmap.faults_avoided_bytes as f64);
        let said = format!("page-mapped: {avoided} were handed out again without page faults");
        line(&mut text, &said);
    }
    if !stats.native.is_empty() {
        let value = |figure: Figure| stats.native.get(figure.name()).copied().unwrap_or(0);
        // Larger ones never come out of a cache.
        let small = stats
            .requests
            .iter()
            .filter(|row| row.backend == "native" && row.to <= native::CACHED_MOST);
        let requests = small.map(|row| row.allocs).sum();
        text.push_str(&native::lines(Stream::Err, &value, Some(requests)));
    }
    if let Some(tuner) = &stats.tuner {
        text.push_str(&learnt(tuner));
    }
    for row in &stats.degraded {
        let why = std::io::Error::from_raw_os_error(row.errno);
        let times = counted(row.count, "time", "times");
        line(&mut text, &format!("done without {} ({times}): {why}", row.what));
    }
    text
}

/// What was learnt, and what it changed.
fn learnt(tuner: &Tuner) -> String {
    let looks = counted(tuner.windows, "look", "looks");
    let mut text = format!(" learning: {looks} took {:.2} % of the time", 100.0 * tuner.spent);
    let changed: Vec<_> = tuner.rows.iter().filter(|row| row.chosen != row.usual).collect();
    text.push_str(if changed.is_empty() { "; no other allocator was better\n" } else { ":\n" });
    for row in changed {
        let LearntRow { operation, chosen, usual, .. } = row;
        let from = bytes(row.from as f64);
        let trial = if row.on_trial { ", on trial" } else { "" };
        let _ = writeln!(text, "   {operation} from {from}: {chosen} instead of {usual}{trial}");
    }
    text
}

/// One row per allocator.
fn backends(stats: &Stats) -> String {
    let header = ["allocator", "requests", "share", "bytes", "share", "reallocations", "frees"];
    let mut table = table::on(Stream::Err, &header.map(String::from));
    let totals: Vec<Requests> =
        stats.backends().into_iter().map(|name| stats.total(name)).collect();
    let all_requests: u64 = totals.iter().map(Requests::count).sum();
    let all_bytes: u64 = totals.iter().map(Requests::bytes).sum();
    for row in &totals {
        table::add(
            &mut table,
            false,
            vec![
                row.backend.clone(),
                count(row.count()),
                table::share(row.count(), all_requests),
                bytes(row.bytes() as f64),
                table::share(row.bytes(), all_bytes),
                count(row.reallocs),
                count(row.frees),
            ],
        );
    }
    table.to_string()
}

/// One row per size range, one column per allocator.
fn sizes(stats: &Stats) -> String {
    let backends = stats.backends();
    let mut header = vec!["requests by size".to_string()];
    header.extend(backends.iter().map(|name| name.to_string()));
    let mut table = table::on(Stream::Err, &header);
    let mut from = 0;
    for (to, name) in RANGES {
        let row = |backend: &str| {
            let inside = stats
                .requests
                .iter()
                .filter(|row| row.backend == backend && row.from >= from && row.from < *to);
            inside.map(Requests::count).sum::<u64>()
        };
        let counts: Vec<u64> = backends.iter().map(|name| row(name)).collect();
        if counts.iter().any(|count| *count > 0) {
            let mut cells = vec![name.to_string()];
            cells.extend(counts.into_iter().map(|number| match number {
                0 => String::new(),
                some => count(some),
            }));
            table::add(&mut table, false, cells);
        }
        from = *to;
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use spandrel_report::{Degraded, Realloc};

    #[test]
    fn everything_is_shown() {
        let row = |backend: &str, from, allocs, reallocs| Requests {
            backend: backend.into(),
            from,
            to: from * 2,
            allocs,
            alloc_bytes: allocs * from,
            reallocs,
            frees: allocs,
            ..Requests::default()
        };
        let stats = Stats {
            mode: "auto".into(),
            requests: vec![row("mimalloc", 32, 1_999_999, 0), row("mmap", 1 << 20, 1, 5)],
            realloc: Realloc { in_place: 4, moved_pages: 1, ..Realloc::default() },
            degraded: vec![Degraded { what: "mremap".into(), errno: 38, count: 3 }],
            tuner: Some(Tuner {
                windows: 1200,
                spent: 0.0034,
                rows: vec![LearntRow {
                    operation: "allocate".into(),
                    from: 64,
                    usual: "native".into(),
                    chosen: "mimalloc".into(),
                    ..LearntRow::default()
                }],
                ..Tuner::default()
            }),
            ..Stats::default()
        };
        let text = draw(&stats, 2);
        for expected in [
            "2 processes, mode auto",
            "1,999,999",
            "<0.1%",
            "below 64 B",
            "1 – 32 MiB",
            "4 in place, 1 by moving pages",
            "done without mremap (3 times)",
            "1,200 looks took 0.34 % of the time",
            "allocate from 64 B: mimalloc instead of native",
        ] {
            assert!(text.contains(expected), "{expected} is missing in\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 100));
    }
}
