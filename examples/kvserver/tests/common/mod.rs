//! Servers and clients for the tests: this one, and Redis itself as the oracle.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::io::{BufRead as _, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

#[allow(unused_imports, reason = "each test uses a part of it")]
pub use spandrel_histories::resp::{Client, Frame, encoded, text};

/// How long a server has to start, and to reply.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that is killed with this.
pub struct Server {
    child: Child,
    socket: PathBuf,
    /// What it said when it was there.
    pub greeting: String,
}

/// The command line of the server for a directory.
pub fn command(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvserver"));
    command.arg(directory).env_remove("KVSERVER_PASSWORD");
    command
}

impl Server {
    /// The server of a directory.
    pub fn start(directory: &Path, args: &[&str]) -> Self {
        let mut command = command(directory);
        command.args(args);
        Self::of(command, directory)
    }

    pub fn of(mut command: Command, directory: &Path) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut greeting = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut greeting).unwrap();
        assert!(greeting.starts_with("kvserver: "), "{greeting:?}");
        Self { child, socket: directory.join("kvserver.sock"), greeting }
    }

    /// Redis, which keeps nothing.
    pub fn redis(directory: &Path) -> Self {
        let socket = directory.join("redis.sock");
        let child = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--dir"])
            .arg(directory)
            .arg("--unixsocket")
            .arg(&socket)
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed by scripts/setup");
        let server = Self { child, socket, greeting: String::new() };
        let since = Instant::now();
        while UnixStream::connect(&server.socket).is_err() {
            assert!(since.elapsed() < PATIENCE, "Redis does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        server
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    pub fn client(&self) -> Client {
        Client::new(&self.socket)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it by a signal that it hears; returns whether it ended well.
    pub fn end(&mut self) -> bool {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        self.wait()
    }

    /// Waits for its end; returns whether it was a good one.
    pub fn wait(&mut self) -> bool {
        let since = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.success();
            }
            assert!(since.elapsed() < PATIENCE, "the server does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
