//! The native allocator's memory in words: where it is, what went back, what was mended.

use crate::bench::numbers::{bytes, count};
use crate::bench::table::{share, wrap};
use spandrel_pages::Figure;
use std::fmt::Write;

/// Some lines, each of one subject; subjects of which there is nothing to say are left out.
pub fn lines(value: &dyn Fn(Figure) -> u64) -> String {
    let size = |figure| bytes(value(figure) as f64);
    let mut text = String::new();
    let mut say = |line: String| {
        let _ = writeln!(text, "{}", wrap(&line).trim_end());
    };
    let free = [Figure::InCaches, Figure::InTransfer, Figure::InSpans].map(value);
    let objects = value(Figure::Live).saturating_sub(free.iter().sum());
    let held = [Figure::Live, Figure::Cached, Figure::Free].map(value).iter().sum::<u64>();
    say(format!(
        "native: {} live in {} spans of {}, {} of these on whole huge pages; free in them: {} in \
         caches of processors, {} between these, {} in neither",
        bytes(objects as f64),
        count(value(Figure::Spans)),
        size(Figure::Live),
        share(value(Figure::Covered), value(Figure::Live)),
        size(Figure::InCaches),
        size(Figure::InTransfer),
        size(Figure::InSpans),
    ));
    say(format!(
        "beside them: {} empty and kept, {} free on huge pages in use; gone back: {} of these huge \
         pages, {} of empty ones; held in all for each live byte: {:.2}",
        size(Figure::Cached),
        size(Figure::Free),
        size(Figure::Unbacked),
        size(Figure::Vacant),
        held as f64 / objects.max(1) as f64,
    ));
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
            "gave back so far: {}; {} of it from huge pages in use, {} wanted again, {} kept as \
             demand of the last {} s may want it",
            released.join(", "),
            size(Figure::Subreleased),
            size(Figure::WantedAgain),
            size(Figure::Spared),
            value(Figure::Patience),
        ));
    }
    if value(Figure::BrokenSoFar) + value(Figure::BegunSmall) > 0 {
        let attempts = value(Figure::CollapseAttempts);
        say(format!(
            "huge pages: {} of {} in small pages now; so far {} were broken, {} began so, as whole \
             ones took long; {} made whole in {} attempts ({} failed), \
             {:.1} ms in all, {:.1} ms at most",
            count(value(Figure::Broken)),
            count(value(Figure::Filler)),
            count(value(Figure::BrokenSoFar)),
            count(value(Figure::BegunSmall)),
            count(value(Figure::Restored)),
            count(attempts),
            count(value(Figure::CollapseFailures)),
            value(Figure::CollapseMicros) as f64 / 1e3,
            value(Figure::CollapseMaxMicros) as f64 / 1e3,
        ));
    }
    if value(Figure::Regions) > 0 {
        say(format!(
            "large spans: {} in {} regions; {} of slack, {} abandoned",
            size(Figure::RegionLive),
            count(value(Figure::Regions)),
            size(Figure::Slack),
            size(Figure::Abandoned),
        ));
    }
    let limits: Vec<String> = [(Figure::HardLimit, "hard"), (Figure::SoftLimit, "soft")]
        .iter()
        .filter(|(figure, _)| value(*figure) > 0)
        .map(|(figure, kind)| format!("{} {kind}", size(*figure)))
        .collect();
    if !limits.is_empty() {
        say(format!(
            "limit: {}; {} held, with what is page-mapped; {} requests were beyond it",
            limits.join(", "),
            size(Figure::Held),
            count(value(Figure::OverLimit)),
        ));
    }
    let refills = value(Figure::TransferHits) + value(Figure::TransferMisses);
    if refills > 0 {
        say(format!(
            "refills of caches: {}, {} from other caches, the rest from spans",
            count(refills),
            share(value(Figure::TransferHits), refills),
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_is_said() {
        let text = lines(&|figure| match figure {
            Figure::Live => 64 << 20,
            Figure::Covered => 32 << 20,
            Figure::InSpans => 4 << 20,
            Figure::MappedLive => 5 << 20,
            Figure::ReleasedBackground => 1 << 20,
            Figure::BrokenSoFar => 3,
            Figure::SoftLimit => 128 << 20,
            Figure::OverLimit => 7,
            _ => 0,
        });
        for expected in [
            "60.0 MiB live",
            "spans of 64.0 MiB",
            "50.0% of these",
            "each live byte: 1.07",
            "page-mapped: 5.00 MiB live",
            "1.00 MiB in the background",
            "3 were broken",
            "limit: 128 MiB soft;",
            "7 requests",
        ] {
            assert!(text.contains(expected), "{expected} is missing in\n{text}");
        }
        assert!(!text.contains("asked for") && !text.contains("regions"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 101), "{text}");
    }
}
