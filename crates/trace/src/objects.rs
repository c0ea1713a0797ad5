//! Requests by objects instead of addresses, in an order in which they can be made again.

use crate::content::Trace;
use crate::error::Error;
use crate::events::{Events, Happened};
use spandrel_recorder::Event;
use std::collections::HashMap;

/// What a program asks for. Objects have numbers, which are used again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// It gets an object.
    Allocate {
        /// Its number.
        id: u32,
        /// Bytes asked for.
        size: u64,
        /// Logarithm of the alignment asked for, to base 2; 0: the usual one.
        align_log2: u8,
        /// It is to be zero.
        zeroed: bool,
    },
    /// It gives one back.
    Free {
        /// Its number.
        id: u32,
        /// Bytes last asked for.
        size: u64,
    },
    /// It gives one another size.
    Resize {
        /// Its number.
        id: u32,
        /// Bytes asked for.
        size: u64,
        /// Bytes asked for before.
        old_size: u64,
        /// Whether it has another address now.
        moved: bool,
    },
}

/// A request, its time and its thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// Nanoseconds since the recording began.
    pub ns: u64,
    /// The thread's number.
    pub thread: u32,
    /// What was asked for.
    pub request: Request,
}

/// What cannot be told as requests, and why that may be.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Unmatched {
    /// Objects that were freed or resized but not made: before the recording began, or by the C
    /// library for itself.
    pub unknown: u64,
    /// Objects that were made where one lives: its end was not recorded.
    pub lost_ends: u64,
    /// Reallocations that failed.
    pub refused: u64,
}

/// The requests of a recording.
pub struct Objects<'a> {
    events: Events<'a>,
    /// Objects that live, by their addresses.
    living: HashMap<u64, Object>,
    /// What each thread is resizing.
    pending: HashMap<u32, Pending>,
    free_ids: Vec<u32>,
    next_id: u32,
    /// A request that follows before the next event is read.
    next: Option<Step>,
    /// What could not be told.
    pub unmatched: Unmatched,
}

#[derive(Clone, Copy)]
struct Object {
    id: u32,
    size: u64,
}

struct Pending {
    address: u64,
    /// `None`: an object from before the recording.
    object: Option<Object>,
    size: u64,
}

impl<'a> Objects<'a> {
    /// The requests of a recording, from its beginning.
    pub fn new(trace: &'a Trace) -> Self {
        Self {
            events: trace.events(),
            living: HashMap::new(),
            pending: HashMap::new(),
            free_ids: Vec::new(),
            next_id: 0,
            next: None,
            unmatched: Unmatched::default(),
        }
    }

    /// The largest number of objects that have lived at once.
    pub fn most_ids(&self) -> u32 {
        self.next_id
    }

    fn born(&mut self, address: u64, size: u64) -> u32 {
        let id = self.free_ids.pop().unwrap_or_else(|| {
            self.next_id += 1;
            self.next_id - 1
        });
        self.living.insert(address, Object { id, size });
        id
    }

    /// Ends an object whose place another one has now.
    fn displace(&mut self, address: u64) -> Option<Request> {
        let object = self.living.remove(&address)?;
        self.unmatched.lost_ends += 1;
        self.free_ids.push(object.id);
        Some(Request::Free { id: object.id, size: object.size })
    }

    /// What an event comes to: nothing, a request, or two.
    fn tell(&mut self, happened: &Happened) -> (Option<Request>, Option<Request>) {
        match happened.event {
            Event::Allocate { address, size, align_log2, zeroed } => {
                let displaced = self.displace(address);
                let id = self.born(address, size);
                let request = Some(Request::Allocate { id, size, align_log2, zeroed });
                if displaced.is_some() { (displaced, request) } else { (request, None) }
            }
            Event::Free { address } => match self.living.remove(&address) {
                Some(object) => {
                    self.free_ids.push(object.id);
                    (Some(Request::Free { id: object.id, size: object.size }), None)
                }
                None => {
                    self.unmatched.unknown += 1;
                    (None, None)
                }
            },
            Event::Resize { address, size } => {
                let object = self.living.remove(&address);
                self.pending.insert(happened.thread, Pending { address, object, size });
                (None, None)
            }
            Event::Resized { address } => self.resized(happened.thread, address),
            _ => (None, None),
        }
    }

