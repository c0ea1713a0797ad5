//! Copies of the state, which `BGSAVE` asks for: a thread makes them, one at a time.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use spandrel::durable::Durable;

use crate::keyspace::state::State;
use crate::server;

/// See the head of this file.
pub struct Saves {
    /// The directory that copies are made in; `None`: none are made.
    to: Option<PathBuf>,
    status: Mutex<Status>,
    changed: Condvar,
}

/// What is known of copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// A copy is wanted or made.
    pub is_running: bool,
    /// The last one has failed.
    pub has_failed: bool,
    /// Seconds since 1970: the end of the last one that has not, or the start of the server.
    pub last: u64,
    is_ending: bool,
}

impl Saves {
    pub fn new(to: Option<PathBuf>) -> Self {
        let last = server::now() / 1000;
        let status = Status { is_running: false, has_failed: false, last, is_ending: false };
        Self { to, status: Mutex::new(status), changed: Condvar::new() }
    }

    pub fn status(&self) -> Status {
        *self.lock()
    }

    /// Whether the server makes copies.
    pub fn are_made(&self) -> bool {
        self.to.is_some()
    }

    /// Has a copy be made. False: one is made already.
    pub fn begin(&self) -> bool {
        let was_running = std::mem::replace(&mut self.lock().is_running, true);
        self.changed.notify_all();
        !was_running
    }

    /// Has [`Saves::run`] return.
    pub fn end(&self) {
        self.lock().is_ending = true;
        self.changed.notify_all();
    }

    /// Makes copies until the server ends.
    pub fn run(&self, db: &Durable<State>) {
        let Some(to) = &self.to else { return };
        loop {
            let idle = |status: &mut Status| !status.is_running && !status.is_ending;
            let woken = self.changed.wait_while(self.lock(), idle);
            // A copy that was begun is made first.
            if !woken.unwrap_or_else(PoisonError::into_inner).is_running {
                return;
            }
            let made = make(to, db);
            let mut status = self.lock();
            status.is_running = false;
            status.has_failed = made.is_err();
            match made {
                Ok(()) => status.last = server::now() / 1000,
                Err(why) => complain!("kvserver: no copy: {why}"),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes a copy in a directory of its own, whose name is the time.
fn make(to: &Path, db: &Durable<State>) -> Result<(), String> {
    let words = |why: std::io::Error| format!("{}: {why}", to.display());
    DirBuilder::new().recursive(true).mode(0o700).create(to).map_err(words)?;
    db.copy(to.join(format!("copy-{}", server::now()))).map_err(|why| why.to_string())
}
