//! The worker that runs a program with all its processes (`spandrel-bench-worker tree`).

use serde::Deserialize;
use spandrel_console::shutdown::spawn;
use spandrel_measure::contender::Contender;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// How a program stands.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct State {
    /// CPU time of all its processes so far.
    pub cpu_ns: f64,
    /// Elapsed time since its start, or until its end.
    pub wall_ns: f64,
    /// The most memory that its processes held, and what they hold, in bytes.
    pub peak_rss: f64,
    pub rss: f64,
    /// Its processes that live.
    pub processes: f64,
    /// How it ended.
    pub ended: Option<i32>,
}

/// A program that runs. It is killed when the value is dropped.
pub struct Tree {
    worker: Child,
    words: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Tree {
    /// Starts the worker with a program: its words, the allocator that it is put on, and the files for what it prints. `prepared` has the folder and
    /// the environment.
    pub fn start(
        worker: &Path,
        contender: &Contender,
        words: &[String],
        [output, errors]: [&str; 2],
        prepared: impl FnOnce(&mut Command),
    ) -> Result<Self, String> {
        let mut command = Command::new(worker);
        command.args(["tree", output, errors, "env"]).args(contender.variables()).args(words);
        // The worker itself stays on the system's allocator.
        Contender::system().prepare(&mut command);
        prepared(&mut command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let failed = |why: std::io::Error| format!("the worker cannot be started: {why}");
        // It outlives this command where that is killed, and ends the program at the end of its input.
        let mut worker = spawn(&mut command).map_err(failed)?;
        let words = worker.stdin.take();
        let answers = worker.stdout.take().ok_or("the worker has no output")?;
        Ok(Self { worker, words, answers: BufReader::new(answers) })
    }

    /// Says a word, and waits for the answer.
    pub fn say(&mut self, word: &str) -> Result<State, String> {
        let gone = |why: std::io::Error| format!("the worker is gone: {why}");
        let words = self.words.as_mut().ok_or("the worker is gone")?;
        writeln!(words, "{word}").map_err(gone)?;
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(gone)?;
        serde_json::from_str(&line).map_err(|why| format!("the worker's answer: {why}"))
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // The end of its input has the worker kill what is left.
        self.words = None;
        let _ = self.worker.wait();
    }
}

/// Files of the folder, for what a program prints, and for what a shell script does.
pub const PROGRAM_FILES: [&str; 2] = ["program.out", "program.err"];
pub const SHELL_FILES: [&str; 2] = ["shell.out", "shell.err"];
