//! Fig. 9: `while (true) Delete(New(512KB))`. Every round drains a huge page; giving it back each
//! time would take a system call in each round.

use super::{Drawn, no_room, on_fresh};
use crate::error::Error;
use crate::kernel::Kernel;
use crate::plot::{Chart, Line};
use spandrel_pageheap::{PageHeap, Request, Settings, Urgency};
use spandrel_pages::{HugeLength, Length};

const ROUNDS: u64 = 20_000;
const PER_SECOND: u64 = 1000;
const SPAN: Length = Length(64);
const POINTS: u64 = 100;

/// System calls over rounds.
fn calls(least: u32, eager: bool) -> Result<Vec<(f64, f64)>, Error> {
    let settings = Settings { cache_least: HugeLength(least), ..Settings::DEFAULT };
    on_fresh(64, settings, |mut heap: PageHeap| {
        let mut kernel = Kernel::default();
        let mut points = Vec::new();
        for round in 0..ROUNDS {
            let now_ms = round * 1000 / PER_SECOND;
            let span =
                heap.allocate(&mut kernel, now_ms, Request::pages(SPAN)).ok_or_else(no_room)?;
            heap.free(&mut kernel, now_ms, span.first, span.pages);
            if eager {
                heap.release(&mut kernel, now_ms, Length::MAX, Urgency::Asked);
            }
            heap.step(&mut kernel, now_ms, Length::ZERO);
            if round % (ROUNDS / POINTS) == 0 || round + 1 == ROUNDS {
                points.push((round as f64 + 1.0, kernel.calls.total() as f64));
            }
        }
        Ok(points)
    })
}

pub(super) fn draw() -> Result<Drawn, Error> {
    let default = Settings::DEFAULT.cache_least.0;
    let variants = [
        ("given back at once", calls(0, true)?),
        ("kept by demand of two seconds", calls(0, false)?),
        ("the default: and ten at least", calls(default, false)?),
    ];
    let total = |points: &[(f64, f64)]| points.last().map_or(0.0, |point| point.1);
    let rows = variants.iter().map(|(name, points)| {
        let calls = total(points);
        vec![name.to_string(), format!("{calls:.0}"), format!("{:.5}", calls / ROUNDS as f64)]
    });
    let lines = variants.iter().map(|(name, points)| Line {
        name: name.to_string(),
        points: points.clone(),
        area: false,
    });
    let title = "Fig. 9: a loop that drains a huge page in every round";
    let about =
        format!("{ROUNDS} rounds of Delete(New(512 KiB)), {PER_SECOND} per simulated second");
    Ok(Drawn {
        name: "figure-9",
        title: title.into(),
        header: ["huge pages are", "system calls", "per round"].map(String::from).into(),
        rows: rows.collect(),
        findings: vec![format!(
            "Demand's swing of the last two seconds keeps the one huge page: {:.0} call in all instead of {:.0}.",
            total(&variants[1].1),
            total(&variants[0].1)
        )],
        chart: Chart::single(title, &about, "rounds", "system calls so far", 10.0, lines.collect()),
        about,
    })
}
