//! What is known of a state, in the text format of Prometheus.

use std::fmt::{Display, Write as _};
use std::path::Path;

use super::info::Known;
use spandrel_durable::live::{Figures, bound_nanos};

/// The metrics of one state.
struct Metrics {
    text: String,
    label: String,
}

impl Metrics {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(
            self.text,
            "# HELP spandrel_durable_{name} {help}\n# TYPE spandrel_durable_{name} {kind}\n"
        );
    }

    fn line(&mut self, name: &str, label: &str, value: impl Display) {
        let _ = writeln!(self.text, "spandrel_durable_{name}{{{}{label}}} {value}", self.label);
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, "gauge", help);
        self.line(name, "", value);
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "counter", help);
        self.line(name, "", value);
    }
}

/// The value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// All metrics of a state, a line each.
pub fn text(directory: &Path, known: &Known) -> String {
    let label = format!("directory=\"{}\"", escaped(&directory.to_string_lossy()));
    let mut metrics = Metrics { text: String::new(), label };
    let open = known.figures.as_ref().filter(|_| known.found.is_none());
    metrics.gauge("open", "Whether a process has the state open.", u8::from(open.is_some()));
    metrics.gauge("state_bytes", "Bytes of the state's file.", known.bytes);
    let (capacity, used, lag) = match (open, &known.found) {
        (Some(figures), _) => (figures.log_bytes, figures.log_used, figures.lag),
        (None, Some(found)) => {
            (found.log.map_or(0, |shape| shape.capacity), found.pending_bytes, found.pending)
        }
        (None, None) => (0, 0, 0),
    };
    metrics.gauge("log_bytes", "Bytes of the log.", capacity);
    metrics.gauge("log_used_bytes", "Bytes of the log that the state's file may lack.", used);
    metrics.gauge("lag_batches", "Durable batches that the state's file lacks.", lag);
    if let Some(figures) = open {
        of_process(&mut metrics, figures);
    }
    metrics.text
}

fn of_process(metrics: &mut Metrics, figures: &Figures) {
    let counts = &figures.counts;
    let mut counter = |name, help, value| metrics.counter(name, help, value);
    counter("batches_total", "Durable batches.", counts.batches);
    counter(
        "durable_waits_total",
        "Fences and durable writes that commands waited for.",
        counts.durable_waits,
    );
    counter("commands_total", "Commands that write.", counts.commands);
    counter("runs_total", "Runs of bytes that batches have stored.", counts.runs);
    counter("written_bytes_total", "Bytes of these runs.", counts.bytes);
    counter("capture_blocks_total", "Blocks that capture has noted.", counts.blocks);
    counter(
        "capture_duplicates_total",
        "Blocks that were noted again in a batch.",
        counts.duplicates,
    );
    counter("capture_overflowed_total", "Notes that found the table full.", counts.overflowed);
    counter(
        "capture_coarse_batches_total",
        "Batches that were noted in whole pages.",
        counts.coarse,
    );
    counter("capture_whole_batches_total", "Batches of every byte of the state.", counts.whole);
    counter("state_syncs_total", "Times that the state's file was synced.", figures.syncs);
    metrics.gauge(
        "opened_timestamp_seconds",
        "When the state was opened.",
        seconds(figures.opened),
    );
    metrics.gauge(
        "opening_seconds",
        "How long it took to open the state.",
        seconds(figures.opening.nanos),
    );
    metrics.gauge(
        "opening_batches",
        "Batches that only the log had when the state was opened.",
        figures.opening.replayed,
    );
    metrics.gauge(
        "log_failed",
        "Whether the log is not brought into the state's file any more.",
        u8::from(figures.failure != 0),
    );
    metrics.gauge(
        "figures_timestamp_seconds",
        "When these figures were written.",
        seconds(figures.written),
    );
    metrics.gauge(
        "last_batch_sequence",
        "The sequence of the last durable batch.",
        counts.sequence,
    );
    metrics.gauge(
        "last_batch_timestamp_seconds",
        "When the last durable batch was written.",
        seconds(counts.time),
    );
    let name = "wait_seconds";
    metrics.head(name, "histogram", "Time that a batch waits for the log.");
    let mut sum = 0u64;
    for (at, number) in figures.waits.iter().enumerate() {
        // A file may say any number.
        sum = sum.saturating_add(*number);
        let bound = bound_nanos(at).map_or("+Inf".into(), |bound| seconds(bound).to_string());
        metrics.line("wait_seconds_bucket", &format!(",le=\"{bound}\""), sum);
    }
    metrics.line("wait_seconds_sum", "", seconds(counts.waited_nanos));
    metrics.line("wait_seconds_count", "", sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        assert_eq!(escaped("a\\b\"c\nd"), "a\\\\b\\\"c\\nd");
    }
}
