//! Copies of a state that are wanted, by this process or another, on their way to the thread that makes them.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::os::unix::net::UnixStream;
use std::prelude::v1::*;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use spandrel_durable::copy::{Copy, Whole};
use spandrel_durable::directory::Paths;
use spandrel_durable::requests::Listener;
use spandrel_os::locks;
use spandrel_os::signals::Blocked;

use super::requests;

/// How often the thread looks for requests of other processes.
const LOOKS: Duration = Duration::from_millis(250);
/// Requests of other processes that are answered at a time.
const MOST: usize = 8;

/// How far a copy is. The thread gives it up when nothing else has this.
#[derive(Default)]
pub(super) struct Progress {
    /// Bytes that the copy has, and all.
    pub done: AtomicU64,
    pub all: AtomicU64,
}

/// A copy that is wanted.
pub(super) struct Request {
    pub copy: Copy,
    /// The position of the log that the copy has at least; unknown until the thread has taken the request.
    pub least: Option<u64>,
    pub reply: Sender<Whole>,
    progress: Arc<Progress>,
    /// Dropped with the request.
    _under_way: Arc<()>,
}

impl Request {
    /// Tells how far the copy is.
    pub fn tell(&self, all: u64) {
        self.progress.done.store(self.copy.copied(), Relaxed);
        self.progress.all.store(all, Relaxed);
    }

    /// Whether nothing waits for the copy any more.
    pub fn is_given_up(&self) -> bool {
        Arc::strong_count(&self.progress) == 1
    }
}

/// A copy on its way to the thread that has asked for it.
pub(super) struct Wanted {
    whole: Receiver<Whole>,
    pub progress: Arc<Progress>,
}

impl Wanted {
    /// Waits for the copy. `None`: no thread makes copies.
    pub fn wait(&self) -> Option<Whole> {
        self.whole.recv().ok()
    }

    /// Waits for the copy, for that time at most.
    pub fn wait_for(&self, time: Duration) -> Result<Whole, RecvTimeoutError> {
        self.whole.recv_timeout(time)
    }
}

/// The copies that are wanted.
#[derive(Clone)]
pub(super) struct Copies {
    waiting: Arc<Mutex<Waiting>>,
    /// `None`: the directory cannot have a socket.
    listener: Option<Arc<Listener>>,
    /// Each thread that answers another process has a share of it.
    answering: Arc<()>,
}

#[derive(Default)]
struct Waiting {
    requests: VecDeque<Request>,
    looked: Option<Instant>,
    /// No thread makes copies now.
    is_over: bool,
    /// Each request has a share of it.
    under_way: Arc<()>,
}

impl Copies {
    /// Of a state that has a directory with these paths: other processes may ask for copies from now on.
    pub fn new(paths: &Paths) -> Self {
        let listener = Listener::new(paths).ok().map(Arc::new);
        Self { waiting: Arc::default(), listener, answering: Arc::default() }
    }

    fn with<T>(&self, work: impl FnOnce(&mut Waiting) -> T) -> T {
        work(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Asks for a copy, which arrives later; without one no thread makes copies now.
    pub fn ask(&self, copy: Copy) -> Wanted {
        let (reply, whole) = channel();
        let progress = Arc::new(Progress::default());
        let wanted = Wanted { whole, progress: Arc::clone(&progress) };
        self.with(|waiting| {
            if !waiting.is_over {
                let _under_way = Arc::clone(&waiting.under_way);
                let request = Request { copy, least: None, reply, progress, _under_way };
                waiting.requests.push_back(request);
            }
        });
        wanted
    }

    /// The next copy to make.
    pub fn next(&self) -> Option<Request> {
        self.with(|waiting| waiting.requests.pop_front())
    }

    /// Whether no copy is wanted or being made.
    pub fn are_none(&self) -> bool {
        self.with(|waiting| Arc::strong_count(&waiting.under_way) == 1)
    }

    /// A thread makes copies from now on.
    pub fn begin(&self) {
        self.with(|waiting| waiting.is_over = false);
    }

    /// No thread does.
    pub fn end(&self) {
        self.with(|waiting| {
            waiting.is_over = true;
            waiting.requests.clear();
        });
    }

    /// Looks for requests of other processes, each of which another thread reads and answers.
    pub fn accept(&self, now: Instant) {
        let Some(listener) = &self.listener else { return };
        let is_due = |waiting: &mut Waiting| {
            let is_due = waiting.looked.is_none_or(|looked| now - looked >= LOOKS);
            if is_due {
                waiting.looked = Some(now);
            }
            is_due
        };
        if !self.with(is_due) {
            return;
        }
        while Arc::strong_count(&self.answering) <= MOST {
            let Some(stream) = listener.accept() else { return };
            // SAFETY: the stream belongs to the caller.
            self.answer(unsafe { UnixStream::from_raw_fd(stream) });
        }
    }

    fn answer(&self, mut stream: UnixStream) {
        let (copies, share) = (self.clone(), Arc::clone(&self.answering));
        let _blocked = Blocked::all();
        // Without a thread the stream is closed, which tells the other process.
        let _ = std::thread::Builder::new().name("spandrel-copy".into()).spawn(move || {
            let _share = share;
            // A child that outlives this process must not have the other one wait for it.
            locks::note(stream.as_raw_fd());
            requests::answer(&mut stream, &copies);
            locks::forget(stream.as_raw_fd());
        });
    }

    /// No other process can ask any more.
    pub fn close(&self) {
        self.listener.iter().for_each(|listener| listener.close());
    }
}
