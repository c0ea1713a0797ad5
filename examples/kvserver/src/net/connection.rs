//! A connection: bytes that have come, steps that are planned, replies that have not left.

use std::io::{self, ErrorKind, Read, Write};
use std::ops::Range;

use super::protocol::{Malformed, Parser};
use super::session::{self, Planned, Session, Step};
use super::stream::Stream;
use crate::commands::Table;
use crate::keyspace::Keyspace;
use crate::reply::Out;
use crate::server::Server;

/// The most bytes of requests that are not whole.
const MOST_INPUT: usize = 1 << 30;
/// Bytes that a connection reads before others have a turn, and steps that it plans.
const TURN: usize = 4 << 20;
const STEPS: usize = 1024;
/// A client that leaves more bytes of replies unread than this is read no more.
pub const MOST_WAITING: usize = 1 << 20;
/// An idle connection keeps no more room than this.
const KEPT: usize = 256 << 10;

/// See the head of this file.
pub struct Connection<K: 'static> {
    pub stream: Stream,
    pub session: Session<K>,
    input: Vec<u8>,
    parser: Parser,
    /// Arguments of the requests that have steps, by the step's number.
    requests: Vec<Range<usize>>,
    pub steps: Vec<Step<K>>,
    /// Steps that were done, and bytes of `said` that belong to them.
    pub done: (usize, usize),
    /// What is to be done when the steps are.
    next: Option<Need>,
    /// Replies that were known when the steps were planned.
    pub said: Out,
    pub output: Out,
    /// Bytes of the output that have left.
    left: usize,
    pub is_readable: bool,
    pub is_writable: bool,
    /// The client's end was closed when the last event came.
    pub has_hung_up: bool,
    /// There may be whole requests among the bytes that have come.
    has_requests: bool,
    /// The client sends no more.
    is_ended: bool,
    /// The socket has failed.
    pub is_broken: bool,
    /// The connection is among those that have a turn.
    pub is_queued: bool,
}

/// What a connection needs before its next request.
pub enum Need {
    Nothing,
    /// The keys of its next request are to be watched.
    Watch(Vec<Vec<u8>>),
    /// A copy of the state is to be made.
    Save,
    Shutdown,
}

impl<K: Keyspace> Connection<K> {
    pub fn new(stream: Stream, server: &Server) -> Self {
        Self {
            stream,
            session: Session::new(server),
            input: Vec::new(),
            parser: Parser::default(),
            requests: Vec::new(),
            steps: Vec::new(),
            done: (0, 0),
            next: None,
            said: Out::default(),
            output: Out::default(),
            left: 0,
            is_readable: true,
            is_writable: true,
            has_hung_up: false,
            has_requests: false,
            is_ended: false,
            is_broken: false,
            is_queued: false,
        }
    }

