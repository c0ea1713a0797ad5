//! Copies of a state that are wanted, on their way to the thread that makes them.

use std::collections::VecDeque;
use std::prelude::v1::*;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use spandrel_durable::copy::{Copy, Whole};

/// A copy that is wanted.
pub(super) struct Request {
    pub copy: Copy,
    /// The position of the log that the copy has at least.
    pub least: u64,
    pub reply: Sender<Whole>,
    /// Dropped with the request.
    _under_way: Arc<()>,
}

/// The copies that are wanted.
#[derive(Clone, Default)]
pub(super) struct Copies(Arc<Mutex<Waiting>>);

#[derive(Default)]
struct Waiting {
    requests: VecDeque<Request>,
    /// No thread makes copies any more.
    is_over: bool,
    /// Each request has a share of it.
    under_way: Arc<()>,
}

impl Copies {
    fn with<T>(&self, work: impl FnOnce(&mut Waiting) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Asks for a copy, which arrives later; without one no thread makes copies any more.
    pub fn ask(&self, copy: Copy, least: u64) -> Receiver<Whole> {
        let (reply, outcome) = channel();
        self.with(|waiting| {
            if !waiting.is_over {
                let _under_way = Arc::clone(&waiting.under_way);
                waiting.requests.push_back(Request { copy, least, reply, _under_way });
            }
        });
        outcome
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
}
