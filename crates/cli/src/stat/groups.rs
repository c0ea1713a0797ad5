//! `spandrel stat --compare-groups`: how processes on a variant did beside those that were not.

use crate::stats::Stats;
use serde_json::{Value, json};
use spandrel_console::Failure;
use spandrel_console::terminal::table;
use spandrel_console::{files, say};
use spandrel_report::numbers::{bytes, count, digits, median, middle_between, time};
use std::collections::BTreeMap;
use std::path::Path;

/// A number of a process.
struct Measure {
    name: &'static str,
    of: fn(&Stats) -> Option<f64>,
    show: fn(f64) -> String,
}

fn native(stats: &Stats, figure: &str) -> Option<f64> {
    stats.native.get(figure).map(|value| *value as f64)
}

/// More than a file of statistics has.
const STATISTICS_MAX: usize = 64 << 20;

const MEASURES: [Measure; 7] = [
    Measure {
        name: "processor time",
        of: |stats| Some(stats.usage.cpu_us as f64 * 1e3),
        show: time,
    },
    Measure { name: "peak memory", of: |stats| Some(stats.usage.peak_bytes as f64), show: bytes },
    Measure {
        name: "page faults",
        of: |stats| Some(stats.usage.faults as f64),
        show: |faults| count(faults as u64),
    },
    Measure {
        name: "requests",
        of: |stats| Some(stats.requests.iter().map(|row| row.count()).sum::<u64>() as f64),
        show: |requests| count(requests as u64),
    },
    Measure {
        name: "bytes copied by realloc",
        of: |stats| Some(stats.realloc.copied_bytes as f64),
        show: bytes,
    },
    Measure {
        name: "native heap, resident at the end",
        of: |stats| native(stats, "resident_bytes"),
        show: bytes,
    },
    Measure {
        name: "of its spans on huge pages, %",
        of: |stats| {
            let live = native(stats, "live_bytes").filter(|live| *live > 0.0)?;
            Some(100.0 * native(stats, "covered_bytes")? / live)
        },
        show: digits,
    },
];

/// The processes of an experiment, by group.
#[derive(Default)]
struct Groups {
    control: Vec<Stats>,
    variant: Vec<Stats>,
}

/// Compares the groups of each experiment and program that the directory has statistics of.
pub fn run(directory: &Path, as_json: bool) -> Result<u8, Failure> {
    let (experiments, strangers) = read(directory)?;
    if as_json {
        let all: Vec<Value> = experiments
            .iter()
            .map(|((experiment, program), groups)| {
                let measures: Vec<Value> =
                    MEASURES.iter().map(|measure| measure.json(groups)).collect();
                json!({
                    "experiment": experiment,
                    "program": program,
                    "control": groups.control.len(),
                    "variant": groups.variant.len(),
                    "measures": measures,
                })
            })
            .collect();
        return say::out(Value::from(all)).map(|()| 0);
    }
    for ((experiment, program), groups) in &experiments {
        let (control, variant) = (groups.control.len(), groups.variant.len());
        say::out(format_args!(
            "{experiment}: {program}, {} processes of the control and {} of the variant, medians",
            count(control as u64),
            count(variant as u64),
        ))?;
        let header = ["", "control", "variant", "variant to control", "differ"];
        let mut rows = table::new(&header.map(String::from));
        for measure in &MEASURES {
            table::add(&mut rows, false, measure.row(groups));
        }
        say::out(rows)?;
    }
    say::out(table::wrap(
        "differ: where the middle of a group lies with a probability of 95 %, which takes six \
         processes, the other's does not",
    ))?;
    if strangers > 0 {
        say::out(table::wrap(&format!(
            "{} other files have no experiment, or are no statistics",
            count(strangers)
        )))?;
    }
    Ok(0)
}

type Experiments = BTreeMap<(String, String), Groups>;

