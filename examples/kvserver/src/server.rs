//! What all threads of the server know: its options and its figures.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rustix::io::Errno;
use spandrel::durable::Error;

use crate::net::acceptor::MOST_CLIENTS;
use crate::saves::Saves;
use crate::watched::Watched;

/// Bytes of requests that one command of the state runs, where the log has its usual length: a quarter of it.
pub const MOST_OF_ROUND: usize = 16 << 20;

/// See the head of this file.
pub struct Server {
    pub started: Instant,
    /// The directory of the state.
    pub directory: PathBuf,
    /// How a batch becomes durable, in words.
    pub medium: String,
    pub threads: usize,
    /// Bytes of requests that one command of the state runs; the last one may go beyond.
    pub most_of_round: usize,
    /// The most clients at a time.
    pub most_clients: usize,
    pub saves: Saves,
    /// Clients must say this first.
    pub password: Option<String>,
    /// Keys that are there, expired ones too.
    pub keys: AtomicI64,
    pub clients: AtomicUsize,
    /// The number of the last client.
    pub last_client: AtomicU64,
    pub commands: AtomicU64,
    /// Writes that were refused.
    pub refused: AtomicU64,
    pub expired: AtomicU64,
    pub watched: Watched,
    /// The latest time that a command has had.
    clock: AtomicU64,
    /// The disk was full: the state accepts no writes, until it is opened anew.
    pub is_full: AtomicBool,
    /// The server ends to open the state anew.
    pub reopens: AtomicBool,
    is_ending: AtomicBool,
}

impl Server {
    pub fn new(
        directory: PathBuf,
        medium: String,
        threads: usize,
        password: Option<String>,
    ) -> Self {
        Self {
            started: Instant::now(),
            directory,
            medium,
            threads,
            most_of_round: MOST_OF_ROUND,
            most_clients: MOST_CLIENTS,
            saves: Saves::new(None),
            password,
            keys: AtomicI64::new(0),
            clients: AtomicUsize::new(0),
            last_client: AtomicU64::new(0),
            commands: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            expired: AtomicU64::new(0),
            watched: Watched::default(),
            clock: AtomicU64::new(0),
            is_full: AtomicBool::new(false),
            reopens: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
        }
    }

    /// The time of a command, in milliseconds since 1970: no command has an earlier one than those before it, or a key that one has seen expired would be there for the next. To be called within the
    /// command, which waits for others before.
    pub fn time(&self) -> u64 {
        let now = now();
        self.clock.fetch_max(now, Relaxed).max(now)
    }

    /// Notes why a write was refused.
    pub fn note_refusal(&self, why: &Error) {
        if let Error::Full(number) | Error::Poisoned(number) | Error::System(number) = why {
            // Of a quota that is used up the disk does not tell when it has room.
            self.is_full.fetch_or(*number == Errno::NOSPC.raw_os_error(), Relaxed);
        }
    }

    /// Has all threads end.
    pub fn end(&self) {
        self.is_ending.store(true, Relaxed);
    }

    pub fn is_ending(&self) -> bool {
        self.is_ending.load(Relaxed)
    }
}

/// Milliseconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_does_not_go_back() {
        let server = Server::new("none".into(), "memory".into(), 1, None);
        let before = server.time();
        // The clock is set back.
        let later = before + 3_600_000;
        server.clock.store(later, Relaxed);
        assert_eq!((server.time(), server.time()), (later, later));
    }
}
