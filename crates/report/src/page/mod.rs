//! The page: what people look at.

mod learnt;
mod native;
mod sites;

use crate::charts;
use crate::numbers::{self, Summary, counted};
use crate::run::{Layer, Run, Way};
use crate::stats::{Realloc, Stats};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use std::cmp::Reverse;

const STYLE: &str = include_str!("page.css");
/// Letters of the command that are shown.
const TITLE: usize = 160;
/// Processes that are shown; the sum has them all.
const MOST_PROCESSES: usize = 20;

/// The run as one HTML file that needs no other.
pub fn page(run: &Run) -> String {
    let command = run.title(TITLE);
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (command) " – Spandrel" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    header {
                        h1 { code { (command) } }
                        p { "on Spandrel, mode " b { (run.mode) } " · " (run.machine) }
                    }
                    (cards(run))
                    (memory(run))
                    (compared(&run.compared))
                    (requests(&run.sum))
                    (reallocations(&run.sum.realloc))
                    (learnt::section(&run.processes))
                    (sites::section(&run.sum))
                    (native::section(&run.sum))
                    (processes(run))
                    (degraded(&run.sum))
                }
            }
        }
    };
    document.into_string()
}

fn bytes(of: u64) -> String {
    numbers::bytes(of as f64)
}

fn cards(run: &Run) -> Markup {
    let requests: u64 = run.sum.requests.iter().map(|row| row.count()).sum();
    let realloc = &run.sum.realloc;
    let resized: u64 = run.sum.requests.iter().map(|row| row.realloc_bytes).sum();
    let card = |value: String, what: &str| html! { div.card { b { (value) } span { (what) } } };
    html! {
        div.cards {
            (card(numbers::time(run.elapsed_ms * 1e6), if run.compared.is_empty() {
                "from start to end"
            } else {
                "from start to end, counted and watched"
            }))
            @if run.exit_code != 0 { (card(run.exit_code.to_string(), "exit code")) }
            @if let Some(peak) = run.peak_bytes() { (card(bytes(peak), "resident at most, all processes")) }
            @if run.sum.usage.faults > 0 {
                (card(numbers::time(run.sum.usage.cpu_us as f64 * 1e3), "of processors"))
                (card(numbers::count(run.sum.usage.faults), "page faults"))
            }
            @if requests > 0 { (card(numbers::count(requests), "requests for memory")) }
            @if resized > 0 {
                (card(bytes(realloc.copied_bytes), &format!("copied by reallocations to {}", bytes(resized))))
            }
            @if run.processes.len() > 1 { (card(numbers::count(run.processes.len() as u64), "processes")) }
        }
    }
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "–".into();
    }
    let share = 100.0 * part as f64 / whole as f64;
    match share {
        s if part > 0 && s < 0.1 => "< 0.1 %".into(),
        s if part < whole && s > 99.9 => "> 99.9 %".into(),
        s => format!("{s:.1} %"),
    }
}

fn chip(at: usize) -> Markup {
    html! { i style={ "background:var(--c" (at) ")" } {} }
}

fn memory(run: &Run) -> Markup {
    let Some(plot) = charts::memory(run) else { return html! {} };
    let has = |at: usize| run.samples.iter().any(|sample| sample.layers[at] > 0);
    html! {
        section {
            h2 { "Memory over time" }
            div.legend {
                span { i.line style="background:var(--ink)" {} "resident, without files" }
                @for ((at, layer), colour) in Layer::ALL.iter().enumerate().zip(charts::LAYER_COLOURS) {
                    @if has(at) { span { (chip(colour)) (layer.name()) } }
                }
                span { (chip(charts::LAYER_COLOURS[Layer::ALL.len()])) "the program's own mappings and everything else" }
            }
            (PreEscaped(plot))
            p.note {
                "All processes together, " (counted(run.samples.len() as u64, "look", "looks")) ". "
                "Areas are what the library has written down; an object that was not touched yet is not resident."
            }
        }
    }
}

/// A figure of one way beside that of the run's.
fn figure(of: Option<&Summary>, own: Option<&Summary>, show: impl Fn(f64) -> String) -> Markup {
    let Some(of) = of else { return html! { td { "–" } } };
    let ratio = own.filter(|own| own.median > 0.0).map(|own| of.median / own.median);
    html! {
        td {
            (show(of.median))
            @if let Some(ratio) = ratio { " " small { "×" (numbers::digits(ratio)) } }
        }
    }
}

