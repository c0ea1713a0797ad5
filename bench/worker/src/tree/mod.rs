//! `spandrel-bench-worker tree OUTPUT ERRORS PROGRAM [ARGUMENT…]`: a program with all its processes, from start to end.
//!
//! The worker is the parent that orphans of the program are given to (`PR_SET_CHILD_SUBREAPER`), so that servers and browsers
//! are measured with every process that they start. What the program prints is written to the files OUTPUT and ERRORS. The worker
//! reads one word a line from its standard input, and answers each with one JSON object:
//!
//! | word | what it does |
//! |---|---|
//! | `look` | nothing: the answer says how it stands |
//! | `ended` | nothing: the answer is only `ended`, and takes no time of the machine's |
//! | `wait` | waits until the program has ended by itself |
//! | `close` | ends the program's standard input, and waits until it has ended |
//! | `stop` | sends SIGTERM to the program, and waits until it has ended |
//! | `interrupt` | the same with SIGINT |
//!
//! An answer has `cpu_ns` (of all processes so far), `wall_ns` since the start, `peak_rss` (see [`Family::peak`]), `rss` (the sum of
//! the shares of all that live), `processes`, and `ended`: the exit code, 128 and the signal, or null while the program runs.
//! At the end of the standard input all processes are killed.

mod family;

use crate::meter;
use family::Family;
use serde_json::{Value, json};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};

/// How long the worker sleeps for input before it looks after the processes.
const LOOK_MS: i32 = 10;
/// Time of a program between the request to end and the end; then all its processes are killed.
const END_WITHIN_NS: u64 = 30_000_000_000;
/// Time of killed processes until their end, beyond which they are left alone: a process in the middle of a request to a disk ends late.
const KILLED_WITHIN_NS: u64 = 30_000_000_000;

/// What the caller waits for.
enum Awaited {
    /// A word.
    Word,
    /// The end of the program, until a time if it was asked to end.
    End(Option<u64>),
}

/// Runs a program until the standard input ends.
pub fn run(words: &[String]) -> Result<(), String> {
    let [output, errors, program, arguments @ ..] = words else {
        return Err("tree: give OUTPUT ERRORS PROGRAM [ARGUMENT…]".into());
    };
    // SAFETY: sets a flag of this process.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    let file = |path: &String| File::create(path).map_err(|why| format!("{path}: {why}"));
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(file(output)?).stderr(file(errors)?);
    // A group of its own: the keys of a terminal reach the caller alone, which ends its descendants.
    command.process_group(0);
    // A shell has its background jobs ignore these two, and a program cannot catch what it was started to ignore.
    // SAFETY: these calls may be made between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            libc::signal(libc::SIGQUIT, libc::SIG_DFL);
            Ok(())
        })
    };
    let since = meter::wall_ns();
    let child = command.spawn().map_err(|why| format!("{program} cannot be started: {why}"))?;
    Tree::new(child, since).serve()
}

/// A program that runs.
struct Tree {
    pid: libc::pid_t,
    input: Option<ChildStdin>,
    since: u64,
    ended: Option<(i32, u64)>,
    family: Family,
}

impl Tree {
    fn new(mut child: Child, since: u64) -> Self {
        let input = child.stdin.take();
        // Its end is waited for with that of all others.
        let pid = child.id() as libc::pid_t;
        Self { pid, input, since, ended: None, family: Family::new() }
    }

    fn serve(&mut self) -> Result<(), String> {
        // SAFETY: the descriptor is open, and no other value owns it: nothing else here reads the standard input.
        let mut stdin = File::from(unsafe { OwnedFd::from_raw_fd(libc::STDIN_FILENO) });
        let mut awaited = Awaited::Word;
        let mut line = Vec::new();
        loop {
            let has_input = is_readable(&stdin);
            self.collect();
            self.family.sample();
            if let Awaited::End(until) = awaited {
                if until.is_some_and(|until| meter::wall_ns() > until) {
                    self.family.kill_all();
                }
                if self.ended.is_some() {
                    self.end_others();
                    println!("{}", self.state());
                    awaited = Awaited::Word;
                }
            }
            if !has_input {
                continue;
            }
            let mut byte = [0];
            match io::Read::read(&mut stdin, &mut byte) {
                Ok(1) if byte[0] == b'\n' => {
                    awaited = self.obey(&String::from_utf8_lossy(&line))?;
                    line.clear();
                }
                Ok(1) => line.push(byte[0]),
                _ => {
                    self.end_others();
                    return Ok(());
                }
            }
        }
    }

    fn obey(&mut self, word: &str) -> Result<Awaited, String> {
        let soon = Awaited::End(Some(meter::wall_ns() + END_WITHIN_NS));
        match word {
            "look" => {
                println!("{}", self.state());
                return Ok(Awaited::Word);
            }
            "ended" => {
                println!("{}", json!({"ended": self.ended.map(|(code, _)| code)}));
                return Ok(Awaited::Word);
            }
            "wait" => return Ok(Awaited::End(None)),
            "close" => drop(self.input.take()),
            "stop" => self.signal(libc::SIGTERM),
            "interrupt" => self.signal(libc::SIGINT),
            other => return Err(format!("tree: '{other}' is no word")),
        }
        Ok(soon)
    }

    fn signal(&self, signal: i32) {
        if self.ended.is_none() {
            // SAFETY: the process has not been waited for: the number is still its own.
            unsafe { libc::kill(self.pid, signal) };
        }
    }

    /// Waits for all processes that have ended.
    fn collect(&mut self) {
        loop {
            let mut status = 0;
            // SAFETY: the place for the status is valid.
            let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) };
            if pid <= 0 {
                return;
            }
            if pid == self.pid {
                let code = match libc::WIFEXITED(status) {
                    true => libc::WEXITSTATUS(status),
                    false => 128 + libc::WTERMSIG(status),
                };
                self.ended = Some((code, meter::wall_ns() - self.since));
            }
        }
    }

    /// All processes that are left are killed, and waited for, so that their time is counted.
    fn end_others(&mut self) {
        let until = meter::wall_ns() + KILLED_WITHIN_NS;
        while self.family.kill_all() && meter::wall_ns() < until {
            self.collect();
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        self.collect();
    }

    fn state(&mut self) -> Value {
        let standing = self.family.standing();
        let wall_ns = self.ended.map_or_else(|| meter::wall_ns() - self.since, |(_, wall)| wall);
        json!({
            "cpu_ns": standing.cpu_ns,
            "wall_ns": wall_ns,
            "rss": standing.bytes,
            "peak_rss": self.family.peak(),
            "processes": standing.processes,
            "ended": self.ended.map(|(code, _)| code),
        })
    }
}

/// Whether there is something to read, or the end, within [`LOOK_MS`].
fn is_readable(file: &File) -> bool {
    let mut poll = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which lives through the call.
    unsafe { libc::poll(&mut poll, 1, LOOK_MS) > 0 }
}
