//! A private server of Redis' protocol for one measurement: on a socket in a directory of its own, gone with the value.

use super::client::{Client, field};
use spandrel_console::shutdown::{Kind, Scratch, dies_with_us, spawn};
use spandrel_measure::contender::Contender;
use spandrel_measure::smaps::{Memory, Resident};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const START_WITHIN: Duration = Duration::from_secs(10);
const STOP_WITHIN: Duration = Duration::from_secs(20);
/// Time between two looks at a server that starts: a part of the time in which one is back.
const LOOKS: Duration = Duration::from_millis(2);

/// The socket's name in the server's directory.
pub const SOCKET: &str = "socket";

/// A `redis-server` whose files lie in that directory, with these arguments beside it (package redis-server).
pub fn redis(directory: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("redis-server");
    command.args(["--port", "0", "--save", "", "--loglevel", "warning"]).args(words);
    command.arg("--unixsocket").arg(directory.join(SOCKET)).arg("--dir").arg(directory);
    command
}

/// The same under `spandrel durable run`: its state lies in that directory too.
pub fn durable(directory: &Path) -> Result<Command, String> {
    let own = std::env::current_exe().map_err(|why| format!("this command: {why}"))?;
    let mut command = Command::new(own);
    let program = redis(directory, &["--appendonly", "no"]);
    command.args(["durable", "run", "--dir"]).arg(directory.join("state"));
    command.arg("--").arg(program.get_program()).args(program.get_args());
    Ok(command)
}

/// A running server. Dropping it kills it.
pub struct Server {
    child: Child,
    /// What errors call it.
    name: &'static str,
    socket: PathBuf,
    _directory: Rc<Scratch<TempDir>>,
}

impl Server {
    /// Starts a `redis-server` without persistence on an allocator and waits until it answers.
    pub fn start(contender: &Contender) -> Result<Self, String> {
        let directory = Scratch::directory(Kind::Redis)
            .map_err(|why| format!("no directory for redis-server: {why}"))?;
        let mut command = redis(directory.path(), &["--appendonly", "no"]);
        contender.prepare(&mut command);
        Self::launch("redis-server", command, Rc::new(directory))
    }

    /// Starts a server that answers at `socket` in that directory, and waits until it does.
    pub fn launch(
        name: &'static str,
        mut command: Command,
        directory: Rc<Scratch<TempDir>>,
    ) -> Result<Self, String> {
        let socket = directory.path().join(SOCKET);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = spawn(dies_with_us(&mut command));
        let child = child.map_err(|why| format!("{name} cannot be started: {why}"))?;
        let mut server = Self { child, name, socket, _directory: directory };
        server.wait_until_ready()?;
        Ok(server)
    }

    fn wait_until_ready(&mut self) -> Result<(), String> {
        let start = Instant::now();
        while start.elapsed() < START_WITHIN {
            if let Ok(mut client) = Client::connect(&self.socket)
                && client.ask("PING").is_ok()
            {
                return Ok(());
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("{} ended at once: {status}", self.name));
            }
            std::thread::sleep(LOOKS);
        }
        Err(format!("{} does not answer", self.name))
    }

    /// Where clients connect.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Nanoseconds of CPU time of all its threads so far.
    pub fn cpu_ns(&self) -> Result<u64, String> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id()))
            .map_err(|why| format!("{} is gone: {why}", self.name))?;
        let of_task = |task: std::fs::DirEntry| {
            let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<u64>().ok()
        };
        Ok(tasks.flatten().filter_map(of_task).sum())
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where its memory is.
    pub fn memory(&self) -> Option<Memory> {
        let pid = self.child.id() as i32;
        Resident::of(pid, &[]).ok().map(|resident| resident.all)
    }

    /// Page faults that took no reading.
    pub fn minor_faults(&self) -> Option<u64> {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).ok()?;
        // Behind the name, which may contain anything: the eighth field.
        text.rsplit_once(") ")?.1.split(' ').nth(7)?.parse().ok()
    }

    /// The most bytes that were resident.
    pub fn peak_rss(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
    }

    /// Sends a command of plain words; the answer if it is text.
    pub fn ask(&self, command: &str) -> Result<String, String> {
        Client::connect(&self.socket)
            .and_then(|mut client| client.ask(command))
            .map_err(|why| why.to_string())
    }

    /// Whether jemalloc serves the server's requests: asked of jemalloc itself,
    /// through the server, once it holds data.
    pub fn is_on_jemalloc(&self) -> Result<bool, String> {
        let info = self.ask("INFO memory")?;
        let used = field(&info, "used_memory").unwrap_or(0);
        // Without jemalloc in the program, Redis gives its own count here.
        let has_jemalloc = info.lines().any(|line| line.starts_with("mem_allocator:jemalloc"));
        let allocated = field(&info, "allocator_allocated").unwrap_or(0);
        Ok(has_jemalloc && allocated > used / 2)
    }

    /// Ends the server in good order, so that it can write what it wants to.
    pub fn stop(mut self) -> Result<(), String> {
        if let Ok(mut client) = Client::connect(&self.socket) {
            // The answer is the end of the connection.
            let _ = client.ask("SHUTDOWN NOSAVE");
        }
        let start = Instant::now();
        while start.elapsed() < STOP_WITHIN {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(format!("{} ended with {status}", self.name)),
                Ok(None) => std::thread::sleep(Duration::from_millis(5)),
                Err(why) => return Err(why.to_string()),
            }
        }
        Err(format!("{} does not end", self.name))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
