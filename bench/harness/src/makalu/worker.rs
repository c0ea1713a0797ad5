//! One run of the worker.

use super::who;
use serde_json::Value;
use spandrel_measure::contender::Contender;
use spandrel_measure::process::{self, Ended};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// How a run is to end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// As programs do.
    Normal,
    /// By a crash, after it has said what it did.
    Crash,
}

/// A run on an allocator: what the worker said.
pub fn run(
    worker: &Path,
    contender: &Contender,
    words: &[String],
    end: End,
    patience: Duration,
) -> Result<Value, String> {
    let mut command = Command::new(worker);
    contender.prepare(command.args(words));
    let ended = process::run(&mut command, Some(patience))?;
    let said = match end {
        End::Normal => ended.success()?,
        End::Crash => crashed(ended)?,
    };
    serde_json::from_str(&said.output).map_err(|why| format!("its output is not JSON: {why}"))
}

/// A program that is measured on every allocator.
pub fn on(
    worker: &Path,
    contender: &Contender,
    words: &[String],
    patience: Duration,
) -> Result<Value, String> {
    let mut all = words.to_vec();
    all.extend(["--with".into(), who::word(contender).into()]);
    run(worker, contender, &all, End::Normal, patience)
}

/// The output of a program that was to crash, else why it did something else.
fn crashed(ended: Ended) -> Result<Ended, String> {
    match ended.status.signal() {
        Some(libc::SIGABRT) if !ended.output.is_empty() => Ok(ended),
        Some(_) => ended.success(),
        None if ended.status.success() => {
            Err("it was to crash, and ended as if all were well".into())
        }
        None => ended.success(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, end: End) -> Result<Value, String> {
        let words = ["-c".to_string(), script.to_string()];
        run(Path::new("sh"), &Contender::system(), &words, end, Duration::from_secs(10))
    }

    #[test]
    fn a_crash_is_an_end_where_it_is_wanted() {
        let script = "echo '{\"online_ns\":1}'; kill -ABRT $$";
        assert_eq!(shell(script, End::Crash).unwrap()["online_ns"], 1);
        assert!(shell(script, End::Normal).is_err());
        assert!(shell("kill -ABRT $$", End::Crash).is_err());
        assert!(shell("echo '{}'", End::Crash).unwrap_err().contains("was to crash"));
        assert!(shell("echo no >&2; exit 3", End::Crash).unwrap_err().ends_with("no"));
    }
}
