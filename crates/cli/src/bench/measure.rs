//! Runs the worker, in turns.

use super::Bench;
use super::contender::Contender;
use super::progress::Progress;
use crate::failure::Failure;
use serde_json::Value;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A run that takes longer hangs, or copies so much (tcmalloc on `append`) that
/// nobody wants to wait for the exact figure.
const RUN_SECONDS_MAX: u64 = 60;

/// What one contender's rounds gave.
pub struct Series {
    /// Who was measured.
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

/// Rounds of `one`, contenders taking turns; the first round is not counted. A
/// contender that fails once is out.
pub fn in_turns(
    contenders: &[Contender],
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
    progress.stage(label, contenders.len() * (runs + 1));
    for round in 0..=runs {
        for series in &mut all {
            progress.note(&series.contender.name);
            if series.failed.is_none() {
                match one(&series.contender) {
                    Ok(sample) if round > 0 => series.samples.push(sample),
                    Ok(_) => {}
                    Err(why) => series.failed = Some(why),
                }
            }
            progress.step();
        }
    }
    all
}

impl Bench {
    /// Measures one job of the worker on every contender.
    pub fn measure(&self, progress: &Progress, label: &str, words: &[&str]) -> Vec<Series> {
        self.measure_on(&self.contenders, progress, label, words)
    }

    /// The same on chosen contenders.
    pub fn measure_on(
        &self,
        contenders: &[Contender],
        progress: &Progress,
        label: &str,
        words: &[&str],
    ) -> Vec<Series> {
        in_turns(contenders, self.runs, progress, label, |contender| {
            worker(&self.worker, contender, words)
        })
    }

    /// The contender that ratios are taken against.
    pub fn system(&self) -> Result<&Contender, Failure> {
        self.contenders
            .iter()
            .find(|contender| contender.is_system())
            .ok_or_else(|| Failure::new("the system's allocator is missing from the comparison"))
    }
}

/// One run of the worker; its JSON.
pub fn worker(worker: &Path, contender: &Contender, words: &[&str]) -> Result<Value, String> {
    let mut command = Command::new(worker);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    contender.prepare(&mut command);
    let child = command.spawn().map_err(|why| format!("cannot be started: {why}"))?;
    let (status, output, errors) = finish(child, Duration::from_secs(RUN_SECONDS_MAX))?;
    if !status.success() {
        let last = errors.trim().lines().last().unwrap_or("").to_string();
        return Err(format!("{status}{}{last}", if last.is_empty() { "" } else { ": " }));
    }
    serde_json::from_str(&output).map_err(|why| format!("its output is not JSON: {why}"))
}

/// Waits for a child whose output fits into a pipe, and ends it if it hangs.
fn finish(mut child: Child, limit: Duration) -> Result<(ExitStatus, String, String), String> {
    let start = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if start.elapsed() > limit => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("given up after {} s", limit.as_secs()));
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(2)),
            Err(why) => return Err(why.to_string()),
        }
    };
    let mut output = String::new();
    let mut errors = String::new();
    let read = |pipe: Option<&mut dyn Read>, into: &mut String| {
        pipe.map_or(Ok(0), |pipe| pipe.read_to_string(into)).map_err(|why| why.to_string())
    };
    read(child.stdout.as_mut().map(|pipe| pipe as &mut dyn Read), &mut output)?;
    read(child.stderr.as_mut().map(|pipe| pipe as &mut dyn Read), &mut errors)?;
    Ok((status, output, errors))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    #[test]
    fn output_and_exit_code() {
        let (status, output, errors) =
            finish(shell("echo out; echo err >&2; exit 3"), Duration::from_secs(10)).unwrap();
        assert_eq!((status.code(), output.as_str(), errors.as_str()), (Some(3), "out\n", "err\n"));
    }

    #[test]
    fn a_hanging_run_is_ended() {
        let why = finish(shell("exec sleep 60"), Duration::from_millis(50)).unwrap_err();
        assert!(why.contains("given up"), "{why}");
    }

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
