//! What the layer adds to a pair of malloc and free: the owner lookup and the
//! jump to the allocator, measured inside the worker against the bare allocator.

use crate::asked::Asked;
use crate::report::Section;
use crate::report::target::Verdict;
use crate::suite::{Bench, Prepared, Suite};
use serde_json::Value;
use spandrel_console::Failure;
use spandrel_console::progress::Progress;
use spandrel_console::terminal::table;
use spandrel_measure::rounds;
use spandrel_report::numbers::median;

/// The number that the target is about.
const KEY: &str = "dispatch_ns_per_pair";
/// Target A5.
const LIMIT_NS: f64 = 1.0;

/// The suite `dispatch`.
pub struct Dispatch;

impl Suite for Dispatch {
    fn name(&self) -> &'static str {
        "dispatch"
    }

    fn about(&self) -> &'static str {
        "what finding the owner of a pointer costs"
    }

    fn prepare(&self, _: &Asked) -> Result<Prepared, Failure> {
        Ok(Box::new(run))
    }
}

fn run(bench: &Bench, progress: &Progress) -> Result<Section, Failure> {
    let mut section =
        Section::new("dispatch", "owner lookup and dispatch, per pair of malloc and free");
    // The worker carries the layer itself: nothing is preloaded.
    let system = std::slice::from_ref(bench.system()?);
    let all = rounds::in_turns(system, bench.runs, progress, "dispatch", |contender| {
        rounds::worker(&bench.worker, contender, &["dispatch"])
    });
    let Some(series) = all.into_iter().next() else {
        return Ok(section);
    };
    if let Some(why) = series.failed {
        section.notes.push(format!("not measured: {why}"));
        return Ok(section);
    }
    if let Some(Value::Object(sample)) = series.samples.last() {
        let mut table = table::new(&["figure", "median", "last round"].map(String::from));
        for (name, value) in sample {
            if let (Some(last), Some(median)) = (value.as_f64(), median(&series.values(name))) {
                let cells = vec![name.clone(), format!("{median:.3}"), format!("{last:.3}")];
                table::add(&mut table, false, cells);
            }
        }
        section.tables.push(table.to_string());
    }
    if let Some(value) = median(&series.values(KEY)) {
        let what = "owner lookup and dispatch".to_string();
        section.verdicts.push(Verdict::new("A5", what, value, LIMIT_NS, " ns"));
    }
    section.data = series.samples.into();
    Ok(section)
}
