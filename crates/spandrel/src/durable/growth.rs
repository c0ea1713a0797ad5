//! Logs that become longer by themselves.
//!
//! Each time that a log is half full, the state's file is synced: all pages that were changed since the last time are written, and for small changes at many places these are many times the
//! log's own bytes. A longer log has fewer such times, and a page that was changed twice is written once. So a log on a disk that is filled soon becomes
//! longer: a thread makes the file beside the commands, and the next batch puts it in the place of the one before.

use std::prelude::v1::*;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use spandrel_durable::directory::Paths;
use spandrel_durable::log_file::{BlankLog, has_plenty};
use spandrel_os::signals::Blocked;

/// A log is short if it is half full again within this time: the disk is busy with the state's file then.
const SOON: Duration = Duration::from_secs(2);
/// A longer log is this many times as long.
const FACTOR: u64 = 4;
/// No log grows by itself beyond this length: recovery reads all of it, which takes a disk some tenths of a second.
const MOST_BYTES: u64 = 256 << 20;
/// Nor beyond this many times the state's length: half of the log is twice the state then, and each page is written once for two changes at least.
const MOST_STATES: u64 = 4;
/// The thread sleeps for this time after each 64 KiB, so that batches find the disk free.
const PAUSE: Duration = Duration::from_micros(250);

/// See the head of this file.
#[derive(Clone)]
pub(super) struct Growth(Arc<Inner>);

struct Inner {
    paths: Paths,
    /// The log lies on a disk, and the program has said no length.
    is_wanted: bool,
    is_ready: AtomicBool,
    is_over: AtomicBool,
    making: Mutex<Making>,
}

#[derive(Default)]
struct Making {
    /// When the log was half full.
    half: Option<Instant>,
    thread: Option<JoinHandle<()>>,
    blank: Option<BlankLog>,
    /// There was no room, or no thread.
    has_failed: bool,
    /// No thread is to begin.
    is_over: bool,
}

impl Growth {
    pub fn new(paths: &Paths, is_wanted: bool) -> Self {
        let (is_ready, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
        let making = Mutex::default();
        Self(Arc::new(Inner { paths: paths.clone(), is_wanted, is_ready, is_over, making }))
    }

    fn making(&self) -> MutexGuard<'_, Making> {
        self.0.making.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The log of that length is half full.
    pub fn note_half(&self, capacity: u64, state_bytes: u64) {
        if !self.0.is_wanted {
            return;
        }
        let mut making = self.making();
        let before = making.half.replace(Instant::now());
        let most = MOST_BYTES.min(state_bytes.saturating_mul(MOST_STATES));
        let wanted = capacity.saturating_mul(FACTOR).min(most);
        let is_soon = before.is_some_and(|before| before.elapsed() < SOON);
        if is_soon
            && making.thread.is_none()
            && !making.is_over
            && !making.has_failed
            && wanted >= 2 * capacity
            && has_plenty(&self.0.paths, wanted)
        {
            let growth = self.clone();
            let _blocked = Blocked::all();
            let made = std::thread::Builder::new()
                .name("spandrel-longer".into())
                .spawn(move || growth.make(wanted));
            making.has_failed = made.is_err();
            making.thread = made.ok();
        }
    }

    fn make(&self, bytes: u64) {
        let blank = BlankLog::new(&self.0.paths, Some(bytes), &mut || {
            std::thread::sleep(PAUSE);
            !self.0.is_over.load(Relaxed)
        });
        let mut making = self.making();
        if making.is_over {
            return;
        }
        making.has_failed = blank.is_err();
        making.blank = blank.ok();
        self.0.is_ready.store(making.blank.is_some(), Release);
    }

    /// Whether there is a longer log.
    pub fn is_ready(&self) -> bool {
        self.0.is_ready.load(Relaxed)
    }

    /// The longer log, once.
    pub fn take(&self) -> Option<BlankLog> {
        let mut making = self.making();
        self.0.is_ready.store(false, Relaxed);
        making.blank.take()
    }

    /// Ends the thread, and forgets what it has made. No other begins before [`Growth::resume`].
    pub fn end(&self) {
        self.0.is_over.store(true, Relaxed);
        let thread = {
            let mut making = self.making();
            making.is_over = true;
            making.thread.take()
        };
        let _ = thread.map(JoinHandle::join);
        self.making().blank = None;
        self.0.is_ready.store(false, Relaxed);
    }

    /// A thread may begin from now on.
    pub fn resume(&self) {
        let mut making = self.making();
        (making.is_over, making.half) = (false, None);
        self.0.is_over.store(false, Relaxed);
    }
}
