//! Fig. 10: demand for huge pages that swings by much and fast. What it swung by in the last two
//! seconds is kept, so that a first drop gives memory back and a swing does not.

use super::{Drawn, no_room, on_fresh};
use crate::error::Error;
use crate::kernel::Kernel;
use crate::plot::{Chart, Line};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use spandrel_pageheap::{PageHeap, Request, Settings, Span};
use spandrel_pages::{HUGEPAGE_BYTES, HugeLength, Length, MIB};

const LOW: u32 = 200;
const HIGH: u32 = 1000;
/// It rises to its peak, stays, sinks slowly, and stays low.
const PEAK_MS: u64 = 2_000;
const SINKS_MS: u64 = 5_000;
const LOW_MS: u64 = 9_000;
/// From then on it swings.
const SWINGS_MS: u64 = 12_000;
const PERIOD_MS: u64 = 1_000;
const STILL_MS: u64 = 24_000;
const END_MS: u64 = 30_000;

/// Huge pages that are wanted at a time.
fn wanted(now_ms: u64) -> u32 {
    let part = |done: u64, of: u64| (u64::from(HIGH - LOW) * done / of) as u32;
    match now_ms {
        t if t < PEAK_MS => (u64::from(HIGH) * t / PEAK_MS) as u32,
        t if t < SINKS_MS => HIGH,
        t if t < LOW_MS => HIGH - part(t - SINKS_MS, LOW_MS - SINKS_MS),
        t if (SWINGS_MS..STILL_MS).contains(&t) => {
            LOW + part((t - SWINGS_MS) % PERIOD_MS, PERIOD_MS)
        }
        _ => LOW,
    }
}

#[derive(Default)]
struct Course {
    demand: Vec<(f64, f64)>,
    backed: Vec<(f64, f64)>,
    limit: Vec<(f64, f64)>,
    /// Huge pages that were fetched from the kernel while demand swung, after its first rise.
    refetched: u64,
    /// Those that demand rose by meanwhile.
    risen: u64,
    given_back_when_sinking: u64,
    /// The longest time in which more was kept than demand had swung by.
    longest_over_limit_ms: u64,
}

fn simulate() -> Result<Course, Error> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(10);
    on_fresh(16 * HIGH as usize, Settings::DEFAULT, |mut heap: PageHeap| {
        let mut kernel = Kernel::default();
        let (mut course, mut spans, mut used) = (Course::default(), Vec::<Span>::new(), 0);
        let (mut history, mut before, mut over_ms) = (Vec::<u32>::new(), 0, 0);
        for now_ms in 0..END_MS {
            let wanted = wanted(now_ms);
            while used < wanted {
                let count = random.random_range(1..=8).min(wanted - used);
                let request = Request::pages(HugeLength(count).pages());
                spans.push(heap.allocate(&mut kernel, now_ms, request).ok_or_else(no_room)?);
                used += count;
            }
            while used > wanted + 8 || (used > wanted && wanted == LOW) {
                let span = spans.swap_remove(random.random_range(0..spans.len()));
                used -= span.pages.hugepages_up().0;
                heap.free(&mut kernel, now_ms, span.first, span.pages);
            }
            heap.step(&mut kernel, now_ms, Length::ZERO);
            history.push(used);
            let window = &history[history.len().saturating_sub(2000)..];
            let swing = window.iter().max().unwrap_or(&0) - window.iter().min().unwrap_or(&0);
            let limit = swing.max(Settings::DEFAULT.cache_least.0);
            let cached = heap.stats().cached.0;
            over_ms = if cached > limit { over_ms + 1 } else { 0 };
            course.longest_over_limit_ms = course.longest_over_limit_ms.max(over_ms);
            let fetched = kernel.calls.backed_hugepages;
            if now_ms == LOW_MS {
                course.given_back_when_sinking = kernel.calls.unbacked_pages / 256;
            }
            if (SWINGS_MS + PERIOD_MS..STILL_MS).contains(&now_ms) {
                course.refetched += fetched - before;
                course.risen += u64::from(wanted.saturating_sub(self::wanted(now_ms - 1)));
            }
            before = fetched;
            if now_ms % 10 == 0 {
                let gib =
                    |count: u32| f64::from(count) * HUGEPAGE_BYTES as f64 / (1024 * MIB) as f64;
                let seconds = now_ms as f64 / 1000.0;
                course.demand.push((seconds, gib(used)));
                course.backed.push((seconds, gib(used + cached)));
                course.limit.push((seconds, gib(used + limit)));
            }
        }
        Ok(course)
    })
}

pub(super) fn draw() -> Result<Drawn, Error> {
    let course = simulate()?;
    let title = "Fig. 10: saw-toothed demand on the cache of empty huge pages";
    let about = format!(
        "demand between {LOW} and {HIGH} huge pages: slow fall from {} s, teeth of {} s from {} to {} s",
        SINKS_MS / 1000,
        PERIOD_MS / 1000,
        SWINGS_MS / 1000,
        STILL_MS / 1000
    );
    let line = |name: &str, points: Vec<(f64, f64)>, area| Line { name: name.into(), points, area };
    let count = |value: u64| value.to_string();
    Ok(Drawn {
        name: "figure-10",
        title: title.into(),
        header: ["", "huge pages"].map(String::from).into(),
        rows: vec![
            vec![
                "given back when demand first sinks".into(),
                count(course.given_back_when_sinking),
            ],
            vec!["demand rose by, in all teeth but the first".into(), count(course.risen)],
            vec!["of these fetched from the kernel".into(), count(course.refetched)],
        ],
        findings: vec![format!(
            "What demand lost slowly is given back; what it swings by is kept from the first tooth on, and goes \
             back two seconds after the last. Never is more kept than demand swung by in two seconds for longer \
             than {} ms: the window moves in steps of 125 ms.",
            course.longest_over_limit_ms
        )],
        chart: Chart::single(
            title,
            &about,
            "simulated time (s)",
            "memory (GiB)",
            0.0,
            vec![
                line("demand", course.demand, true),
                line("demand and limit of the cache", course.limit, false),
                line("backed", course.backed, false),
            ],
        ),
        about,
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_swing_is_kept_and_a_fall_is_not() {
        let course = super::simulate().unwrap();
        assert_eq!(course.refetched, 0);
        assert!(course.risen > 8_000);
        assert!(course.given_back_when_sinking > 300, "{}", course.given_back_when_sinking);
    }
}