fn compared(ways: &[Way]) -> Markup {
    if ways.is_empty() {
        return html! {};
    }
    let own = ways.iter().find(|way| way.is_the_run);
    let rounds = own.and_then(|way| way.cpu_ns.as_ref()).is_some();
    html! {
        section {
            h2 { "The same job in other ways" }
            p.note {
                "In turns, each run a process of its own, neither counted nor watched, so that times are others than those of "
                "the run above; medians" @if rounds { ", and × what they are of the run's own mode" } "."
            }
            div.table { table {
                thead { tr {
                    th { "way" } th { "processor time" } th { "elapsed" } th { "peak memory" } th { "page faults" }
                } }
                tbody {
                    @for way in ways {
                        tr.own[way.is_the_run] {
                            td { (way.name) }
                            @if let Some(why) = &way.failed {
                                td colspan="4" { span.bad { (why) } }
                            } @else {
                                (figure(way.cpu_ns.as_ref(), own.and_then(|own| own.cpu_ns.as_ref()), numbers::time))
                                (figure(way.wall_ns.as_ref(), own.and_then(|own| own.wall_ns.as_ref()), numbers::time))
                                (figure(way.peak_bytes.as_ref(), own.and_then(|own| own.peak_bytes.as_ref()), numbers::bytes))
                                (figure(way.faults.as_ref(), own.and_then(|own| own.faults.as_ref()), |n| numbers::count(n as u64)))
                            }
                        }
                    }
                }
            } }
        }
    }
}

fn requests(sum: &Stats) -> Markup {
    let backends: Vec<&str> =
        sum.backends().into_iter().filter(|backend| sum.total(backend).count() > 0).collect();
    let Some(plot) = charts::requests(sum, &backends) else {
        return html! {
            section {
                h2 { "Requests by size" }
                p.note { "No process said anything: it made no request, was ended by a signal, or left by _exit." }
            }
        };
    };
    let all: u64 = backends.iter().map(|backend| sum.total(backend).count()).sum();
    let all_bytes: u64 = backends.iter().map(|backend| sum.total(backend).bytes()).sum();
    html! {
        section {
            h2 { "Requests by size" }
            div.legend {
                @for backend in &backends { span { (chip(charts::colour_of(backend))) (backend) } }
            }
            (PreEscaped(plot))
            div.table { table {
                thead { tr {
                    th { "allocator" } th { "requests" } th { "share" } th { "bytes requested" } th { "share" }
                    th { "of them to grow or shrink" } th { "given back" }
                } }
                tbody {
                    @for backend in &backends {
                        @let total = sum.total(backend);
                        tr {
                            td { (backend) }
                            td { (numbers::count(total.count())) }
                            td { (percent(total.count(), all)) }
                            td { (bytes(total.bytes())) }
                            td { (percent(total.bytes(), all_bytes)) }
                            td { (numbers::count(total.reallocs)) }
                            td { (numbers::count(total.frees)) }
                        }
                    }
                }
            } }
        }
    }
}

fn reallocations(realloc: &Realloc) -> Markup {
    let parts = [
        ("in place", realloc.in_place),
        ("pages moved, no byte copied", realloc.moved_pages),
        ("copied", realloc.copied),
        ("copied to another allocator", realloc.migrated),
    ];
    let all: u64 = parts.iter().map(|part| part.1).sum();
    if all == 0 {
        return html! {};
    }
    // Green, blue, yellow, orange of the page.
    let colours = [2, 0, 1, 4];
    html! {
        section {
            h2 { "What became of reallocations" }
            div.bar {
                @for ((_, count), colour) in parts.iter().zip(colours) {
                    i style={ "width:" (format!("{:.3}", 100.0 * *count as f64 / all as f64)) "%;background:var(--c" (colour) ")" } {}
                }
            }
            div.legend {
                @for ((name, count), colour) in parts.iter().zip(colours) {
                    span { (chip(colour)) (name) ": " (numbers::count(*count)) " (" (percent(*count, all)) ")" }
                }
            }
            p.note { (bytes(realloc.copied_bytes)) " copied in all." }
        }
    }
}

