//! A worker: a thread with an event loop and its share of the connections.

use std::io::{self, ErrorKind};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use mio::{Events, Interest, Poll, Token};
use spandrel::durable::Durable;

use super::connection::{Connection, Need};
use super::round::{self, Connections};
use super::stream::Stream;
use crate::commands::Table;
use crate::keyspace::state::State;
use crate::reply::Out;
use crate::server::Server;

/// The event that connections have come, or that the server ends.
pub const WAKE: Token = Token(usize::MAX);
/// Bytes that a connection reads at a time.
const ROOM: usize = 64 << 10;
const EVENTS: usize = 1024;

/// See the head of this file.
pub struct Worker<'s> {
    server: &'s Server,
    table: &'s Table<State>,
    poll: Poll,
    inbox: Receiver<Stream>,
    connections: Connections,
    /// Connections that can go on.
    queue: Vec<usize>,
    room: Box<[u8]>,
}

impl<'s> Worker<'s> {
    pub fn new(
        server: &'s Server,
        table: &'s Table<State>,
        poll: Poll,
        inbox: Receiver<Stream>,
    ) -> Self {
        let room = vec![0; ROOM].into_boxed_slice();
        Self {
            server,
            table,
            poll,
            inbox,
            connections: Connections::new(),
            queue: Vec::new(),
            room,
        }
    }

    /// Serves connections until the server ends.
    ///
    /// # Errors
    /// The system's.
    pub fn run(mut self, db: &Durable<State>) -> io::Result<()> {
        let mut client = db.client();
        let mut events = Events::with_capacity(EVENTS);
        loop {
            let timeout = if self.queue.is_empty() { None } else { Some(Duration::ZERO) };
            match self.poll.poll(&mut events, timeout) {
                Err(why) if why.kind() == ErrorKind::Interrupted => continue,
                polled => polled?,
            }
            if self.server.is_ending() {
                return Ok(());
            }
            for event in events.iter().filter(|event| event.token() != WAKE) {
                let token = event.token().0;
                if let Some(connection) = self.connections.get_mut(token) {
                    connection.is_readable |= event.is_readable() || event.is_read_closed();
                    connection.is_writable |= event.is_writable();
                    connection.has_hung_up |= event.is_read_closed() || event.is_error();
                    queue(&mut self.queue, connection, token);
                }
            }
            self.take_in();
            self.turn(&mut client);
        }
    }

    /// Takes in the connections that have come.
    fn take_in(&mut self) {
        while let Ok(mut stream) = self.inbox.try_recv() {
            let entry = self.connections.vacant_entry();
            let token = entry.key();
            let interests = Interest::READABLE | Interest::WRITABLE;
            if self.poll.registry().register(&mut stream, Token(token), interests).is_err() {
                // The system has no room for one more: this client goes, the others stay.
                self.server.clients.fetch_sub(1, Relaxed);
                continue;
            }
            let connection = entry.insert(Connection::new(stream, self.server));
            queue(&mut self.queue, connection, token);
        }
    }

    /// Has each connection of the queue read, run, and send.
    fn turn(&mut self, client: &mut spandrel::durable::Client<'_, State>) {
        let tokens = std::mem::take(&mut self.queue);
        let (mut readers, mut writers) = (Vec::new(), Vec::new());
        for &token in &tokens {
            let Some(connection) = self.connections.get_mut(token) else { continue };
            connection.is_queued = false;
            connection.send();
            connection.read(&mut self.room);
            match connection.plan(self.server, self.table) {
                Need::Nothing => {}
                Need::Watch(keys) => round::watch(self.server, client, connection, keys),
                Need::Save => connection.say(|out| save(self.server, out)),
                Need::Shutdown => {
                    self.server.end();
                    // The main thread waits for it.
                    let _ = signal_hook::low_level::raise(signal_hook::consts::SIGTERM);
                }
            }
            if connection.has_steps() && !connection.is_blocked() {
                if connection.writes() { &mut writers } else { &mut readers }.push(token);
            }
        }
        round::read(self.server, client, &mut self.connections, &readers);
        self.send(&readers);
        round::write(self.server, client, &mut self.connections, &writers);
        self.send(&writers);
        // First those whose steps had no room in the round, so that no client has all of it.
        let waits = |token: &usize| {
            self.connections.get(*token).is_some_and(|one| one.has_steps() && one.done.0 == 0)
        };
        writers.retain(waits);
        for token in writers.into_iter().chain(tokens) {
            let Some(connection) = self.connections.get_mut(token) else { continue };
            if connection.is_finished() {
                self.end(token);
            } else if connection.wants_turn() {
                queue(&mut self.queue, connection, token);
            }
        }
    }

    fn send(&mut self, tokens: &[usize]) {
        for token in tokens {
            if let Some(connection) = self.connections.get_mut(*token) {
                connection.send();
            }
        }
    }

    fn end(&mut self, token: usize) {
        let mut connection = self.connections.remove(token);
        connection.end(self.server);
        self.server.clients.fetch_sub(1, Relaxed);
        // It is closed in any case.
        let _ = self.poll.registry().deregister(&mut connection.stream);
    }
}

/// Has a copy be made, and says so.
fn save(server: &Server, out: &mut Out) {
    if !server.saves.are_made() {
        out.simple("Every acknowledged write is durable already; --copies DIRECTORY has BGSAVE make copies");
    } else if server.saves.begin() {
        out.simple("Background saving started");
    } else {
        out.error("ERR Background save already in progress");
    }
}

fn queue(queue: &mut Vec<usize>, connection: &mut Connection<State>, token: usize) {
    if !std::mem::replace(&mut connection.is_queued, true) {
        queue.push(token);
    }
}
