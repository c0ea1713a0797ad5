//! One run of the worker.

use super::{disk, who};
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

/// Options of the worker that say where its files lie.
const PLACES: [&str; 2] = ["--directory", "--path"];

/// A run on an allocator: what the worker said. Its files lie in a directory of this command's, unless the words name a place: a worker that a
/// signal ends leaves none behind.
pub fn run(
    worker: &Path,
    contender: &Contender,
    words: &[String],
    end: End,
    patience: Duration,
) -> Result<Value, String> {
    let has_place = words.iter().any(|word| PLACES.contains(&word.as_str()));
    let directory =
        (!has_place).then(|| disk::directory_in(Path::new(disk::MEMORY))).transpose()?;
    let mut command = Command::new(worker);
    contender.prepare(command.args(words));
    if let Some(directory) = &directory {
        command.arg("--directory").arg(directory.path());
    }
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

    #[test]
    fn files_lie_in_a_directory_that_is_gone_afterwards() {
        let script = "test \"$0\" = --directory && : >\"$1/file\" && echo \"\\\"$1\\\"\"";
        let said = shell(script, End::Normal).unwrap();
        let directory = Path::new(said.as_str().unwrap());
        assert!(directory.starts_with(disk::MEMORY) && !directory.exists(), "{said}");
    }
}
