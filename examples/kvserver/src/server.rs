//! What all threads of the server know: its options, its figures, and the keys that clients watch.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rustix::io::Errno;
use spandrel::durable::Error;

use crate::net::acceptor::MOST_CLIENTS;
use crate::saves::Saves;

/// Bytes of requests that one command of the state runs, where the log has its usual length: a quarter of it.
pub const MOST_OF_ROUND: usize = 16 << 20;

/// See the head of this file.
pub struct Server {
    pub started: Instant,
    /// The directory of the state.
    pub directory: String,
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
    /// The disk was full: the state accepts no writes, until it is opened anew.
    pub is_full: AtomicBool,
    /// The server ends to open the state anew.
    pub reopens: AtomicBool,
    is_ending: AtomicBool,
}

impl Server {
    pub fn new(
        directory: String,
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
            is_full: AtomicBool::new(false),
            reopens: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
        }
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

/// The keys that clients watch, and the number of each one's last change.
///
/// A client enters a key before it reads it. A command that changes the key numbers the change while it runs, so that a read that follows the
/// entry either sees the change or comes before its number. A command that is undone may leave a number: its key counts as changed.
#[derive(Default)]
pub struct Watched {
    /// Entries of the map: commands look at the map only if there are some.
    len: AtomicUsize,
    keys: Mutex<HashMap<Vec<u8>, Watch>>,
    last: AtomicU64,
}

struct Watch {
    clients: usize,
    /// Number of the last change.
    changed: u64,
}

impl Watched {
    /// Enters a key; returns the number of its last change.
    pub fn enter(&self, key: &[u8]) -> u64 {
        let mut keys = self.lock();
        let fresh = Watch { clients: 0, changed: self.last.fetch_add(1, Relaxed) };
        let watch = keys.entry(key.to_vec()).or_insert(fresh);
        watch.clients += 1;
        let changed = watch.changed;
        self.len.store(keys.len(), Relaxed);
        changed
    }

    /// Takes back an entry.
    pub fn leave(&self, key: &[u8]) {
        let mut keys = self.lock();
        if let Some(watch) = keys.get_mut(key) {
            watch.clients -= 1;
            if watch.clients == 0 {
                keys.remove(key);
            }
        }
        self.len.store(keys.len(), Relaxed);
    }

    /// Numbers a change of a key.
    pub fn touch(&self, key: &[u8]) {
        if self.len.load(Relaxed) == 0 {
            return;
        }
        if let Some(watch) = self.lock().get_mut(key) {
            watch.changed = self.last.fetch_add(1, Relaxed);
        }
    }

    /// Numbers a change of all keys that are there.
    pub fn touch_all(&self, is_there: impl Fn(&[u8]) -> bool) {
        for (_, watch) in self.lock().iter_mut().filter(|(key, _)| is_there(key)) {
            watch.changed = self.last.fetch_add(1, Relaxed);
        }
    }

    /// The number of the last change of a key that is entered.
    pub fn changed(&self, key: &[u8]) -> Option<u64> {
        self.lock().get(key).map(|watch| watch.changed)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Vec<u8>, Watch>> {
        self.keys.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_seen_by_those_that_watch() {
        let watched = Watched::default();
        watched.touch(b"a");
        assert_eq!(watched.changed(b"a"), None);
        let first = watched.enter(b"a");
        assert_eq!(watched.changed(b"a"), Some(first));
        watched.touch(b"b");
        assert_eq!(watched.changed(b"a"), Some(first));
        watched.touch(b"a");
        let second = watched.changed(b"a");
        assert_ne!(second, Some(first));
        assert_eq!(Some(watched.enter(b"a")), second);
        watched.touch_all(|key| key != b"a");
        assert_eq!(watched.changed(b"a"), second);
        watched.touch_all(|key| key == b"a");
        assert_ne!(watched.changed(b"a"), second);
        watched.leave(b"a");
        assert!(watched.changed(b"a").is_some());
        watched.leave(b"a");
        assert_eq!((watched.changed(b"a"), watched.len.load(Relaxed)), (None, 0));
    }
}