/// By experiment and program; and how many files are neither group's.
fn read(directory: &Path) -> Result<(Experiments, u64), Failure> {
    let refuse = |why: &dyn std::fmt::Display| {
        Failure::refused(format!(
            "--compare-groups: '{}': {why}; run the programs with \
             SPANDREL_EXPERIMENT=NAME:PERCENT and SPANDREL_STATS=DIR/%h-%p.json and name the \
             directory",
            directory.display()
        ))
    };
    let (mut experiments, mut strangers, mut broken) = (Experiments::new(), 0, None);
    for entry in std::fs::read_dir(directory).map_err(|why| refuse(&why))? {
        let path = entry.map_err(|why| refuse(&why))?.path();
        if path.extension().is_none_or(|end| end != "json") {
            continue;
        }
        let text = files::read(&path, STATISTICS_MAX).map_err(|why| why.to_string());
        let text = text.and_then(|text| String::from_utf8(text).map_err(|why| why.to_string()));
        let stats = match text.and_then(|text| Stats::parse(&text)) {
            Ok(stats) if !stats.experiment.is_empty() => stats,
            read => {
                strangers += 1;
                broken = broken.or_else(|| Some((path, read.err()?)));
                continue;
            }
        };
        let key = (stats.experiment.clone(), stats.program.clone());
        let groups = experiments.entry(key).or_default();
        match stats.group.as_str() {
            "variant" => groups.variant.push(stats),
            _ => groups.control.push(stats),
        }
    }
    if experiments.is_empty() {
        let such_as = broken.map(|(path, why)| format!(" ('{}': {why})", path.display()));
        let such_as = such_as.unwrap_or_default();
        return Err(refuse(&format_args!("no statistics of an experiment{such_as}")));
    }
    Ok((experiments, strangers))
}

impl Measure {
    fn values(&self, of: &[Stats]) -> Vec<f64> {
        of.iter().filter_map(self.of).collect()
    }

    /// Whether the groups differ for certain; `None`: there are too few to tell.
    fn differ(&self, groups: &Groups) -> Option<bool> {
        let (low, high) = middle_between(&self.values(&groups.control))?;
        let (other_low, other_high) = middle_between(&self.values(&groups.variant))?;
        Some(high < other_low || other_high < low)
    }

    fn medians(&self, groups: &Groups) -> (Option<f64>, Option<f64>) {
        (median(&self.values(&groups.control)), median(&self.values(&groups.variant)))
    }

    fn ratio(&self, groups: &Groups) -> Option<f64> {
        let (control, variant) = self.medians(groups);
        Some(variant? / control.filter(|control| *control > 0.0)?)
    }

    fn row(&self, groups: &Groups) -> Vec<String> {
        let (control, variant) = self.medians(groups);
        let shown = |value: Option<f64>| value.map_or(table::NOTHING.into(), self.show);
        let differ = match self.differ(groups) {
            Some(true) => "yes",
            Some(false) => "no",
            None => table::NOTHING,
        };
        let ratio = self.ratio(groups).map_or(table::NOTHING.into(), digits);
        vec![self.name.into(), shown(control), shown(variant), ratio, differ.into()]
    }

    fn json(&self, groups: &Groups) -> Value {
        let (control, variant) = self.medians(groups);
        json!({
            "name": self.name,
            "control": control,
            "variant": variant,
            "ratio": self.ratio(groups),
            "differ": self.differ(groups),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spandrel_report::Usage;

    fn process(group: &str, cpu_us: u64) -> Stats {
        Stats {
            experiment: "lazy".into(),
            group: group.into(),
            usage: Usage { cpu_us, peak_bytes: 4096, faults: 0 },
            ..Stats::default()
        }
    }

    #[test]
    fn groups_differ_when_their_middles_do() {
        let mut groups = Groups {
            control: (0..9).map(|n| process("control", 100 + n)).collect(),
            variant: (0..9).map(|n| process("variant", 200 + n)).collect(),
        };
        let [cpu, peak, faults, ..] = &MEASURES;
        assert_eq!(cpu.row(&groups)[1..], ["104 µs", "204 µs", "1.96", "yes"]);
        assert_eq!(peak.row(&groups)[1..], ["4.00 KiB", "4.00 KiB", "1.00", "no"]);
        assert_eq!(faults.row(&groups)[1..], ["0", "0", "–", "no"]);
        assert_eq!(MEASURES[5].row(&groups)[1..], ["–", "–", "–", "–"]);
        groups.variant.truncate(5);
        assert_eq!((cpu.differ(&groups), &cpu.json(&groups)["differ"]), (None, &Value::Null));
    }

    #[test]
    fn what_is_no_experiment_is_counted_or_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        let failure = read(directory.path()).err().unwrap();
        assert!(failure.code == 2 && failure.message.contains("SPANDREL_EXPERIMENT"));
        assert_eq!(read(&file("none")).err().unwrap().code, 2);
        std::fs::write(file("b.json"), "{").unwrap();
        assert!(read(directory.path()).err().unwrap().message.contains("b.json"));
        std::fs::write(
            file("a.json"),
            serde_json::to_string(&Stats { format: 1, ..process("variant", 1) }).unwrap(),
        )
        .unwrap();
        std::fs::write(file("c.txt"), "").unwrap();
        let (experiments, strangers) = read(directory.path()).unwrap();
        assert_eq!((experiments.len(), strangers), (1, 1));
    }
}
