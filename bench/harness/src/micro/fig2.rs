//! The paper's Fig. 2: the time of each reallocation and the filling after it, as
//! an object doubles from 4 KiB to 128 KiB (a) and to 2 GiB (b).

use crate::asked::Asked;
use crate::report::Section;
use crate::suite::{Bench, Prepared, Suite};
use serde_json::{Value, json};
use spandrel_console::Failure;
use spandrel_console::progress::Progress;
use spandrel_console::terminal::table;
use spandrel_measure::rounds::Series;
use spandrel_report::numbers::{median, time, whole};

/// Allocators per table, so that it fits a terminal.
const COLUMNS: usize = 6;

/// The suite `fig2`.
pub struct Fig2;

impl Suite for Fig2 {
    fn name(&self) -> &'static str {
        "fig2"
    }

    fn about(&self) -> &'static str {
        "time of each reallocation (Brug, Fig. 2)"
    }

    fn prepare(&self, _: &Asked) -> Result<Prepared, Failure> {
        Ok(Box::new(run))
    }
}

fn run(bench: &Bench, progress: &Progress) -> Result<Section, Failure> {
    let mut section = Section::new("fig2", "time of each reallocation and filling (Brug, Fig. 2)");
    let large = if bench.quick { "256MiB" } else { "2GiB" };
    let parts = [
        ("a", ["realloc", "--steps", "--to", "128KiB", "--cycles", "5000"]),
        ("b", ["realloc", "--steps", "--to", large, "--cycles", "1"]),
    ];
    let mut data = Vec::new();
    for (part, words) in parts {
        let series = bench.measure(progress, &format!("fig2 ({part})"), &words);
        let curves: Vec<Curve> = series.iter().map(Curve::of).collect();
        for some in curves.chunks(COLUMNS) {
            section.tables.push(draw(part, some));
        }
        data.push(
            json!({"part": part, "curves": curves.iter().map(Curve::json).collect::<Vec<_>>()}),
        );
    }
    section.data = data.into();
    Ok(section)
}

/// Medians of one allocator: (size, nanoseconds).
struct Curve {
    allocator: String,
    ours: bool,
    steps: Vec<(u64, f64)>,
}

impl Curve {
    fn of(series: &Series) -> Self {
        let runs: Vec<&Vec<Value>> =
            series.samples.iter().filter_map(|sample| sample.get("steps")?.as_array()).collect();
        let steps = runs.first().map_or(0, |steps| steps.len());
        let step = |at: usize| {
            let size = runs[0][at].get("size")?.as_u64()?;
            let times: Vec<f64> =
                runs.iter().filter_map(|run| run.get(at)?.get("wall_ns")?.as_f64()).collect();
            Some((size, median(&times)?))
        };
        Self {
            allocator: series.contender.name.clone(),
            ours: series.contender.ours(),
            steps: (0..steps).filter_map(step).collect(),
        }
    }

    fn json(&self) -> Value {
        let steps: Vec<_> =
            self.steps.iter().map(|(size, ns)| json!({"size": size, "wall_ns": ns})).collect();
        json!({"allocator": self.allocator, "ours": self.ours, "steps": steps})
    }
}

fn draw(part: &str, curves: &[Curve]) -> String {
    let mut header = vec![format!("({part}) grown to")];
    header.extend(curves.iter().map(|curve| curve.allocator.clone()));
    let mut table = table::new(&header);
    let longest = curves.iter().max_by_key(|curve| curve.steps.len());
    for (at, (size, _)) in longest.map_or(&[][..], |curve| &curve.steps).iter().enumerate() {
        let mut cells = vec![whole(*size)];
        cells.extend(
            curves.iter().map(|curve| curve.steps.get(at).map_or("–".into(), |s| time(s.1))),
        );
        table::add(&mut table, false, cells);
    }
    let mut cells = vec!["total".to_string()];
    cells.extend(curves.iter().map(|curve| time(curve.steps.iter().map(|step| step.1).sum())));
    table::add(&mut table, true, cells);
    table.to_string()
}
