//! A child process from start to end, and what it used.

use crate::contender::Contender;
use crate::counters::{Counters, Target};
use crate::malloc_time::MallocTime;
use serde_json::{Map, Value};
use spandrel_console::shutdown::spawn;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How a child ended.
pub struct Ended {
    /// The process that it was.
    pub pid: u32,
    /// Its exit code or signal.
    pub status: ExitStatus,
    /// CPU time of it and the children it waited for.
    pub cpu_ns: f64,
    /// Elapsed time.
    pub wall_ns: f64,
    /// The most that was resident of the largest of them.
    pub peak_bytes: u64,
    /// Their page faults.
    pub faults: u64,
    /// What it wrote to standard output.
    pub output: String,
    /// What it wrote to standard error.
    pub errors: String,
}

/// How often a child with a limit is looked after.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// Runs a command whose output fits into a pipe. A command that takes longer than
/// the limit is ended.
pub fn run(command: &mut Command, limit: Option<Duration>) -> Result<Ended, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let start = Instant::now();
    let mut child = spawn(command).map_err(|why| format!("{name} cannot be started: {why}"))?;
    let pid = child.id();
    let used = wait(&mut child, limit.map(|limit| start + limit)).inspect_err(|_| {
        let _ = child.kill();
        let _ = child.wait();
    })?;
    let wall_ns = start.elapsed().as_nanos() as f64;
    let (output, errors) = (read(child.stdout.take()), read(child.stderr.take()));
    Ok(Ended { pid, wall_ns, output, errors, ..used })
}

/// The last of what a command says of itself that is kept.
const LAST_WORDS: u64 = 4096;

/// Runs a command that may print as much as it likes: its output is lost, but for its last words on standard
/// error.
pub fn run_unheard(command: &mut Command) -> Result<Ended, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |why: std::io::Error| format!("{name} cannot be started: {why}");
    let mut said = tempfile::tempfile().map_err(failed)?;
    let stderr = said.try_clone().map_err(failed)?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
    let start = Instant::now();
    let mut child = spawn(command).map_err(failed)?;
    let pid = child.id();
    let used = wait(&mut child, None)?;
    let wall_ns = start.elapsed().as_nanos() as f64;
    let end = said.metadata().map_or(0, |file| file.len());
    let _ = said.seek(SeekFrom::Start(end.saturating_sub(LAST_WORDS)));
    Ok(Ended { pid, wall_ns, errors: read(Some(said)), ..used })
}

/// The same as [`run`], with what the machine's counters say of it where there are any, and how much of its
/// time its allocator takes.
pub fn run_counted(
    command: &mut Command,
    limit: Option<Duration>,
    contender: &Contender,
    counted: &mut Map<String, Value>,
) -> Result<Ended, String> {
    // Threads that it makes before a counter observes it would never be seen.
    let counters = Counters::of(Target::NextChild);
    let malloc = MallocTime::of(Target::NextChild, contender);
    let ended = run(command, limit)?;
    counters.record(counted);
    if let Some(malloc) = malloc {
        malloc.record(ended.pid, counted);
    }
    Ok(ended)
}

impl Ended {
    /// The output of a command that succeeded, else why it did not.
    pub fn success(self) -> Result<Self, String> {
        if self.status.success() {
            return Ok(self);
        }
        let last = self.errors.trim().lines().last().unwrap_or("");
        Err(format!("{}{}{last}", self.status, if last.is_empty() { "" } else { ": " }))
    }
}

fn read(pipe: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        // What could be read until an error is what there is.
        let _ = pipe.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Waits for a child for which no other thread waits: how it ended, and what it used.
fn wait(child: &mut Child, until: Option<Instant>) -> Result<Ended, String> {
    let pid = child.id() as libc::pid_t;
    let options = if until.is_some() { libc::WNOHANG } else { 0 };
    let mut status = 0;
    // SAFETY: an all-zero `rusage` is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both places are valid for the results.
        let done = unsafe { libc::wait4(pid, &mut status, options, &mut usage) };
        match (done, until) {
            (done, _) if done < 0 => return Err(std::io::Error::last_os_error().to_string()),
            (0, Some(until)) if Instant::now() < until => std::thread::sleep(LOOK_INTERVAL),
            (0, _) => return Err("given up: it takes too long".into()),
            _ => break,
        }
    }
    let nanoseconds = |time: libc::timeval| time.tv_sec as f64 * 1e9 + time.tv_usec as f64 * 1e3;
    Ok(Ended {
        pid: child.id(),
        status: ExitStatus::from_raw(status),
        cpu_ns: nanoseconds(usage.ru_utime) + nanoseconds(usage.ru_stime),
        wall_ns: 0.0,
        peak_bytes: usage.ru_maxrss as u64 * 1024,
        faults: (usage.ru_minflt + usage.ru_majflt) as u64,
        output: String::new(),
        errors: String::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Option<Duration>) -> Result<Ended, String> {
        run(Command::new("sh").args(["-c", script]), limit)
    }

    #[test]
    fn output_and_exit_code() {
        let ended = shell("echo out; echo err >&2; exit 3", Some(Duration::from_secs(10))).unwrap();
        assert_eq!(ended.status.code(), Some(3));
        assert_eq!((ended.output.as_str(), ended.errors.as_str()), ("out\n", "err\n"));
        assert!(ended.cpu_ns > 0.0 && ended.wall_ns > 0.0);
        assert!(ended.success().err().unwrap().ends_with("err"));
    }

    #[test]
    fn without_a_limit_too() {
        assert!(shell("exit 0", None).unwrap().success().is_ok());
        assert!(run(&mut Command::new("/no/such/program"), None).is_err());
    }

    #[test]
    fn a_hanging_run_is_ended() {
        let why = shell("exec sleep 60", Some(Duration::from_millis(50))).err().unwrap();
        assert!(why.contains("given up"), "{why}");
    }
}
