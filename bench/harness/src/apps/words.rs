//! What the tables say, in words: faster or slower, by how much, at what price.

use super::Outcome;
use spandrel_measure::contender::OWN;

/// Changes below this are called none.
const NOISE: f64 = 0.015;

/// A sentence per program, and one about correctness.
pub fn summary(outcomes: &[Outcome]) -> Vec<String> {
    let mut lines: Vec<String> = outcomes.iter().map(sentence).collect();
    let compared = outcomes.iter().filter_map(Outcome::same_output);
    match (compared.clone().count(), compared.clone().all(|same| same)) {
        (0, _) => {}
        (_, true) => lines.push("Outputs were the same on every allocator.".into()),
        (_, false) => lines.push("OUTPUTS DIFFER between allocators: this is an error.".into()),
    }
    lines
}

fn sentence(outcome: &Outcome) -> String {
    let name = outcome.name;
    if let Some(series) = outcome.series.iter().find(|series| series.failed.is_some()) {
        let why = series.failed.as_deref().unwrap_or("");
        return format!("{name}: FAILED on {}: {why}", series.contender.name);
    }
    let (times, Some(time)) = outcome.medians("cpu_ns") else {
        return format!("{name}: not measured.");
    };
    let (peaks, Some(peak)) = outcome.medians("peak_rss") else {
        return format!("{name}: not measured.");
    };
    let compare = |what: &str, own: f64, others: &[(&str, f64)]| {
        let parts: Vec<String> =
            others.iter().map(|(other, theirs)| change(own / theirs, other)).collect();
        format!("{what} {}", parts.join(", "))
    };
    format!(
        "{name}: {}; {}.",
        compare("CPU time", time, &times),
        compare("peak memory", peak, &peaks)
    )
}

/// "12% less than on glibc".
fn change(ratio: f64, other: &str) -> String {
    let other = if other == OWN { format!("its {other}") } else { other.into() };
    match ratio - 1.0 {
        change if change.abs() < NOISE => format!("the same as on {other}"),
        change if change < 0.0 => format!("{:.0}% less than on {other}", -change * 100.0),
        change => format!("{:.0}% more than on {other}", change * 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use spandrel_measure::contender::{Contender, Role};
    use spandrel_measure::rounds::Series;

    fn series(ours: bool, cpu_ns: u64, digest: &str) -> Series {
        let name = if ours { "spandrel" } else { "glibc" };
        Series {
            contender: Contender {
                name: name.into(),
                role: if ours { Role::Ours } else { Role::Peer },
                ..Contender::system()
            },
            samples: vec![json!({"cpu_ns": cpu_ns, "peak_rss": 1000, "digest": digest})],
            failed: None,
        }
    }

    fn outcome(digest: &str) -> Outcome {
        let series = vec![series(false, 200, "a"), series(true, 150, digest)];
        Outcome { name: "job", series, stats: None }
    }

    #[test]
    fn faster_and_the_same() {
        let lines = summary(&[outcome("a")]);
        assert_eq!(
            lines[0],
            "job: CPU time 25% less than on glibc; peak memory the same as on glibc."
        );
        assert!(lines[1].contains("the same"));
        assert!(!outcome("a").is_broken());
    }

    #[test]
    fn differences_and_failures_are_said() {
        assert!(summary(&[outcome("b")])[1].contains("DIFFER"));
        assert!(outcome("b").is_broken());
        let mut failed = outcome("a");
        failed.series[1].failed = Some("signal 11".into());
        assert!(summary(&[failed])[0].contains("FAILED on spandrel: signal 11"));
    }
}
