//! The loop at the end of 4.4: a span of 100 MiB and a page, a single page, and the large one goes
//! again. If single pages took the tails of large spans, each would end up alone on a huge page.

use super::{Drawn, no_room, on_fresh};
use crate::error::Error;
use crate::kernel::Kernel;
use crate::plot::{Chart, Line};
use spandrel_pageheap::{PageHeap, Request, Settings};
use spandrel_pages::{HEAP_PAGES_PER_HUGEPAGE, Length};

const ROUNDS: u32 = 2_000;
const LARGE: Length = Length(100 * 128 + 1);
const ONE: Length = Length(1);

/// Huge pages that are partly used at the end of each round.
fn simulate() -> Result<Vec<u32>, Error> {
    on_fresh(1024, Settings::DEFAULT, |mut heap: PageHeap| {
        let mut kernel = Kernel::default();
        let mut rounds = Vec::new();
        for n in 0..ROUNDS {
            let now_ms = n.into();
            let large =
                heap.allocate(&mut kernel, now_ms, Request::pages(LARGE)).ok_or_else(no_room)?;
            heap.allocate(&mut kernel, now_ms, Request::pages(ONE)).ok_or_else(no_room)?;
            heap.free(&mut kernel, now_ms, large.first, large.pages);
            rounds.push(heap.stats().filler.0);
        }
        Ok(rounds)
    })
}

pub(super) fn draw() -> Result<Drawn, Error> {
    let rounds = simulate()?;
    let end = rounds.last().copied().unwrap_or(0);
    let least = ROUNDS.div_ceil(HEAP_PAGES_PER_HUGEPAGE);
    let title = "Donated tails: a loop that would scatter single pages";
    let about =
        format!("{ROUNDS} rounds of New(100 MiB + 8 KiB), New(8 KiB), Delete of the large one");
    let line = |name: &str, value: &dyn Fn(u32) -> f64| Line {
        name: name.into(),
        points: (1..=ROUNDS).step_by(10).map(|n| (f64::from(n), value(n))).collect(),
        area: false,
    };
    let row = |name: &str, hugepages: u32| {
        vec![
            name.into(),
            hugepages.to_string(),
            format!("{:.1}", f64::from(ROUNDS) / f64::from(hugepages.max(1))),
        ]
    };
    Ok(Drawn {
        name: "donation",
        title: title.into(),
        header: ["", "huge pages", "single pages on each"].map(String::from).into(),
        rows: vec![
            row("tails are used last (ours)", end),
            row("tails are used first (by arithmetic)", ROUNDS),
            row("the least that hold the pages", least),
        ],
        findings: vec![format!(
            "{ROUNDS} single pages end up on {end} huge pages, of which {least} are needed; taking the tail of the \
             large span would leave one page on each of {ROUNDS}."
        )],
        chart: Chart::single(
            title,
            &about,
            "rounds",
            "partly used huge pages",
            10.0,
            vec![
                line("tails are used last (ours)", &|n| rounds[n as usize - 1].into()),
                line("tails are used first (by arithmetic)", &f64::from),
            ],
        ),
        about,
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn single_pages_lie_together() {
        let rounds = super::simulate().unwrap();
        assert!(rounds.last().is_some_and(|end| *end <= 9), "{:?}", rounds.last());
    }
}
