//! By bytes, how large what was asked for is: Figs. 4 and 5 of the paper, as a table and as a picture.

use spandrel_console::terminal::table;
use spandrel_report::numbers::whole;
use spandrel_sim::{Axis, Chart, Line, Panel};
use spandrel_trace::Cdf;

/// Shares are told for sizes up to powers of two between these, four octaves in one row.
const LEAST_LOG2: u32 = 4;
const MOST_LOG2: u32 = 40;
const STEP_LOG2: usize = 2;
/// What is shown with one digit behind the point as nothing, or as all.
const NOTHING: f64 = 0.0005;
const ALL: f64 = 0.9995;

/// Of what the sizes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// What the program asked the allocator for.
    Objects,
    /// What the allocator asked its page heap for.
    Spans,
}

/// The share of bytes in sizes up to this.
fn up_to(points: &[(f64, f64)], size: f64) -> f64 {
    let below = points.iter().take_while(|(at, _)| *at <= size);
    below.last().map_or(0.0, |(_, share)| *share)
}

/// The table, from the first row that has something to the first that has all.
pub fn table(sizes: &[(What, &Cdf)]) -> String {
    let mut header = vec!["bytes in sizes up to".to_string()];
    for (what, _) in sizes {
        let what = match what {
            What::Objects => "objects",
            What::Spans => "spans",
        };
        header.extend(["asked for", "live"].map(|kind| format!("{what}:\n{kind}")));
    }
    let columns: Vec<&[(f64, f64)]> =
        sizes.iter().flat_map(|(_, cdf)| [cdf.asked.as_slice(), cdf.live.as_slice()]).collect();
    let mut table = table::new(&header);
    for log2 in (LEAST_LOG2..=MOST_LOG2).step_by(STEP_LOG2) {
        let size = f64::from(log2).exp2();
        let shares: Vec<f64> = columns.iter().map(|points| up_to(points, size)).collect();
        if shares.iter().all(|share| *share < NOTHING) {
            continue;
        }
        let cells = shares.iter().map(|share| format!("{:.1} %", share * 100.0));
        let row = std::iter::once(whole(1 << log2)).chain(cells).collect();
        table::add(&mut table, false, row);
        if shares.iter().all(|share| *share > ALL) {
            break;
        }
    }
    table.to_string()
}

/// The picture. Between the sizes that there are, shares stay what they are: lines are steps.
pub fn chart(title: String, subtitle: String, sizes: &[(What, &Cdf)]) -> Chart {
    let line = |name: &str, cdf: &[(f64, f64)], from: f64| {
        let mut points = vec![(from, 0.0)];
        for (size, share) in cdf.iter().filter(|(size, _)| *size > from) {
            let before = points.last().map_or(0.0, |(_, percent)| *percent);
            points.extend([(*size, before), (*size, share * 100.0)]);
        }
        Line { name: name.into(), points, area: false }
    };
    let panels = sizes.iter().map(|(what, cdf)| {
        // What is too little to be seen takes no room, but for what is just below.
        let some = [&cdf.asked, &cdf.live].map(|points| points.iter().find(|p| p.1 >= NOTHING));
        let from = some.iter().flatten().map(|(size, _)| size / 2.0).fold(f64::MAX, f64::min);
        Panel {
            title: match what {
                What::Objects => "Objects".into(),
                What::Spans => "Spans of the page heap".into(),
            },
            y: "bytes in sizes up to (%)".into(),
            lines: vec![
                line("asked for", &cdf.asked, from),
                line("live, over time", &cdf.live, from),
            ],
            y_least: 100.0,
        }
    });
    Chart { title, subtitle, x: "size".into(), axis: Axis::Bytes, panels: panels.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cdf() -> Cdf {
        let points = vec![(1.0, 1e-6), (8192.0, 0.25), (65536.0, 1.0)];
        Cdf { asked: points.clone(), live: points }
    }

    #[test]
    fn rows_without_anything_and_columns_of_what_is_not_there_are_left_out() {
        let table = table(&[(What::Spans, &cdf())]);
        assert!(table.contains("spans:") && !table.contains("objects:"), "{table}");
        assert!(!table.contains(" 4 KiB") && !table.contains("256 KiB"), "{table}");
        assert!(table.contains(" 16 KiB") && table.contains(" 64 KiB"), "{table}");
        assert!(!table.contains(" 0.0 %"), "{table}");
    }

    #[test]
    fn lines_are_steps_over_sizes_with_units() {
        let chart = chart("T".into(), String::new(), &[(What::Spans, &cdf())]);
        let points = &chart.panels[0].lines[0].points;
        let wanted =
            [(4096.0, 0.0), (8192.0, 0.0), (8192.0, 25.0), (65536.0, 25.0), (65536.0, 100.0)];
        assert_eq!(points, &wanted);
        let svg = chart.svg().unwrap();
        for part in ["4 KiB", "64 KiB", "Spans of the page heap"] {
            assert!(svg.contains(part), "{part}");
        }
        assert!(!svg.contains("Objects"));
    }
}
