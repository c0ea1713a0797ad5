//! Fig. 12: nothing but spans of 1.1 MiB. On huge pages of their own each leaves 0.9 MiB that no
//! other fits into; regions pack them across.

use super::{Drawn, no_room, on_fresh};
use crate::error::Error;
use crate::kernel::Kernel;
use crate::plot::{Chart, Line};
use spandrel_pageheap::{PageHeap, Request, Settings, Stats};
use spandrel_pages::{GIB, Length};

/// 1.1 MiB.
const SPAN: Length = Length(141);
const SPANS: u32 = 8_000;

struct Course {
    live: Vec<(f64, f64)>,
    resident: Vec<(f64, f64)>,
    end: Stats,
}

fn simulate(region_slack: Length) -> Result<Course, Error> {
    let settings = Settings { region_slack, ..Settings::DEFAULT };
    on_fresh(2 * SPANS as usize, settings, |mut heap: PageHeap| {
        let mut kernel = Kernel::default();
        let (mut live, mut resident) = (Vec::new(), Vec::new());
        for n in 1..=SPANS {
            heap.allocate(&mut kernel, n.into(), Request::pages(SPAN)).ok_or_else(no_room)?;
            if n % 20 == 0 {
                let stats = heap.stats();
                let gib = |pages: Length| pages.bytes() as f64 / GIB as f64;
                live.push((n.into(), gib(stats.live)));
                resident.push((n.into(), gib(stats.resident())));
            }
        }
        Ok(Course { live, resident, end: heap.stats() })
    })
}

pub(super) fn draw() -> Result<Drawn, Error> {
    let with = simulate(Settings::DEFAULT.region_slack)?;
    let without = simulate(Length::MAX)?;
    let title = "Fig. 12: slack behind spans of 1.1 MiB";
    let about = format!("{SPANS} spans of {} pages, and nothing else", SPAN.0);
    let ratio = |course: &Course| f64::from(course.end.resident().0) / f64::from(course.end.live.0);
    let row = |name: &str, course: &Course| {
        let gib = |pages: Length| format!("{:.2} GiB", pages.bytes() as f64 / GIB as f64);
        let (live, resident) = (course.end.live, course.end.resident());
        let regions = course.end.regions.to_string();
        vec![name.into(), gib(live), gib(resident), format!("{:.3}", ratio(course)), regions]
    };
    let line = |name: &str, points: Vec<(f64, f64)>, area| Line { name: name.into(), points, area };
    let header = ["", "live", "resident", "resident/live", "regions"];
    Ok(Drawn {
        name: "figure-12",
        title: title.into(),
        header: header.map(String::from).into(),
        rows: vec![row("with regions", &with), row("without", &without)],
        findings: vec![format!(
            "The first {:.0} MiB of slack come before the first region; what is packed in regions loses next to nothing.",
            Settings::DEFAULT.region_slack.bytes() as f64 / (1 << 20) as f64
        )],
        chart: Chart::single(
            title,
            &about,
            "spans",
            "memory (GiB)",
            0.0,
            vec![
                line("live", with.live, true),
                line("resident with regions", with.resident, false),
                line("resident without", without.resident, false),
            ],
        ),
        about,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_end_the_slack() {
        let end = |slack| simulate(slack).unwrap().end;
        let ratio = |end: Stats| f64::from(end.resident().0) / f64::from(end.live.0);
        assert!(ratio(end(Settings::DEFAULT.region_slack)) < 1.02);
        assert!(ratio(end(Length::MAX)) > 1.8);
    }
}
