//! The figures as a picture: what each store and each server does in a second.

use super::draw::{DISK, Outcome, TMPFS, middle};
use super::servers;
use super::stores::STATE;
use crate::report::picture::{Part, Picture};
use spandrel_measure::rounds::Series;
use spandrel_sim::{DotPanel, DotRow, Dots, Marks};

/// A part: its title, and which cases are its marks, by the names that tables and the legend have for them.
type Shown = (&'static str, [(&'static str, &'static str); 3]);

const STORES: [Shown; 3] = [
    (
        "Puts of LevelDB's benchmark, values of 100 bytes (Figs. 8 and 9)",
        [
            ("fillseq, 100 B", "in order"),
            ("fillrandom, 100 B", "in any order"),
            ("overwrite, 100 B", "again"),
        ],
    ),
    (
        "Puts of clients in a closed loop, values of 1,000 bytes (Figs. 5 and 6)",
        [
            ("100 % puts, 1", "1 client"),
            ("100 % puts, 8", "8 clients"),
            ("100 % puts, 96", "96 clients"),
        ],
    ),
    (
        "Eight clients, keys by Zipf's law (Fig. 7)",
        [("100 % puts", "all put"), ("50 % puts", "half"), ("0 % puts", "all get")],
    ),
];

const SERVERS: Shown = (
    "SET on servers, values of 1,000 bytes: clients × requests at once",
    [("SET, 1", "1 client"), ("SET, 8 × 16", "8 × 16"), ("SET, 32 × 16", "32 × 16")],
);

/// What was measured of a case: its name, where files lay, and a series for each store.
type Measured<'m> = (String, &'static str, &'m [Series]);

/// The picture; nothing if none of it was measured.
pub fn of(stores: &[Outcome], on_servers: &[servers::Outcome], of: &str) -> Option<Picture> {
    let stores: Vec<Measured<'_>> =
        stores.iter().map(|one| (one.case.name.clone(), one.medium, &one.series[..])).collect();
    let on_servers: Vec<Measured<'_>> =
        on_servers.iter().map(|one| (one.name(), one.medium, &one.series[..])).collect();
    let parts = STORES.iter().filter_map(|shown| part(shown, &stores, STATE, of));
    let parts: Vec<Part> = parts.chain(part(&SERVERS, &on_servers, servers::STATE, of)).collect();
    (!parts.is_empty()).then_some(Picture(parts))
}

fn part(
    (title, marks): &Shown,
    measured: &[Measured<'_>],
    stands_out: &str,
    of: &str,
) -> Option<Part> {
    let find = |name: &str, medium: &str| {
        measured.iter().find(|(case, place, _)| case == name && *place == medium)
    };
    let first = [TMPFS, DISK].iter().find_map(|medium| find(marks[0].0, medium))?;
    let names: Vec<&str> = first.2.iter().map(|series| series.contender.name.as_str()).collect();
    let rate = |case: Option<&Measured<'_>>, name: &str| {
        middle(case?.2.iter().find(|series| series.contender.name == name)?, "rate")
    };
    let panels = [TMPFS, DISK].into_iter().filter(|medium| find(marks[0].0, medium).is_some());
    let panels = panels.map(|medium| DotPanel {
        title: medium.into(),
        x: "requests in a second".into(),
        marks: marks
            .iter()
            .map(|(case, legend)| Marks {
                name: (*legend).into(),
                values: names.iter().map(|name| rate(find(case, medium), name)).collect(),
            })
            .collect(),
        x_least: 0.0,
        has_powers: true,
        digits: 0,
    });
    let row =
        |name: &&str| DotRow { name: name.replace('\n', " "), stands_out: *name == stands_out };
    Some(Part::Dots(Dots {
        title: (*title).into(),
        subtitle: of.into(),
        rows: names.iter().map(row).collect(),
        panels: panels.collect(),
    }))
}

#[cfg(test)]
mod tests {
    use super::super::list::{Sizes, cases};
    use super::*;
    use serde_json::json;
    use spandrel_measure::contender::Contender;

    fn series(name: &str, rate: f64) -> Series {
        Series {
            contender: Contender { name: name.into(), ..Contender::system() },
            samples: vec![json!({"rate": rate})],
            failed: None,
        }
    }

    #[test]
    fn a_part_for_each_figure_that_was_measured() {
        let all = cases(&["fill", "updates"], &Sizes::at(0.01));
        let outcomes: Vec<Outcome> = all
            .into_iter()
            .map(|case| {
                let series = vec![series(STATE, 1.2e6), series("leveldb", 4321.0)];
                Outcome { case, medium: DISK, series }
            })
            .collect();
        let picture = of(&outcomes, &[], "medians of 3 rounds").unwrap();
        assert_eq!(picture.0.len(), 2);
        let svg = picture.svg().unwrap();
        for part in ["leveldb", STATE, "in any order", "1.2 M", "4.3 k", "100 k", "disk", "all get"]
        {
            assert!(svg.contains(part), "{part}");
        }
        assert!(!svg.contains("tmpfs"));
        assert!(of(&[], &[], "").is_none());
    }
}
