//! The table as a picture: the memory that each allocator returns, and what that costs when it is needed again.

use super::{FRESH, value};
use spandrel_measure::rounds::Series;
use spandrel_sim::{DotPanel, DotRow, Dots, Marks};

/// The stages between which memory differs, and those between which speed does; what a legend
/// calls them.
const GIVEN_BACK: [(&str, &str); 2] = [("idle", "10 s idle"), ("released", "asked to give back")];
const USED: [(&str, &str); 3] =
    [(FRESH, "fresh"), ("refilled", "refilled"), ("settled", "left alone")];

/// Rows for allocators, the one that keeps the least memory first; `of` says what was done how
/// often.
pub fn dots(all: &[Series], of: &str) -> Dots {
    let idle = |series: &Series| value(series, "idle", "resident_to_live").unwrap_or(f64::INFINITY);
    let mut all: Vec<&Series> = all.iter().collect();
    all.sort_by(|one, two| idle(one).total_cmp(&idle(two)));
    let marks = |stages: &[(&str, &str)], key: &str, factor: f64| {
        let of_stage = |(stage, name): &(&str, &str)| Marks {
            name: name.to_string(),
            values: all.iter().map(|s| Some(value(s, stage, key)? * factor)).collect(),
        };
        stages.iter().map(of_stage).collect()
    };
    let panels = vec![
        DotPanel {
            title: "Memory: less is better".into(),
            x: "resident bytes per live byte".into(),
            marks: marks(&GIVEN_BACK, "resident_to_live", 1.0),
            x_least: 1.0,
            has_powers: false,
            digits: 2,
        },
        DotPanel {
            title: "Time of an access: less is better".into(),
            x: "following an address to an object (ns)".into(),
            marks: marks(&USED, "access_ns", 1.0),
            x_least: 0.0,
            has_powers: false,
            digits: 0,
        },
        DotPanel {
            title: "On huge pages: more is better".into(),
            x: "part of resident memory (%)".into(),
            marks: marks(&USED, "coverage", 100.0),
            x_least: 100.0,
            has_powers: false,
            digits: 0,
        },
    ];
    Dots {
        title: "Memory, speed and huge pages over the life of a heap".into(),
        subtitle: of.into(),
        rows: all.iter().map(|series| row(series)).collect(),
        panels,
    }
}

fn row(series: &Series) -> DotRow {
    let name = &series.contender.name;
    // A picture is looked at without the table that says what is meant.
    let system = name.strip_prefix("sys").map(|rest| format!("glibc{rest}"));
    DotRow { name: system.unwrap_or(name.clone()), stands_out: series.contender.ours() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use spandrel_measure::contender::Contender;
    use std::path::Path;

    fn series(contender: Contender, idle: f64) -> Series {
        let sample = json!({"idle.resident_to_live": idle, "refilled.coverage": 0.5});
        Series { contender, samples: vec![sample], failed: None }
    }

    #[test]
    fn the_leanest_comes_first_and_who_failed_last() {
        let failed = Series {
            contender: Contender::tuned("sys-hugetlb", "x"),
            samples: Vec::new(),
            failed: Some("signal".into()),
        };
        let ours = Contender::spandrel("auto", Path::new("/x/libspandrel.so"));
        let all = [failed, series(Contender::system(), 3.0), series(ours, 1.25)];
        let dots = dots(&all, "");
        let names: Vec<_> = dots.rows.iter().map(|r| (r.name.as_str(), r.stands_out)).collect();
        assert_eq!(names, [("spandrel", true), ("glibc", false), ("glibc-hugetlb", false)]);
        assert_eq!(dots.panels[0].marks[0].values, [Some(1.25), Some(3.0), None]);
        let covered = &dots.panels[2].marks[1];
        assert_eq!(covered.values, [Some(50.0), Some(50.0), None]);
    }
}
