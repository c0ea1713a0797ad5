//! Run one program to its end, within limits, in a process group of its own.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A generous default: the C programs take seconds at most.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(90);
/// A program that needs more than this has run away; the machine of a developer should survive it.
const DEFAULT_MEMORY_CAP_BYTES: u64 = 12 << 30;
/// Stacks of at most so many processes are shown when a group hangs.
const STACKS_SHOWN: usize = 4;

/// One program to run.
pub struct Job {
    command: Command,
    stdin: Option<Vec<u8>>,
    timeout: Duration,
    memory_cap_bytes: u64,
    shown: String,
}

/// How a program ended.
pub struct Finished {
    /// Exit code, if it exited.
    pub code: Option<i32>,
    /// Signal, if one killed it.
    pub signal: Option<i32>,
    /// Everything written to standard output.
    pub stdout: Vec<u8>,
    /// Everything written to standard error.
    pub stderr: Vec<u8>,
    /// Wall time, in steps of up to 20 ms: its end is polled for.
    pub elapsed: Duration,
    /// Processor time, its own and the kernel's on its behalf, with all that it waited for.
    pub cpu: Duration,
    /// Why the harness ended it, with the stacks it found.
    pub stopped: Option<String>,
    shown: String,
}

impl Job {
    /// A job for `program`, found through `PATH` unless it is a path.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(&program);
        // The tests decide what is preloaded and configured, not the shell or the make that started them.
        let ours = std::env::vars_os().map(|(name, _)| name).filter(|name| {
            let name = name.as_encoded_bytes();
            name.starts_with(b"SPANDREL_") && !name.starts_with(b"SPANDREL_TEST_")
        });
        let others =
            ["LD_PRELOAD", "BRUG_ALLOC", "GLIBC_TUNABLES", "MAKEFLAGS", "MAKELEVEL", "MFLAGS"];
        for name in ours.chain(others.map(OsString::from)) {
            command.env_remove(name);
        }
        Self {
            command,
            stdin: None,
            timeout: DEFAULT_TIMEOUT,
            memory_cap_bytes: DEFAULT_MEMORY_CAP_BYTES,
            shown: program.as_ref().to_string_lossy().into_owned(),
        }
    }

    /// Adds one argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.shown.push(' ');
        self.shown.push_str(&arg.as_ref().to_string_lossy());
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        for arg in args {
            self = self.arg(arg);
        }
        self
    }

    /// Sets an environment variable of the program.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.shown.insert_str(
            0,
            &format!("{}={} ", name.as_ref().to_string_lossy(), value.as_ref().to_string_lossy()),
        );
        self.command.env(name, value);
        self
    }

    /// Sets several environment variables.
    pub fn envs(mut self, pairs: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        for (name, value) in pairs {
            self = self.env(name, value);
        }
        self
    }

    /// Sets the folder that the program starts in.
    pub fn dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// Gives the program this standard input (by default it is empty).
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(bytes.into());
        self
    }

    /// Limits the wall time.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Limits the resident memory of the whole process group.
    pub fn memory_cap(mut self, bytes: u64) -> Self {
        self.memory_cap_bytes = bytes;
        self
    }

    /// Starts the program without waiting; what it writes goes to files in a temporary folder.
    pub fn start(mut self) -> Running {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let stdout = folder.path().join("stdout");
        let stderr = folder.path().join("stderr");
        self.command.stdin(match &self.stdin {
            None => Stdio::null(),
            Some(bytes) => {
                let path = folder.path().join("stdin");
                File::create(&path).and_then(|mut f| f.write_all(bytes)).expect("write stdin");
                Stdio::from(File::open(&path).expect("open stdin"))
            }
        });
        self.command.stdout(File::create(&stdout).expect("create stdout file"));
        self.command.stderr(File::create(&stderr).expect("create stderr file"));
        self.command.process_group(0);
        // SAFETY: between fork and exec only system calls are made.
        unsafe {
            self.command.pre_exec(|| {
                // The child of a test that was killed itself is of no use to anybody.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                // Tests that run in a shell's background inherit signals that are ignored.
                for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
                    libc::signal(signal, libc::SIG_DFL);
                }
                Ok(())
            });
        }
        let started = Instant::now();
        let child =
            self.command.spawn().unwrap_or_else(|e| panic!("cannot start {}: {e}", self.shown));
        Running {
            child,
            reaped: false,
            started,
            timeout: scaled(self.timeout),
            memory_cap_bytes: self.memory_cap_bytes,
            stdout,
            stderr,
            _folder: folder,
            shown: self.shown,
        }
    }

    /// Runs the program to its end.
    pub fn run(self) -> Finished {
        self.start().wait()
    }
}

