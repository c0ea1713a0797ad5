//! The native heap.

use maud::{Markup, html};

use super::bytes;
use crate::numbers;
use crate::stats::Stats;

/// What people ask first of the native heap.
const FIGURES: [(&str, &str); 10] = [
    ("live_bytes", "in spans: objects, and free ones beside them"),
    ("covered_bytes", "of it on whole huge pages"),
    ("in_caches_bytes", "free in caches of processors"),
    ("in_transfer_bytes", "free between these"),
    ("in_spans_bytes", "free in spans"),
    ("cached_bytes", "empty huge pages, kept"),
    ("resident_bytes", "resident"),
    ("tables_bytes", "resident tables and caches of its own"),
    ("released_background_bytes", "gone back unattended, in all"),
    ("background_us", "work beside the program"),
];

pub(super) fn section(sum: &Stats) -> Markup {
    if sum.native.is_empty() {
        return html! {};
    }
    html! {
        section {
            h2 { "The native heap at the end" }
            div.table { table { tbody {
                @for (name, what) in FIGURES {
                    @if let Some(value) = sum.native.get(name) {
                        tr {
                            td { (what) }
                            td {
                                @if name.ends_with("_us") { (numbers::time(*value as f64 * 1e3)) }
                                @else { (bytes(*value)) }
                            }
                        }
                    }
                }
            } } }
        }
    }
}
