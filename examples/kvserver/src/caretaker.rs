//! The caretaker: a thread that removes expired keys and the elements of deleted collections, in slices.

use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use spandrel::durable::Durable;

use crate::commands::Context;
use crate::keyspace::records;
use crate::keyspace::state::State;
use crate::reply::Out;
use crate::server::{self, Server};

/// How often it looks.
const PERIOD: Duration = Duration::from_millis(100);
/// The most records of a slice: commands of clients wait for no more than these.
const SLICE: usize = 200;

/// Works until the server ends; the end wakes the thread.
pub fn run(server: &Server, db: &Durable<State>) {
    let mut client = db.client();
    while !server.is_ending() {
        let now = server::now();
        let mut more = client.read(|data| records::needs_cleaning(data, now));
        while more && !server.is_ending() {
            let cleaned = client.write(|data| {
                let mut context = Context::new(server, now, 0, Out::default());
                let more = records::clean(&mut context, data, SLICE);
                (more, context.keys)
            });
            // What is refused now is tried again after a period.
            let (cleaned, keys) = cleaned.map_or((Ok(false), 0), |cleaned| cleaned);
            server.keys.fetch_add(keys, Relaxed);
            server.expired.fetch_add(keys.unsigned_abs(), Relaxed);
            more = cleaned.unwrap_or(false);
        }
        thread::park_timeout(PERIOD);
    }
}
