//! A round: the steps of all connections that are ready, as one command that reads and one that writes.
//!
//! The commands of a round that write share one wait for the disk, as they would in one batch of several threads.

use std::collections::hash_map::Entry;
use std::sync::atomic::Ordering::Relaxed;

use slab::Slab;
use spandrel::durable::{Client, Error};

use super::connection::{Connection, MOST_WAITING};
use super::session::{Step, Watch};
use crate::commands::{self, Args, Command, Context};
use crate::keyspace::state::State;
use crate::keyspace::{Keyspace, records};
use crate::reply::Out;
use crate::server::Server;
use crate::watched::Touches;

/// Bytes of a transaction's reply behind which nothing more is read, and replies of writes are left out.
const MOST_OF_EXEC: usize = 1 << 30;

/// A reply of no more bytes is always there.
const MOST_OF_NOTE: usize = 1 << 10;

/// The connections of a worker.
pub type Connections = Slab<Connection<State>>;

/// Steps that were done, and bytes of what was said.
type Progress = (usize, usize);

/// What may still be run.
struct Rest {
    steps: usize,
    /// Bytes of requests; the last one may go beyond.
    bytes: usize,
}

impl Rest {
    /// That number of steps.
    fn steps(steps: usize) -> Self {
        Self { steps, bytes: usize::MAX }
    }
}

/// The data, as a round has it.
enum Data<'d, K> {
    ToRead(&'d K),
    ToWrite(&'d mut K),
}

impl<K: Keyspace> Data<'_, K> {
    fn run(&mut self, context: &mut Context<'_>, command: &Command<K>, args: Args<'_>) {
        match self {
            Self::ToRead(data) => commands::read(context, *data, command, args),
            Self::ToWrite(data) => commands::write(context, *data, command, args),
        }
    }

    fn get(&self) -> &K {
        match self {
            Self::ToRead(data) => data,
            Self::ToWrite(data) => data,
        }
    }
}

/// Runs steps of a connection until all are done, or nothing more may be run, or the replies are long.
fn run<K: Keyspace>(
    context: &mut Context<'_>,
    data: &mut Data<'_, K>,
    connection: &Connection<K>,
    rest: &mut Rest,
) -> Progress {
    let begin = context.out.bytes.len();
    let (mut done, mut said) = (0, 0);
    let mut args = Vec::new();
    for step in connection.steps.iter().skip(connection.done.0) {
        if context.out.bytes.len() - begin > MOST_WAITING || rest.steps == 0 || rest.bytes == 0 {
            break;
        }
        rest.steps -= 1;
        rest.bytes = rest.bytes.saturating_sub(connection.step_bytes(step));
        match step {
            Step::Said(bytes) => {
                let from = connection.done.1 + said;
                let reply = connection.said.bytes.get(from..from + bytes).unwrap_or_default();
                context.out.bytes.extend_from_slice(reply);
                said += bytes;
            }
            Step::Run(command, number) => {
                connection.args(*number, &mut args);
                data.run(context, command, &args);
            }
            Step::Exec(queue, watched) => {
                if watched.iter().any(|watch| has_changed(context, data.get(), watch)) {
                    context.out.null_array();
                } else {
                    context.out.array(queue.len());
                    for queued in queue {
                        let args: Vec<&[u8]> = queued.args.iter().map(Vec::as_slice).collect();
                        run_queued(context, data, queued.command, &args, begin);
                    }
                }
            }
        }
        done += 1;
    }
    (done, said)
}

/// Runs a command of a transaction whose replies began at `begin`.
fn run_queued<K: Keyspace>(
    context: &mut Context<'_>,
    data: &mut Data<'_, K>,
    command: &Command<K>,
    args: Args<'_>,
    begin: usize,
) {
    let before = context.out.bytes.len();
    let is_long = before - begin > MOST_OF_EXEC;
    if is_long && !command.writes() {
        context.out.error("ERR the reply of the transaction is too long");
        return;
    }
    data.run(context, command, args);
    // A transaction is there as a whole: its writes are not left out.
    if is_long && context.out.bytes.len() - before > MOST_OF_NOTE {
        context.out.bytes.truncate(before);
        context.out.error("ERR the command was run, but the reply of the transaction is too long");
    }
}

fn has_changed<K: Keyspace>(
    context: &Context<'_>,
    data: &K,
    (key, watch): (&Vec<u8>, &Watch),
) -> bool {
    let is_there = records::find(data, context.now, key).is_some();
    is_there != watch.was_there || context.server.watched.changed(key) != Some(watch.changed)
}

