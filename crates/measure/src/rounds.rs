//! Rounds of runs, contenders taking turns.

use crate::contender::Contender;
use crate::process;
use crate::reserve::{self, Reserve};
use serde_json::Value;
use spandrel_console::progress::Progress;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// A run that takes longer hangs, or copies so much (tcmalloc on `append`) that
/// the exact figure is not worth the time.
pub const RUN_MAX: Duration = Duration::from_secs(90);

/// In this time of rest hosts take free memory back (free page reporting: 2 s and a little).
const REST: Duration = Duration::from_secs(4);

/// What one contender's rounds gave.
pub struct Series {
    /// The allocator that was measured.
    pub contender: Contender,
    /// One object per measured round.
    pub samples: Vec<Value>,
    /// Why there are no more: the first thing that went wrong.
    pub failed: Option<String>,
}

impl Series {
    /// A number of every sample.
    pub fn values(&self, key: &str) -> Vec<f64> {
        self.samples.iter().filter_map(|sample| sample.get(key)?.as_f64()).collect()
    }
}

/// As [`turns`], with memory held in reserve between the runs.
pub fn in_turns(
    contenders: &[Contender],
    runs: usize,
    progress: &Progress,
    label: &str,
    one: impl FnMut(&Contender) -> Result<Value, String>,
) -> Vec<Series> {
    holding(reserve::BYTES, contenders, runs, progress, label, one)
}

/// The same with this number of bytes in reserve.
pub fn holding(
    bytes: u64,
    contenders: &[Contender],
    runs: usize,
    progress: &Progress,
    label: &str,
    mut one: impl FnMut(&Contender) -> Result<Value, String>,
) -> Vec<Series> {
    let mut reserve = Some(Reserve::of(bytes));
    turns(contenders, runs, progress, label, |contender| {
        drop(reserve.take());
        let sample = one(contender);
        reserve = Some(Reserve::of(bytes));
        sample
    })
}

/// As [`turns`] on cold memory: nothing is held, and the machine rests before each run, so that its host takes back what is free.
/// There is no round that does not count.
pub fn cold(
    contenders: &[Contender],
    runs: usize,
    progress: &Progress,
    label: &str,
    mut one: impl FnMut(&Contender) -> Result<Value, String>,
) -> Vec<Series> {
    rounds(contenders, 0, runs, progress, label, |contender| {
        std::thread::sleep(REST);
        one(contender)
    })
}

/// Rounds of `one`, contenders taking turns; the first round is not counted. A
/// contender that fails once is out.
pub fn turns(
    contenders: &[Contender],
    runs: usize,
    progress: &Progress,
    label: &str,
    one: impl FnMut(&Contender) -> Result<Value, String>,
) -> Vec<Series> {
    rounds(contenders, 1, runs, progress, label, one)
}

fn rounds(
    contenders: &[Contender],
    uncounted: usize,
    runs: usize,
    progress: &Progress,
    label: &str,
    mut one: impl FnMut(&Contender) -> Result<Value, String>,
) -> Vec<Series> {
    let new = |contender: &Contender| Series {
        contender: contender.clone(),
        samples: Vec::with_capacity(runs),
        failed: None,
    };
    let mut all: Vec<Series> = contenders.iter().map(new).collect();
    progress.stage(label, contenders.len() * (uncounted + runs));
    for round in 0..uncounted + runs {
        for series in &mut all {
            progress.note(&series.contender.name);
            if series.failed.is_none() {
                match one(&series.contender) {
                    Ok(sample) if round >= uncounted => series.samples.push(sample),
                    Ok(_) => {}
                    Err(why) => series.failed = Some(why),
                }
            }
            progress.step();
        }
    }
    all
}

/// One run of the worker; its JSON.
pub fn worker(worker: &Path, contender: &Contender, words: &[&str]) -> Result<Value, String> {
    let mut command = Command::new(worker);
    contender.prepare(command.args(words));
    let ended = process::run(&mut command, Some(RUN_MAX))?.success()?;
    serde_json::from_str(&ended.output).map_err(|why| format!("its output is not JSON: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_round_does_not_count_and_failures_are_kept() {
        let good = Contender::system();
        let bad = Contender::tuned("bad", "x");
        let progress = Progress::new();
        let mut calls = 0;
        let all = in_turns(&[good, bad], 3, &progress, "test", |contender| {
            calls += 1;
            if contender.name == "bad" { Err("broken".into()) } else { Ok(calls.into()) }
        });
        assert_eq!(all[0].samples.len(), 3);
        assert_eq!(all[1].failed.as_deref(), Some("broken"));
        assert_eq!(calls, 5);
    }
}
