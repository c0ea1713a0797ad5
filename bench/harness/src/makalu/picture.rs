//! Fig. 7 as a picture: how many objects each contender makes and frees in a second.

use super::draw::names;
use super::outcome::Outcome;
use super::small::{is_timed, rate};
use super::who;
use crate::report::picture::{Part, Picture};
use spandrel_sim::{DotPanel, DotRow, Dots, Marks};

/// Panels beside each other.
const PANELS: usize = 2;

/// A panel for each benchmark, a mark for each number of threads; nothing if none was measured.
pub fn of(outcomes: &[Outcome], of: &str) -> Option<Picture> {
    let timed: Vec<&Outcome> = outcomes.iter().filter(|outcome| is_timed(outcome)).collect();
    let names = names(&timed);
    let panels: Vec<DotPanel> =
        timed.chunk_by(|one, two| one.name == two.name).map(|same| panel(same, &names)).collect();
    let row = |name: &String| DotRow {
        name: if name == "sys" { "glibc".into() } else { name.clone() },
        stands_out: name == who::HEAP,
    };
    let part = |panels: &[DotPanel]| {
        let titles: Vec<&str> = panels.iter().map(|panel| panel.title.as_str()).collect();
        Part::Dots(Dots {
            title: format!("{} (Fig. 7)", titles.join(", ")),
            subtitle: of.into(),
            rows: names.iter().map(row).collect(),
            panels: panels.to_vec(),
        })
    };
    (!panels.is_empty()).then(|| Picture(panels.chunks(PANELS).map(part).collect()))
}

fn panel(same: &[&Outcome], names: &[String]) -> DotPanel {
    let marks = |outcome: &&Outcome| Marks {
        name: outcome.of.clone(),
        values: names.iter().map(|name| rate(outcome.series_of(name)?)).collect(),
    };
    DotPanel {
        title: same.first().map_or_else(String::new, |outcome| outcome.name.into()),
        x: "million pairs of allocation and free per second".into(),
        marks: same.iter().map(marks).collect(),
        x_least: 0.0,
        has_powers: false,
        digits: 1,
    }
}

#[cfg(test)]
mod tests {
    use super::super::outcome::tests::{outcome, series};
    use super::*;
    use serde_json::json;

    #[test]
    fn a_panel_for_each_benchmark() {
        let one = |name, threads| {
            let sample = || vec![json!({"ns_per_operation": 20.0})];
            outcome(name, threads, vec![series("sys", sample()), series("spandrel", sample())])
        };
        let outcomes =
            [one("larson", 1), one("larson", 2), one("threadtest", 1), one("prod-con", 2)];
        let picture = of(&outcomes, "medians of 3 rounds").unwrap();
        assert_eq!(picture.0.len(), 2);
        let svg = picture.svg().unwrap();
        for part in ["larson", "2 threads", "prod-con", "glibc", "50.0", "medians of 3 rounds"] {
            assert!(svg.contains(part), "{part}");
        }
        assert!(of(&[], "").is_none());
    }
}