fn processes(run: &Run) -> Markup {
    if run.processes.len() < 2 && run.unreadable == 0 {
        return html! {};
    }
    let requests = |stats: &Stats| stats.requests.iter().map(|row| row.count()).sum::<u64>();
    let mut largest: Vec<&Stats> = run.processes.iter().collect();
    largest.sort_by_key(|stats| Reverse(requests(stats)));
    let hidden = largest.len().saturating_sub(MOST_PROCESSES);
    html! {
        section {
            h2 { "Processes" }
            div.table { table {
                thead { tr { th { "program" } th { "pid" } th { "requests" } th { "bytes requested" } th { "bytes copied" } } }
                tbody {
                    @for stats in largest.iter().take(MOST_PROCESSES) {
                        tr {
                            td { (stats.program) }
                            td { (stats.pid) }
                            td { (numbers::count(requests(stats))) }
                            td { (bytes(stats.requests.iter().map(|row| row.bytes()).sum())) }
                            td { (bytes(stats.realloc.copied_bytes)) }
                        }
                    }
                }
            } }
            @if hidden > 0 { p.note { "… and " (counted(hidden as u64, "process", "processes")) " with fewer requests." } }
            @if run.unreadable > 0 { p.note { "What " (counted(run.unreadable as u64, "process", "processes")) " said could not be read." } }
        }
    }
}

fn degraded(sum: &Stats) -> Markup {
    if sum.degraded.is_empty() {
        return html! {};
    }
    html! {
        section {
            h2 { "What the kernel refused, and was done without" }
            div.table { table {
                thead { tr { th { "what" } th { "errno" } th { "times" } } }
                tbody {
                    @for row in &sum.degraded {
                        tr { td { (row.what) } td { (row.errno) } td { (numbers::count(row.count)) } }
                    }
                }
            } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Sample;
    use crate::stats::{Caller, Requests, Site};

    fn summary(median: f64) -> Option<Summary> {
        Summary::of(&[median])
    }

    fn run() -> Run {
        let mut run = Run::new(vec!["/bin/<x>".into(), "a & b".into()], "auto".into(), 3, 1500.0);
        let requests = vec![
            Requests {
                backend: "native".into(),
                from: 16,
                to: 31,
                allocs: 9,
                reallocs: 2,
                realloc_bytes: 48,
                ..Requests::default()
            },
            Requests {
                backend: "mmap".into(),
                from: 1 << 20,
                to: (2 << 20) - 1,
                allocs: 1,
                ..Requests::default()
            },
        ];
        let realloc = Realloc { in_place: 1, copied: 1, copied_bytes: 20, ..Realloc::default() };
        run.sum = Stats {
            requests,
            realloc,
            native: [("live_bytes".into(), 4096)].into(),
            ..Stats::default()
        };
        let callers = vec![
            Caller { file: "/lib/libx.so".into(), offset: 16, function: "grow<T>".into() },
            Caller { file: "/bin/x".into(), offset: 255, function: String::new() },
        ];
        run.sum.sites = vec![Site { reallocs: 7, bytes: 8, copied_bytes: 9, callers }];
        run.samples = (0..5)
            .map(|n| Sample { ms: n, processes: 1, resident_bytes: 1 << 20, layers: [9; 4] })
            .collect();
        let way = |name: &str, is_the_run, cpu: f64| Way {
            name: name.into(),
            is_the_run,
            cpu_ns: summary(cpu),
            wall_ns: summary(2e6),
            peak_bytes: summary(4096.0),
            faults: None,
            failed: None,
        };
        run.compared = vec![
            way("auto", true, 1e6),
            way("sys", false, 2e6),
            Way { failed: Some("it <fell>".into()), ..way("x", false, 1.0) },
        ];
        run
    }

    #[test]
    fn a_page_needs_nothing_else_and_says_what_it_was_told() {
        let page = page(&run());
        for part in [
            "<h1><code>&lt;x&gt; a &amp; b</code></h1>",
            "exit code",
            "×2.00",
            "it &lt;fell&gt;",
            "native",
            "4.00 KiB",
            "<svg",
            "1.50 s",
            "grow&lt;T&gt; (libx.so)",
            "x+0xff",
        ] {
            assert!(page.contains(part), "{part} in {page}");
        }
        for forbidden in ["<script", "http:", "https:", "src=", "@import", "url("] {
            let without_namespace = page.replace("http://www.w3.org/2000/svg", "");
            assert!(!without_namespace.contains(forbidden), "{forbidden}");
        }
    }

    #[test]
    fn a_run_that_said_nothing_has_a_page_too() {
        let page = page(&Run::new(vec!["x".into()], "auto".into(), 137, 0.0));
        assert!(page.contains("No process said anything") && page.contains("137"));
        assert!(!page.contains("NaN"), "{page}");
    }

    #[test]
    fn shares() {
        assert_eq!(
            [percent(0, 0), percent(0, 5), percent(1, 5000), percent(1, 2)],
            ["–", "0.0 %", "< 0.1 %", "50.0 %"]
        );
        assert_eq!([percent(4999, 5000), percent(5, 5)], ["> 99.9 %", "100.0 %"]);
    }
}