/// Runs the steps of connections that only read.
pub fn read(
    server: &Server,
    client: &mut Client<'_, State>,
    connections: &mut Connections,
    tokens: &[usize],
) {
    if tokens.is_empty() {
        return;
    }
    let seed = fastrand::u64(..);
    let done = client.read(|data| {
        let mut context = Context::new(server, server.time(), seed, Out::default());
        let mut data = Data::ToRead(data);
        let mut all = 0;
        for token in tokens {
            let Some(connection) = connections.get_mut(*token) else { continue };
            context.out = std::mem::take(&mut connection.output);
            let progress = run(&mut context, &mut data, connection, &mut Rest::steps(usize::MAX));
            connection.output = std::mem::take(&mut context.out);
            connection.advance(server, progress);
            all += progress.0;
        }
        all
    });
    server.commands.fetch_add(done as u64, Relaxed);
}

/// Runs the steps of connections of which some may write.
pub fn write(
    server: &Server,
    client: &mut Client<'_, State>,
    connections: &mut Connections,
    tokens: &[usize],
) {
    if tokens.is_empty() {
        return;
    }
    let (seed, touches) = (fastrand::u64(..), Touches::default());
    let shared: &Connections = connections;
    let written = client.write(|data| {
        let mut context = to_write(server, seed, &touches);
        let mut data = Data::ToWrite(data);
        let mut ends = Vec::with_capacity(tokens.len());
        // What does not fit has the next turn: a longer log is made for long commands, and not for a crowd of short ones.
        let mut rest = Rest { steps: usize::MAX, bytes: server.most_of_round };
        for token in tokens {
            let progress = shared
                .get(*token)
                .map_or((0, 0), |connection| run(&mut context, &mut data, connection, &mut rest));
            ends.push((context.out.bytes.len(), progress));
        }
        (context.out, ends, context.keys)
    });
    let Ok((out, ends, keys)) = written else {
        server.watched.take_back(&touches);
        // Too much for one batch, or nothing is accepted any more.
        for token in tokens {
            if let Some(connection) = connections.get_mut(*token) {
                one_by_one(server, client, connection);
            }
        }
        return;
    };
    server.keys.fetch_add(keys, Relaxed);
    let mut begin = 0;
    for (token, (end, progress)) in tokens.iter().zip(ends) {
        if let Some(connection) = connections.get_mut(*token) {
            connection.output.bytes.extend_from_slice(&out.bytes[begin..end]);
            connection.advance(server, progress);
            server.commands.fetch_add(progress.0 as u64, Relaxed);
        }
        begin = end;
    }
}

/// Runs each step as a command of its own. One that the state refuses has an error as its reply.
fn one_by_one(server: &Server, client: &mut Client<'_, State>, connection: &mut Connection<State>) {
    while connection.has_steps() && !connection.is_blocked() {
        let (seed, touches) = (fastrand::u64(..), Touches::default());
        let shared = &*connection;
        let writes = shared.steps.get(shared.done.0).is_some_and(Step::writes);
        let outcome = if writes {
            client.write(|data| {
                let mut context = to_write(server, seed, &touches);
                let progress =
                    run(&mut context, &mut Data::ToWrite(data), shared, &mut Rest::steps(1));
                (context.out, progress, context.keys)
            })
        } else {
            Ok(client.read(|data| {
                let mut context = Context::new(server, server.time(), seed, Out::default());
                let progress =
                    run(&mut context, &mut Data::ToRead(data), shared, &mut Rest::steps(1));
                (context.out, progress, context.keys)
            }))
        };
        let (out, progress, keys) = outcome.unwrap_or_else(|why| {
            server.watched.take_back(&touches);
            server.refused.fetch_add(1, Relaxed);
            server.note_refusal(&why);
            (refusal(why), (1, 0), 0)
        });
        server.keys.fetch_add(keys, Relaxed);
        server.commands.fetch_add(1, Relaxed);
        connection.output.bytes.extend_from_slice(&out.bytes);
        connection.advance(server, progress);
    }
}

/// The context of a run of a command that writes. It may run again: what its run before has numbered counts no more.
fn to_write<'s>(server: &'s Server, seed: u64, touches: &'s Touches) -> Context<'s> {
    server.watched.take_back(touches);
    let touches = Some(touches);
    Context { touches, ..Context::new(server, server.time(), seed, Out::default()) }
}

fn refusal(why: Error) -> Out {
    let mut out = Out::default();
    match why {
        Error::TooLong | Error::NoLongerLog(_) => out.error(&format!("ERR {why}")),
        why => out.error(&format!("MISCONF the state accepts no writes: {why}")),
    }
    out
}

/// Enters the keys that a client watches.
pub fn watch(
    server: &Server,
    client: &mut Client<'_, State>,
    connection: &mut Connection<State>,
    keys: Vec<Vec<u8>>,
) {
    for key in keys {
        if let Entry::Vacant(place) = connection.session.watched.entry(key) {
            let changed = server.watched.enter(place.key());
            let is_there = |data: &State| records::find(data, server.time(), place.key()).is_some();
            let was_there = client.read(is_there);
            place.insert(Watch { changed, was_there });
        }
    }
    connection.say(Out::ok);
}