fn scaled(limit: Duration) -> Duration {
    let factor = std::env::var("SPANDREL_TEST_SLOW").ok().and_then(|v| v.parse::<f64>().ok());
    limit.mul_f64(factor.unwrap_or(1.0).max(0.1))
}

/// A program that was started.
pub struct Running {
    child: Child,
    reaped: bool,
    started: Instant,
    timeout: Duration,
    memory_cap_bytes: u64,
    stdout: PathBuf,
    stderr: PathBuf,
    _folder: tempfile::TempDir,
    shown: String,
}

impl Running {
    /// Its process id, which is also the id of its group.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// True once it has ended.
    pub fn has_ended(&self) -> bool {
        has_exited(self.child.id())
    }

    /// What it has written to standard output so far.
    pub fn stdout_so_far(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.stdout).unwrap_or_default()).into_owned()
    }

    /// What it has written to standard error so far.
    pub fn stderr_so_far(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.stderr).unwrap_or_default()).into_owned()
    }

    /// Waits for its end or for a limit; nothing of its group is left alive.
    pub fn wait(mut self) -> Finished {
        let pid = self.child.id();
        let mut pause = Duration::from_micros(500);
        let mut last_memory_check = Instant::now();
        let mut stopped = None;
        while !has_exited(pid) {
            if self.started.elapsed() > self.timeout {
                stopped =
                    Some(format!("no end within {:?}\n{}", self.timeout, stacks_of_group(pid)));
                break;
            }
            if last_memory_check.elapsed() > Duration::from_millis(100) {
                last_memory_check = Instant::now();
                let rss = group_rss_bytes(pid);
                if rss > self.memory_cap_bytes {
                    stopped = Some(format!("resident memory ran away: {} MiB", rss >> 20));
                    break;
                }
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
        let elapsed = self.started.elapsed();
        // The leader is not reaped yet, so its id still names this group and no other.
        kill_group(pid);
        let (status, cpu) = reap(pid);
        self.reaped = true;
        Finished {
            code: status.code(),
            signal: status.signal(),
            stdout: std::fs::read(&self.stdout).unwrap_or_default(),
            stderr: std::fs::read(&self.stderr).unwrap_or_default(),
            elapsed,
            cpu,
            stopped,
            shown: std::mem::take(&mut self.shown),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.reaped {
            kill_group(self.child.id());
            let _ = self.child.wait();
        }
    }
}

impl Finished {
    /// True if it exited with 0 and the harness had no reason to end it.
    pub fn ok(&self) -> bool {
        self.stopped.is_none() && self.code == Some(0)
    }

    /// Fails the test unless the program exited with 0.
    #[track_caller]
    pub fn expect_ok(self) -> Self {
        assert!(self.ok(), "{self}");
        self
    }

    /// Fails the test unless the program exited with `code`.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Self {
        assert!(self.stopped.is_none() && self.code == Some(code), "expected exit {code}: {self}");
        self
    }

    /// Standard output as text.
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text.
    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// The lines of standard error that the library wrote.
    pub fn library_lines(&self) -> Vec<String> {
        self.err().lines().filter(|l| l.starts_with("spandrel: ")).map(str::to_owned).collect()
    }
}

impl fmt::Display for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.shown)?;
        match (self.code, self.signal) {
            (Some(code), _) => writeln!(f, "  exit code {code} after {:?}", self.elapsed)?,
            (_, Some(signal)) => {
                writeln!(f, "  killed by signal {signal} after {:?}", self.elapsed)?
            }
            _ => writeln!(f, "  ended in an unknown way")?,
        }
        if let Some(why) = &self.stopped {
            writeln!(f, "  ended by the harness: {why}")?;
        }
        writeln!(f, "--- standard output\n{}", ends(&self.out()))?;
        write!(f, "--- standard error\n{}", ends(&self.err()))
    }
}

