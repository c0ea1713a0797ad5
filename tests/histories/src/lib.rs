//! Histories of concurrent clients of a durable store that is killed, and the judge of them.
//!
//! A [`History`] is a file that clients append to: what they call, what is returned, and when the store failed. What was appended stays when the process is killed. [`judge`]
//! runs the program of `judge/`, which searches an order of the calls that explains all results (porcupine, a module of Go). A call that has not returned when the store
//! fails may have been done before the failure, or never: durable linearizability.
//!
//! [`Work`] draws what clients call.

mod judge;
pub mod resp;
mod work;

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use serde_json::{Value, json};

pub use judge::{Verdict, judge};
pub use work::{Command, Work};

/// Nanoseconds of the clock that all processes share.
pub fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid place for the time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// See the head of this file. Threads and processes append to the same file.
#[derive(Debug)]
pub struct History(File);

/// No line of a history is longer.
const LINE_BYTES: u64 = 1 << 20;

/// A call that has not returned yet.
#[derive(Debug)]
pub struct Open(u64);

impl History {
    /// Opens a history, which is made if it is missing.
    ///
    /// # Panics
    /// The file cannot be opened.
    pub fn open(path: &Path) -> Self {
        Self(OpenOptions::new().read(true).append(true).create(true).open(path).unwrap())
    }

    /// One system call: lines do not mix.
    fn append(&self, event: &Value) {
        let mut line = event.to_string();
        line.push('\n');
        (&self.0).write_all(line.as_bytes()).unwrap();
    }

    /// A kill ends a write where a page of the file ends. A call whose line is torn has not begun, and a call
    /// whose return is torn is a maybe. The end of the file is looked at: a history of thousands of kills is long.
    fn remove_torn_line(&self) {
        let len = self.0.metadata().unwrap().len();
        let from = len.saturating_sub(LINE_BYTES);
        let mut end = Vec::new();
        (&self.0)
            .seek(SeekFrom::Start(from))
            .and_then(|_| (&self.0).read_to_end(&mut end))
            .unwrap();
        let whole = end.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
        assert!(whole > 0 || from == 0, "a line is longer than {LINE_BYTES} bytes");
        if whole < end.len() {
            self.0.set_len(from + whole as u64).unwrap();
        }
    }

    /// A client (of 64 at most) is about to have these commands done.
    pub fn call(&self, client: u64, commands: &[Command]) -> Open {
        let at = now();
        let id = at % (1 << 46) * 64 + client;
        let words: Vec<_> = commands.iter().map(Command::words).collect();
        self.append(&json!({ "call": at, "id": id, "client": client, "do": words }));
        Open(id)
    }

    /// The call has returned at that time: a result for each command.
    pub fn returned(&self, call: Open, at: u64, results: &[Option<String>]) {
        self.append(&json!({ "return": at, "id": call.0, "results": results }));
    }

    /// The store has failed, and no client has a call under way.
    pub fn crash(&self) {
        self.crash_since(now());
    }

    /// The same of a store that began to fail at that time: what has returned since does not count.
    pub fn crash_since(&self, at: u64) {
        self.remove_torn_line();
        self.append(&json!({ "crash": at, "until": now() }));
    }
}