    fn resized(&mut self, thread: u32, address: u64) -> (Option<Request>, Option<Request>) {
        let Some(pending) = self.pending.remove(&thread) else { return (None, None) };
        if address == 0 {
            self.unmatched.refused += 1;
            if let Some(object) = pending.object {
                self.living.insert(pending.address, object);
            }
            return (None, None);
        }
        let size = pending.size;
        let displaced = self.displace(address);
        let request = match pending.object {
            Some(object) => {
                self.living.insert(address, Object { size, ..object });
                let (id, old_size) = (object.id, object.size);
                Request::Resize { id, size, old_size, moved: address != pending.address }
            }
            // From now on it is known.
            None => {
                self.unmatched.unknown += 1;
                let id = self.born(address, size);
                Request::Allocate { id, size, align_log2: 0, zeroed: false }
            }
        };
        if displaced.is_some() { (displaced, Some(request)) } else { (Some(request), None) }
    }
}

impl Iterator for Objects<'_> {
    type Item = Result<Step, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(step) = self.next.take() {
            return Some(Ok(step));
        }
        loop {
            let happened = match self.events.next()? {
                Ok(happened) => happened,
                Err(error) => return Some(Err(error)),
            };
            let step = |request| Step { ns: happened.ns, thread: happened.thread, request };
            if let (Some(first), second) = self.tell(&happened) {
                self.next = second.map(step);
                return Some(Ok(step(first)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::tests::recorded;

    fn allocate(address: u64, size: u64) -> Event {
        Event::Allocate { address, size, align_log2: 0, zeroed: false }
    }

    #[test]
    fn addresses_become_objects() {
        let one = [
            (1, Event::Thread { number: 1 }),
            (1, allocate(16, 10)),
            (2, allocate(32, 20)),
            (3, Event::Resize { address: 16, size: 100 }),
            // Another thread gets its old place before its new one is known.
            (6, Event::Resized { address: 64 }),
            (7, Event::Free { address: 32 }),
            (8, Event::Free { address: 64 }),
        ];
        let two = [
            (4, Event::Thread { number: 2 }),
            (4, allocate(16, 30)),
            (9, Event::Free { address: 16 }),
            (10, Event::Free { address: 16 }),
            (11, Event::Resize { address: 512, size: 5 }),
            (12, Event::Resized { address: 528 }),
        ];
        let trace = Trace::new(recorded(&[(1, &[&one]), (2, &[&two])])).unwrap();
        let mut objects = Objects::new(&trace);
        let requests: Vec<_> =
            objects.by_ref().map(|step| step.map(|step| (step.thread, step.request))).collect();
        let requests: Vec<_> = requests.into_iter().map(Result::unwrap).collect();
        let plain = |id, size| Request::Allocate { id, size, align_log2: 0, zeroed: false };
        assert_eq!(
            requests,
            [
                (1, plain(0, 10)),
                (1, plain(1, 20)),
                (2, plain(2, 30)),
                (1, Request::Resize { id: 0, size: 100, old_size: 10, moved: true }),
                (1, Request::Free { id: 1, size: 20 }),
                (1, Request::Free { id: 0, size: 100 }),
                (2, Request::Free { id: 2, size: 30 }),
                (2, plain(2, 5)),
            ]
        );
        assert_eq!(objects.unmatched, Unmatched { unknown: 2, lost_ends: 0, refused: 0 });
        assert_eq!(objects.most_ids(), 3);
    }

    #[test]
    fn what_fails_or_ends_unseen_is_counted() {
        let events = [
            (1, allocate(16, 10)),
            (2, Event::Resize { address: 16, size: 1 << 60 }),
            (3, Event::Resized { address: 0 }),
            (4, allocate(16, 11)),
            (5, Event::Free { address: 16 }),
        ];
        let trace = Trace::new(recorded(&[(1, &[&events])])).unwrap();
        let mut objects = Objects::new(&trace);
        let requests: Vec<_> = objects.by_ref().map(|step| step.unwrap().request).collect();
        let plain = |id, size| Request::Allocate { id, size, align_log2: 0, zeroed: false };
        let free = |id, size| Request::Free { id, size };
        assert_eq!(requests, [plain(0, 10), free(0, 10), plain(0, 11), free(0, 11)]);
        assert_eq!(objects.unmatched, Unmatched { unknown: 0, lost_ends: 1, refused: 1 });
    }
}
