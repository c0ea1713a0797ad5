//! The acceptor: a thread that takes connections and deals them to the workers in turn.

use std::io::{self, ErrorKind, Write as _};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Sender;
use std::time::Duration;

use mio::{Events, Interest, Poll, Token, Waker};

use super::stream::{Listener, Stream};
use crate::server::Server;

/// The most clients at a time, if the process may have a descriptor for each.
pub const MOST_CLIENTS: usize = 10_000;
/// How long the system has to find a descriptor, if it has none for a client.
const AGAIN: Duration = Duration::from_millis(100);

/// How a worker gets connections.
pub struct Inbox {
    pub sender: Sender<Stream>,
    pub waker: Waker,
}

/// Takes connections until the server ends. `poll` has its end as an event of [`super::worker::WAKE`].
///
/// # Errors
/// The system's.
pub fn run(
    server: &Server,
    mut poll: Poll,
    mut listeners: Vec<Listener>,
    inboxes: &[Inbox],
) -> io::Result<()> {
    for (number, listener) in listeners.iter_mut().enumerate() {
        poll.registry().register(listener, Token(number), Interest::READABLE)?;
    }
    let mut events = Events::with_capacity(16);
    let mut turns = inboxes.iter().cycle();
    let mut timeout = None;
    loop {
        match poll.poll(&mut events, timeout) {
            Err(why) if why.kind() == ErrorKind::Interrupted => continue,
            polled => polled?,
        }
        if server.is_ending() {
            return Ok(());
        }
        timeout = None;
        for listener in &listeners {
            loop {
                match listener.accept() {
                    Ok(stream) => {
                        if let Some(inbox) = turns.next() {
                            deal(server, stream, inbox)?;
                        }
                    }
                    Err(why) => match why.kind() {
                        ErrorKind::WouldBlock => break,
                        ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {}
                        _ => {
                            timeout = Some(AGAIN);
                            break;
                        }
                    },
                }
            }
        }
    }
}

fn deal(server: &Server, mut stream: Stream, inbox: &Inbox) -> io::Result<()> {
    if server.clients.fetch_add(1, Relaxed) >= server.most_clients {
        server.clients.fetch_sub(1, Relaxed);
        // A client that does not read it sees the end of its connection.
        let _ = stream.write(b"-ERR max number of clients reached\r\n");
        return Ok(());
    }
    // A worker that has ended takes none: the server ends.
    let _ = inbox.sender.send(stream);
    inbox.waker.wake()
}