    /// The arguments of a step's request.
    pub fn args<'c>(&'c self, number: usize, into: &mut Vec<&'c [u8]>) {
        into.clear();
        let request = self.requests.get(number).cloned().unwrap_or(0..0);
        let arguments = self.parser.arguments().get(request).unwrap_or_default();
        into.extend(arguments.iter().map(|argument| &self.input[argument.clone()]));
    }

    pub fn has_steps(&self) -> bool {
        self.done.0 < self.steps.len()
    }

    /// Whether replies wait for the client to read.
    pub fn is_blocked(&self) -> bool {
        self.output.bytes.len() - self.left > MOST_WAITING
    }

    /// Whether the connection can go on now.
    pub fn wants_turn(&self) -> bool {
        let goes_on = self.has_steps() || self.has_requests && !self.session.is_over;
        !self.is_broken
            && !self.is_blocked()
            && (goes_on || self.is_readable && !self.is_ended && !self.session.is_over)
    }

    /// Whether nothing is left to do.
    pub fn is_finished(&self) -> bool {
        let is_over = self.session.is_over || self.is_ended && !self.has_requests;
        self.is_broken || is_over && !self.has_steps() && self.output.bytes.is_empty()
    }

    /// Reads what has come, as much as a turn allows, by way of `room`. While replies or whole requests wait, the socket keeps what
    /// comes.
    pub fn read(&mut self, room: &mut [u8]) {
        if self.has_steps() || self.is_blocked() || self.has_requests && self.input.len() >= TURN {
            return;
        }
        let mut taken = 0;
        while self.is_readable && !self.is_ended && !self.session.is_over && taken < TURN {
            if self.input.len() >= MOST_INPUT {
                self.is_broken = true;
                return;
            }
            match self.stream.read(room) {
                Ok(0) => self.is_ended = true,
                Ok(count) => {
                    self.input.extend_from_slice(&room[..count]);
                    self.has_requests = true;
                    taken += count;
                    // What comes later has an event of its own; the end that came before has none.
                    self.is_readable = count == room.len() || self.has_hung_up;
                }
                Err(why) => match why.kind() {
                    ErrorKind::WouldBlock => self.is_readable = false,
                    ErrorKind::Interrupted => {}
                    _ => {
                        self.is_broken = true;
                        return;
                    }
                },
            }
        }
    }

    /// Plans the requests that have come, if the steps of those before are done.
    pub fn plan(&mut self, server: &Server, table: &Table<K>) -> Need {
        if self.has_steps() || self.is_blocked() {
            return Need::Nothing;
        }
        self.forget();
        if let Some(need) = self.next.take() {
            return need;
        }
        // Replies that are known at once wait for their turn as well.
        while self.has_requests
            && !self.session.is_over
            && self.steps.len() < STEPS
            && self.said.bytes.len() <= MOST_WAITING
        {
            let next = self.parser.next(&mut self.input, self.session.limits());
            let request = match next {
                Ok(Some(request)) => request,
                Ok(None) => {
                    self.has_requests = false;
                    break;
                }
                Err(Malformed(why)) => {
                    let begin = self.said.bytes.len();
                    self.said.error(&format!("ERR {why}"));
                    self.push(Step::Said(self.said.bytes.len() - begin), 0..0);
                    self.session.is_over = true;
                    break;
                }
            };
            let arguments = self.parser.arguments().get(request.clone()).unwrap_or_default();
            let args: Vec<&[u8]> =
                arguments.iter().map(|argument| &self.input[argument.clone()]).collect();
            let number = self.steps.len();
            match self.session.plan(server, table, &mut self.said, (number, &args)) {
                Planned::Step(step) => {
                    self.steps.push(step);
                    self.requests.push(request);
                }
                Planned::Watch => {
                    let need = Need::Watch(args[1..].iter().map(|key| key.to_vec()).collect());
                    return self.put_off(need);
                }
                Planned::Save => return self.put_off(Need::Save),
                Planned::Shutdown => return Need::Shutdown,
            }
        }
        Need::Nothing
    }

    /// What is needed now, or when the steps that are planned are done.
    fn put_off(&mut self, need: Need) -> Need {
        if self.steps.is_empty() {
            return need;
        }
        self.next = Some(need);
        Need::Nothing
    }

    fn push(&mut self, step: Step<K>, request: Range<usize>) {
        self.steps.push(step);
        self.requests.push(request);
    }

    /// Replies to the request that had a need.
    pub fn say(&mut self, write: impl FnOnce(&mut Out)) {
        let begin = self.said.bytes.len();
        write(&mut self.said);
        self.push(Step::Said(self.said.bytes.len() - begin), 0..0);
    }

    /// Bytes of the requests of a step.
    pub fn step_bytes(&self, step: &Step<K>) -> usize {
        match step {
            Step::Said(_) => 0,
            Step::Run(_, number) => {
                let request = self.requests.get(*number).cloned().unwrap_or(0..0);
                let arguments = self.parser.arguments().get(request).unwrap_or_default();
                arguments.iter().map(ExactSizeIterator::len).sum()
            }
            Step::Exec(queue, _) => queue.iter().flat_map(|one| &one.args).map(Vec::len).sum(),
        }
    }

    /// Whether the steps that are left may change the data.
    pub fn writes(&self) -> bool {
        self.steps.iter().skip(self.done.0).any(Step::writes)
    }

    /// Counts steps as done, and bytes of what was said.
    pub fn advance(&mut self, server: &Server, (steps, said): (usize, usize)) {
        let done = self.done.0..self.done.0 + steps;
        for step in self.steps.get_mut(done).unwrap_or_default() {
            if let Step::Exec(_, watched) = step {
                session::leave(server, std::mem::take(watched));
            }
        }
        self.done.0 += steps;
        self.done.1 += said;
    }

    /// Has other clients not wait for this one's watched keys.
    pub fn end(&mut self, server: &Server) {
        let left = self.steps.len() - self.done.0;
        self.advance(server, (left, 0));
        self.session.unwatch(server);
    }

    /// Forgets steps that are done, with their bytes.
    fn forget(&mut self) {
        self.steps.clear();
        self.requests.clear();
        self.said.bytes.clear();
        self.done = (0, 0);
        let taken = self.parser.forget();
        self.input.drain(..taken);
        if self.input.is_empty() && self.input.capacity() > KEPT {
            self.input = Vec::new();
        }
    }

    /// Sends replies, as far as the client takes them.
    pub fn send(&mut self) {
        while self.is_writable && !self.is_broken && self.left < self.output.bytes.len() {
            match self.stream.write(&self.output.bytes[self.left..]) {
                Ok(0) => self.is_broken = true,
                Ok(count) => self.left += count,
                Err(why) => self.refused(&why),
            }
        }
        if self.left == self.output.bytes.len() {
            self.left = 0;
            self.output.bytes.clear();
            if self.output.bytes.capacity() > KEPT {
                self.output.bytes = Vec::new();
            }
        } else if self.left > KEPT && self.left >= self.output.bytes.len() / 2 {
            // A client that is slower than the server never has all of it.
            self.output.bytes.drain(..self.left);
            self.left = 0;
        }
        if !self.has_steps() && !self.has_requests {
            self.forget();
        }
    }

    fn refused(&mut self, why: &io::Error) {
        match why.kind() {
            ErrorKind::WouldBlock => self.is_writable = false,
            ErrorKind::Interrupted => {}
            _ => self.is_broken = true,
        }
    }
}
