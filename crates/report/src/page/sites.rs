//! Places that resize objects.

use std::cmp::Reverse;

use maud::{Markup, html};

use super::bytes;
use crate::numbers;
use crate::stats::{Caller, Site, Stats};

/// Places that are shown.
const MOST_SITES: usize = 12;
/// Callers of each.
const MOST_CALLERS: usize = 4;

fn caller(of: &Caller) -> String {
    let file = of.file.rsplit('/').next().unwrap_or(&of.file);
    if of.function.is_empty() {
        format!("{file}+{:#x}", of.offset)
    } else {
        format!("{} ({file})", of.function)
    }
}

/// Places as they are shown: a function that calls itself once, and those together that look alike then.
fn shown_sites(sum: &Stats) -> Vec<(Vec<String>, Site)> {
    let mut shown: Vec<(Vec<String>, Site)> = Vec::new();
    for site in &sum.sites {
        let mut callers: Vec<String> = site.callers.iter().map(caller).collect();
        callers.dedup();
        callers.truncate(MOST_CALLERS);
        let known = shown.iter().position(|(known, _)| *known == callers);
        let at = known.unwrap_or_else(|| {
            shown.push((callers, Site::default()));
            shown.len() - 1
        });
        let into = &mut shown[at].1;
        into.reallocs += site.reallocs;
        into.bytes += site.bytes;
        into.copied_bytes += site.copied_bytes;
    }
    shown.sort_by_key(|(_, site)| Reverse((site.copied_bytes, site.reallocs)));
    shown.truncate(MOST_SITES);
    shown
}

pub(super) fn section(sum: &Stats) -> Markup {
    if sum.sites.is_empty() {
        return html! {};
    }
    html! {
        section {
            h2 { "Places that resize objects" }
            p.note { "The places that had most bytes copied, then those that asked most often; estimated from a sample." }
            div.table { table {
                thead { tr { th { "place, called by" } th { "reallocations" } th { "bytes requested" } th { "bytes copied" } } }
                tbody {
                    @for (callers, site) in shown_sites(sum) {
                        tr {
                            td {
                                @for (at, of) in callers.iter().enumerate() {
                                    @if at == 0 { code { (of) } } @else { br; small { "← " (of) } }
                                }
                                @if callers.is_empty() { "unknown" }
                            }
                            td { (numbers::count(site.reallocs)) }
                            td { (bytes(site.bytes)) }
                            td { (bytes(site.copied_bytes)) }
                        }
                    }
                }
            } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_that_look_alike_are_one() {
        let site = |functions: &[&str], copied_bytes| Site {
            callers: functions
                .iter()
                .map(|name| Caller {
                    file: "/x".into(),
                    function: name.to_string(),
                    ..Caller::default()
                })
                .collect(),
            reallocs: 1,
            copied_bytes,
            ..Site::default()
        };
        let sites =
            vec![site(&["f", "g"], 5), site(&["a", "r", "r", "m"], 3), site(&["a", "r", "m"], 4)];
        let shown = shown_sites(&Stats { sites, ..Stats::default() });
        let shown: Vec<_> =
            shown.iter().map(|(c, s)| (c.join(" "), s.reallocs, s.copied_bytes)).collect();
        assert_eq!(shown, [("a (x) r (x) m (x)".into(), 2, 7), ("f (x) g (x)".into(), 1, 5)]);
    }
}
