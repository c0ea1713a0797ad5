//! Clients that speak Redis' protocol.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use redis_protocol::resp2::decode::decode;
pub use redis_protocol::resp2::types::OwnedFrame as Frame;

use crate::{Command, History, Work, judge, now};

/// How long a reply is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client's connection.
#[derive(Debug)]
pub struct Client {
    /// The connection.
    pub stream: UnixStream,
    buffer: Vec<u8>,
}

impl Client {
    /// Connects to a server's socket.
    ///
    /// # Panics
    /// The server does not listen there.
    pub fn new(socket: &Path) -> Self {
        Self::of(UnixStream::connect(socket).unwrap())
    }

    /// Of a connection.
    ///
    /// # Panics
    /// The connection is none.
    pub fn of(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream, buffer: Vec::new() }
    }

    /// Sends a request. False: the server has gone.
    pub fn send<W: AsRef<[u8]>>(&mut self, words: &[W]) -> bool {
        self.stream.write_all(&encoded(words)).is_ok()
    }

    /// The next reply; `None`: the server has gone.
    ///
    /// # Panics
    /// There is no reply, or none that is one.
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

    /// As [`Client::try_receive`].
    ///
    /// # Panics
    /// The server has gone.
    pub fn receive(&mut self) -> Frame {
        self.try_receive().expect("the server is there")
    }

    /// Sends a request, and waits for the reply.
    ///
    /// # Panics
    /// The server has gone.
    pub fn call<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Frame {
        assert!(self.send(words), "the server is there");
        self.receive()
    }

    /// As [`Client::call`], with the words of a line.
    ///
    /// # Panics
    /// As there.
    pub fn line(&mut self, line: &str) -> Frame {
        self.call(&line.split(' ').collect::<Vec<_>>())
    }

    /// The reply of a line that is an integer.
    ///
    /// # Panics
    /// It is none.
    pub fn integer(&mut self, line: &str) -> i64 {
        match self.line(line) {
            Frame::Integer(number) => number,
            other => panic!("{line}: {other:?}"),
        }
    }

    /// The reply of a line as text.
    ///
    /// # Panics
    /// The server has gone.
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

/// A command in the words of Redis.
fn words(command: &Command) -> Vec<&str> {
    let mut words = command.words();
    words[0] = match words[0] {
        "len" => "STRLEN",
        name => name,
    };
    words
}

/// The result of a reply.
fn result(frame: &Frame) -> Option<String> {
    match frame {
        Frame::Null => None,
        Frame::Error(why) => panic!("{why}"),
        other => Some(text(other)),
    }
}

/// Has commands done, those of more than one as a transaction: their results. `None`: the server has gone.
///
/// # Panics
/// A reply is an error.
pub fn call(client: &mut Client, commands: &[Command]) -> Option<Vec<Option<String>>> {
    if let [command] = commands {
        return client
            .send(&words(command))
            .then(|| client.try_receive())
            .flatten()
            .map(|r| vec![result(&r)]);
    }
    let mut bytes = encoded(&["MULTI"]);
    commands.iter().for_each(|command| bytes.extend(encoded(&words(command))));
    bytes.extend(encoded(&["EXEC"]));
    client.stream.write_all(&bytes).ok()?;
    for _ in 0..=commands.len() {
        client.try_receive()?;
    }
    match client.try_receive()? {
        Frame::Array(frames) => Some(frames.iter().map(result).collect()),
        other => panic!("{other:?}"),
    }
}

/// A client of a history calls until the server has gone.
///
/// # Panics
/// As for [`call`].
pub fn work(socket: &Path, history: &History, mut work: Work, name: u64) {
    let Ok(stream) = UnixStream::connect(socket) else { return };
    let mut client = Client::of(stream);
    loop {
        let commands = work.next_call();
        let open = history.call(name, &commands);
        let Some(results) = call(&mut client, &commands) else { return };
        history.returned(open, now(), &results);
    }
}

/// Reads all keys that rounds have used, and has the history judged: the number of its calls.
///
/// # Panics
/// The history is not linearizable.
pub fn judged(client: &mut Client, history: &History, path: &Path, rounds: u64) -> u64 {
    for command in Work::reads_of_all(rounds) {
        let commands = [command];
        let open = history.call(0, &commands);
        let results = call(client, &commands).expect("the server is there");
        history.returned(open, now(), &results);
    }
    let figures = judge(path).expect_linearizable();
    println!("{rounds} kills: {figures}");
    let calls = figures.split("linearizable: ").nth(1).and_then(|rest| rest.split(' ').next());
    calls.and_then(|calls| calls.parse().ok()).expect("a number of calls")
}
