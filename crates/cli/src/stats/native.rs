//! The native allocator's memory in words: where it is, what went back, what was mended.

use spandrel_console::terminal::Stream;
use spandrel_console::terminal::table::{share, wrap_on};
use spandrel_pages::Figure;
use spandrel_report::numbers::{bytes, count, counted};
use std::fmt::Write;

/// Objects up to this come out of the caches of processors.
pub const CACHED_MOST: u64 = 256 << 10;

/// Some lines, each of one subject; subjects of which there is nothing to say are left out. `requests`: how
/// many objects of up to [`CACHED_MOST`] bytes were made, if that was counted.
pub fn lines(on: Stream, value: &dyn Fn(Figure) -> u64, requests: Option<u64>) -> String {
    let size = |figure| bytes(value(figure) as f64);
    let mut text = String::new();
    let mut say = |line: String| {
        let _ = writeln!(text, "{}", wrap_on(on, &line).trim_end());
    };
    let free = [Figure::InCaches, Figure::InTransfer, Figure::InSpans].map(value);
    let objects = value(Figure::Live).saturating_sub(free.iter().sum());
    let of_these = match value(Figure::InEmptySpans) {
        0 => String::new(),
        _ => format!(", of these {} in empty spans", size(Figure::InEmptySpans)),
    };
    if value(Figure::FromKernel) + value(Figure::Live) + value(Figure::Free) > 0 {
        say(format!(
            "native: {} live in {} of {}, {} of these on whole huge pages; free in them: {} in \
             caches of processors, {} between these, {} in neither{of_these}",
            bytes(objects as f64),
            counted(value(Figure::Spans), "span", "spans"),
            size(Figure::Live),
            share(value(Figure::Covered), value(Figure::Live)),
            size(Figure::InCaches),
            size(Figure::InTransfer),
            size(Figure::InSpans),
        ));
        say(format!(
            "beside them: {} empty and kept, {} free on huge pages in use, touched or not; gone back: {} \
             of these huge pages, {} of empty ones",
            size(Figure::Cached),
            size(Figure::Free),
            size(Figure::Unbacked),
            size(Figure::Vacant),
        ));
    }
    let held = value(Figure::Resident) + value(Figure::Tables);
    if held > 0 {
        let peak = match value(Figure::PeakResident) {
            0 => String::new(),
            peak => format!(
                ", and {:.2} when {} were, the most that was seen",
                peak as f64 / value(Figure::PeakLive).max(1) as f64,
                size(Figure::PeakLive),
            ),
        };
        say(format!(
            "resident: {}, and {} of tables and caches, {} of these the page heap's records; {:.2} \
             bytes for each live one{peak}",
            size(Figure::Resident),
            size(Figure::Tables),
            size(Figure::PageHeap),
            held as f64 / objects.max(1) as f64,
        ));
    }
    if value(Figure::Cached) + value(Figure::Free) > 0 {
        let rest = match value(Figure::ReleaseRate) {
            0 => "nothing else goes by itself".into(),
            rate => format!(
                "the rest goes at {rate} MiB/s at most, where it fills enough of a huge page"
            ),
        };
        say(format!(
            "held back: {} empty, as much as demand swung by lately; of the free, {} that demand of \
             the last {} s may want; {rest}",
            size(Figure::Cached),
            size(Figure::KeptForDemand),
            value(Figure::Patience),
        ));
    }
    if value(Figure::MappedLive) + value(Figure::MappedWarm) > 0 {
        say(format!(
            "page-mapped: {} live, {} kept for the next",
            size(Figure::MappedLive),
            size(Figure::MappedWarm),
        ));
    }
    let reasons = [
        (Figure::ReleasedDemand, "beyond demand"),
        (Figure::ReleasedBackground, "in the background"),
        (Figure::ReleasedDrained, "drained"),
        (Figure::ReleasedAsked, "asked for"),
        (Figure::ReleasedPressure, "under pressure"),
    ];
    let released: Vec<String> = reasons
        .iter()
        .filter(|(figure, _)| value(*figure) > 0)
        .map(|(figure, why)| format!("{} {why}", size(*figure)))
        .collect();
    if !released.is_empty() {
        say(format!(
            "gave back so far: {}; {} of it from huge pages in use, {} wanted again",
            released.join(", "),
            size(Figure::Subreleased),
            size(Figure::WantedAgain),
        ));
    }
    if value(Figure::BrokenSoFar) + value(Figure::BegunSmall) > 0 {
        let attempts = value(Figure::CollapseAttempts);
        say(format!(
            "huge pages: {} of {} in small pages now; broken so far: {}; {} began so, as whole \
             ones took long; {} made whole in {} ({} failed), \
             {:.2} ms each, {:.1} ms at most",
            count(value(Figure::Broken)),
            count(value(Figure::Filler)),
            count(value(Figure::BrokenSoFar)),
            count(value(Figure::BegunSmall)),
            count(value(Figure::Restored)),
            counted(attempts, "attempt", "attempts"),
            count(value(Figure::CollapseFailures)),
            value(Figure::CollapseMicros) as f64 / 1e3 / attempts.max(1) as f64,
            value(Figure::CollapseMaxMicros) as f64 / 1e3,
        ));
    }
    if value(Figure::Regions) + value(Figure::Slack) + value(Figure::Abandoned) > 0 {
        say(format!(
            "large spans: {} of slack behind them, {} left by those that went; {} in {}",
            size(Figure::Slack),
            size(Figure::Abandoned),
            size(Figure::RegionLive),
            counted(value(Figure::Regions), "region", "regions"),
        ));
    }
    let limits: Vec<String> = [(Figure::HardLimit, "hard"), (Figure::SoftLimit, "soft")]
        .iter()
        .filter(|(figure, _)| value(*figure) > 0)
        .map(|(figure, kind)| format!("{} {kind}", size(*figure)))
        .collect();
    if !limits.is_empty() {
        say(format!(
            "limit of a process: {}; {} held, with what is page-mapped; {} beyond it",
            limits.join(", "),
            size(Figure::Held),
            counted(value(Figure::OverLimit), "request was", "requests were"),
        ));
    }
    let refills = value(Figure::TransferHits) + value(Figure::TransferMisses);
    let hits = requests.filter(|requests| *requests > refills).map(|requests| {
        format!("{} of requests from caches of processors; ", share(requests - refills, requests))
    });
    let least = value(Figure::CacheHits);
    let hits = hits.or_else(|| {
        let share = share(least, least + refills);
        (least > 0).then(|| format!("at least {share} of requests from caches of processors; "))
    });
    let of = if hits.is_some() { "these" } else { "the caches of processors" };
    let hugepages = value(Figure::FromCache) + value(Figure::FromKernel);
    if refills + hugepages > 0 {
        say(format!(
            "served: {}{} of {of}, {} from other caches, the rest from spans; {}, {} from those kept",
            hits.unwrap_or_default(),
            counted(refills, "refill", "refills"),
            share(value(Figure::TransferHits), refills),
            counted(hugepages, "huge page", "huge pages"),
            share(value(Figure::FromCache), hugepages),
        ));
    }
    if value(Figure::BackgroundMicros) > 0 {
        say(format!(
            "work beside the program so far: {:.1} ms of processor time",
            value(Figure::BackgroundMicros) as f64 / 1e3,
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_documented() {
        let document = include_str!("../../../../docs/statistics.md");
        for figure in Figure::ALL {
            assert!(document.contains(&format!("| `{}` |", figure.name())), "{}", figure.name());
        }
    }

    #[test]
    fn what_there_is_is_said() {
        let value = |figure| match figure {
            Figure::Live => 64 << 20,
            Figure::Spans => 1,
            Figure::Covered => 32 << 20,
            Figure::InSpans => 4 << 20,
            Figure::InEmptySpans => 1 << 20,
            Figure::MappedLive => 5 << 20,
            Figure::ReleasedBackground => 1 << 20,
            Figure::BrokenSoFar => 3,
            Figure::SoftLimit => 128 << 20,
            Figure::OverLimit => 7,
            Figure::Resident => 63 << 20,
            Figure::Tables => 1 << 20,
            Figure::PageHeap => 64 << 10,
            Figure::PeakResident => 80 << 20,
            Figure::PeakLive => 64 << 20,
            Figure::CacheHits => 190,
            Figure::KeptForDemand => 3 << 20,
            Figure::Free => 10 << 20,
            Figure::Patience => 5,
            Figure::TransferHits => 5,
            Figure::TransferMisses => 5,
            Figure::FromCache => 1,
            Figure::FromKernel => 3,
            Figure::BackgroundMicros => 1500,
            Figure::Slack => 2 << 20,
            _ => 0,
        };
        let text = lines(Stream::Out, &value, Some(1000));
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for expected in [
            "60.0 MiB live",
            "in 1 span of 64.0 MiB",
            "50.0% of these",
            "4.00 MiB in neither, of these 1.00 MiB in empty spans",
            "1.00 MiB of tables and caches, 64.0 KiB of these the page heap's records; 1.07 bytes for each \
             live one, and 1.25 when 64.0 MiB were, the most",
            "3.00 MiB that demand of the last 5 s may want; nothing else",
            "99.0% of requests from caches",
            "4 huge pages, 25.0% from those kept",
            "1.5 ms of processor time",
            "2.00 MiB of slack",
            "page-mapped: 5.00 MiB live",
            "1.00 MiB in the background",
            "broken so far: 3;",
            "limit of a process: 128 MiB soft;",
            "7 requests",
        ] {
            assert!(words.contains(expected), "{expected} is missing in\n{text}");
        }
        assert!(!text.contains("asked for"), "{text}");
        let uncounted = lines(Stream::Out, &value, None);
        assert!(
            uncounted.contains(
                "served: at least 95.0% of requests from caches of processors; 10 refills"
            ),
            "{uncounted}"
        );
        assert!(text.lines().all(|line| line.chars().count() <= 101), "{text}");
    }
}
