//! Servers and clients for the tests: this one, and Redis itself as the oracle.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use redis_protocol::resp2::decode::decode;
pub use redis_protocol::resp2::types::OwnedFrame as Frame;

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

/// A client's connection.
pub struct Client {
    pub stream: UnixStream,
    buffer: Vec<u8>,
}

impl Client {
    pub fn new(socket: &Path) -> Self {
        Self::of(UnixStream::connect(socket).unwrap())
    }

    pub fn of(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream, buffer: Vec::new() }
    }

    /// Sends a request. False: the server has gone.
    pub fn send<W: AsRef<[u8]>>(&mut self, words: &[W]) -> bool {
        self.stream.write_all(&encoded(words)).is_ok()
    }

    /// The next reply; `None`: the server has gone.
    pub fn try_receive(&mut self) -> Option<Frame> {
        loop {
            if let Some((frame, taken)) = decode(&self.buffer).expect("a reply") {
                self.buffer.drain(..taken);
                return Some(frame);
            }
            let mut room = [0; 1 << 16];
            match self.stream.read(&mut room) {
                Ok(0) => return None,
                Ok(count) => self.buffer.extend_from_slice(&room[..count]),
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) if why.kind() == ErrorKind::ConnectionReset => return None,
                Err(why) => panic!("no reply: {why}"),
            }
        }
    }

    pub fn receive(&mut self) -> Frame {
        self.try_receive().expect("the server is there")
    }

    pub fn call<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Frame {
        assert!(self.send(words), "the server is there");
        self.receive()
    }

    /// As [`Client::call`], with the words of a line.
    pub fn line(&mut self, line: &str) -> Frame {
        self.call(&line.split(' ').collect::<Vec<_>>())
    }

    /// The reply of a line that is an integer.
    pub fn integer(&mut self, line: &str) -> i64 {
        match self.line(line) {
            Frame::Integer(number) => number,
            other => panic!("{line}: {other:?}"),
        }
    }

    /// The reply of a line as text.
    pub fn text(&mut self, line: &str) -> String {
        text(&self.line(line))
    }
}

/// A reply as text: that of a string, or how it is written.
pub fn text(frame: &Frame) -> String {
    match frame {
        Frame::SimpleString(bytes) | Frame::BulkString(bytes) => {
            String::from_utf8_lossy(bytes).into_owned()
        }
        Frame::Error(text) => text.clone(),
        Frame::Integer(number) => number.to_string(),
        Frame::Null => "(nil)".to_owned(),
        Frame::Array(frames) => {
            format!("[{}]", frames.iter().map(text).collect::<Vec<_>>().join(" "))
        }
    }
}

/// A request as bytes.
pub fn encoded<W: AsRef<[u8]>>(words: &[W]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.as_ref().len()).as_bytes());
        bytes.extend_from_slice(word.as_ref());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}