/// The first and the last part of a long text.
fn ends(text: &str) -> String {
    const PART: usize = 4000;
    if text.len() <= 2 * PART {
        return text.to_owned();
    }
    let head = text.floor_char_boundary(PART);
    let tail = text.ceil_char_boundary(text.len() - PART);
    format!("{}\n[... {} bytes ...]\n{}", &text[..head], tail - head, &text[tail..])
}

fn has_exited(pid: u32) -> bool {
    // SAFETY: `info` is plain data for which all zeroes is a value; waitid writes only to it.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        libc::waitid(libc::P_PID, pid, &mut info, flags) == 0 && info.si_pid() != 0
    }
}

/// Takes leave of a child that has ended or will: how it ended, and the processor time it took.
fn reap(pid: u32) -> (ExitStatus, Duration) {
    // SAFETY: `usage` is plain data for which all zeroes is a value; wait4 writes only to it and
    // to `status`.
    unsafe {
        let mut status = 0;
        let mut usage: libc::rusage = std::mem::zeroed();
        let pid = pid as libc::pid_t;
        while libc::wait4(pid, &mut status, 0, &mut usage) != pid {
            let error = std::io::Error::last_os_error();
            assert_eq!(error.raw_os_error(), Some(libc::EINTR), "wait for a child: {error}");
        }
        let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
        (ExitStatus::from_raw(status), time(usage.ru_utime) + time(usage.ru_stime))
    }
}

fn kill_group(pid: u32) {
    // SAFETY: a system call without memory arguments; the group is one that this harness made.
    unsafe { libc::kill(-(pid as libc::pid_t), libc::SIGKILL) };
}

/// Processes of the group, read from `/proc`.
fn group_members(group: u32) -> Vec<u32> {
    let mut members = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        // The command name may hold spaces and parentheses; the fields start after the last one.
        let fields = stat.rsplit(')').next().unwrap_or_default();
        if fields.split_whitespace().nth(2).and_then(|g| g.parse().ok()) == Some(group) {
            members.push(pid);
        }
    }
    members
}

fn group_rss_bytes(group: u32) -> u64 {
    let page_bytes = 4096;
    group_members(group)
        .iter()
        .filter_map(|pid| std::fs::read_to_string(format!("/proc/{pid}/statm")).ok())
        .filter_map(|statm| statm.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()))
        .map(|pages| pages * page_bytes)
        .sum()
}

/// The stacks of a group that hangs, if a debugger is installed.
fn stacks_of_group(group: u32) -> String {
    let mut text = String::new();
    for pid in group_members(group).into_iter().take(STACKS_SHOWN) {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        text.push_str(&format!("--- stacks of {pid} {}\n", name.trim()));
        // `timeout` is coreutils': a debugger that hangs on a stuck process must not hang the test.
        let output = Command::new("timeout")
            .args(["-k", "2", "15", "gdb", "-batch", "-nx", "-p", &living_thread(pid).to_string()])
            .args(["-ex", "set pagination off", "-ex", "thread apply all bt 24"])
            .stdin(Stdio::null())
            .output();
        match output {
            Ok(o) => {
                let all = String::from_utf8_lossy(&o.stdout).into_owned();
                let shown: Vec<&str> =
                    all.lines().filter(|l| l.starts_with('#') || l.starts_with("Thread")).collect();
                text.push_str(&shown[..shown.len().min(200)].join("\n"));
                text.push('\n');
            }
            Err(e) => text.push_str(&format!("(no debugger: {e})\n")),
        }
    }
    text
}

/// A thread of the process that a debugger can hold on to: not a main thread that has ended.
fn living_thread(pid: u32) -> u32 {
    let is_living = |thread: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/stat"));
        // The name, in parentheses, may hold anything.
        stat.is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().starts_with(" Z"))
    };
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    let mut threads = threads.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    threads.find(is_living).unwrap_or(pid)
}

/// Seconds, for brevity in the tests.
pub const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}
