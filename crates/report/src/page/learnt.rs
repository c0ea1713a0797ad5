//! What a process has learnt while it ran, and when it changed its mind.

use maud::{Markup, html};
use spandrel_pages::AllocatorId;

use super::{bytes, chip};
use crate::charts;
use crate::numbers::{self, counted};
use crate::stats::{LearntRow, Stats, Tuner};

/// What takes less of the time is not shown, unless it was changed.
const LEAST_SHARE: f64 = 0.001;

/// The table of the process that looked most often.
pub(super) fn section(processes: &[Stats]) -> Markup {
    let learners: Vec<(&Stats, &Tuner)> =
        processes.iter().filter_map(|stats| Some((stats, stats.tuner.as_ref()?))).collect();
    let Some((stats, tuner)) = learners.iter().max_by_key(|(_, tuner)| tuner.windows) else {
        return html! {};
    };
    let others = learners.len() - 1;
    html! {
        section {
            h2 { "What it has learnt" }
            p.note {
                (stats.program) ", " (counted(tuner.windows, "look", "looks")) " of a millisecond, which took "
                (format!("{:.2}", 100.0 * tuner.spent)) " % of the processor's time. Nanoseconds of an object: made and given back, or grown."
                @if others > 0 { " " (counted(others as u64, "other process", "other processes")) " learnt as well." }
            }
            (table(tuner))
            (changes(tuner))
        }
    }
}

fn sizes(from: u64, to: u64) -> String {
    if to == u64::MAX {
        format!("from {}", bytes(from))
    } else {
        format!("{} to {}", bytes(from), bytes(to))
    }
}

fn table(tuner: &Tuner) -> Markup {
    let is_shown = |row: &&LearntRow| row.share >= LEAST_SHARE || row.changes > 0;
    let rows: Vec<&LearntRow> = tuner.rows.iter().filter(is_shown).collect();
    let is_known = |name: &&str| rows.iter().any(|row| row.nanos.contains_key(*name));
    let allocators: Vec<&str> =
        AllocatorId::ALL.iter().map(|id| id.name()).filter(is_known).collect();
    if allocators.is_empty() {
        return html! { p.note { "Requests take too little of its time for anything to be learnt." } };
    }
    html! {
        div.table { table {
            thead { tr {
                th { "sizes" } th { "of the time" }
                @for name in &allocators { th { (chip(charts::colour_of(name))) (name) } }
                th { "served by" }
            } }
            tbody {
                @for row in &rows {
                    tr {
                        td { (row.operation) " " (sizes(row.from, row.to)) }
                        td { (format!("{:.1} %", 100.0 * row.share)) }
                        @for name in &allocators {
                            td {
                                @match row.nanos.get(*name) {
                                    Some(nanos) if *name == row.chosen => b { (format!("{nanos:.0}")) },
                                    Some(nanos) => (format!("{nanos:.0}")),
                                    None => "–",
                                }
                            }
                        }
                        td {
                            (row.chosen)
                            @if row.on_trial { " " small { "on trial" } }
                            @if row.chosen != row.usual { " " small { "instead of " (row.usual) } }
                        }
                    }
                }
            }
        } }
    }
}

fn changes(tuner: &Tuner) -> Markup {
    if tuner.changes.is_empty() {
        return html! { p.note { "No other allocator was certainly better by enough: no change." } };
    }
    html! {
        p.note { "When it changed its mind, by the processor's time:" }
        div.table { table {
            thead { tr { th { "after" } th { "sizes" } th { "from then on" } } }
            tbody {
                @for change in &tuner.changes {
                    tr {
                        td { (numbers::time(change.after_ms as f64 * 1e6)) }
                        td { (change.operation) " " (sizes(change.from, change.to)) }
                        td {
                            (change.allocator)
                            @if change.on_trial { " on trial" } @else { " again: the trial was not passed" }
                        }
                    }
                }
            }
        } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::LearntChange;

    fn row(from: u64, share: f64, nanos: &[(&str, f64)]) -> LearntRow {
        LearntRow {
            operation: "allocate".into(),
            from,
            to: 2 * from - 1,
            usual: "native".into(),
            chosen: "mimalloc".into(),
            share,
            nanos: nanos.iter().map(|(name, nanos)| ((*name).into(), *nanos)).collect(),
            ..LearntRow::default()
        }
    }

    fn page(tuner: Tuner) -> String {
        let stats = Stats { program: "job".into(), tuner: Some(tuner), ..Stats::default() };
        section(&[Stats::default(), stats]).into_string()
    }

    #[test]
    fn rows_and_changes_are_told() {
        let changes = vec![LearntChange {
            after_ms: 1500,
            operation: "allocate".into(),
            from: 64,
            to: 127,
            allocator: "mimalloc".into(),
            on_trial: true,
        }];
        let rows = vec![
            row(64, 0.25, &[("native", 41.0), ("mimalloc", 30.0)]),
            row(1 << 14, 0.0, &[("jemalloc", 77.0)]),
        ];
        let page = page(Tuner { windows: 12, spent: 0.004, rows, changes });
        for part in ["12 looks", "0.40 %", "<b>30</b>", "instead of native", "1.50 s", "on trial"] {
            assert!(page.contains(part), "{part} in {page}");
        }
        assert!(!page.contains("jemalloc"), "what takes no time is not shown: {page}");
    }

    #[test]
    fn who_has_nothing_to_tell_says_so() {
        assert_eq!(section(&[Stats::default()]).into_string(), "");
        let page = page(Tuner { windows: 1, ..Tuner::default() });
        assert!(
            page.contains("1 look of") && page.contains("too little") && page.contains("No other"),
            "{page}"
        );
    }
}
