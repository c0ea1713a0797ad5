//! The commands, a file for each family. A command checks its arguments, then changes the data, then writes its reply.
//!
//! Commands run more than once if others of their batch are undone. So time and random numbers are drawn before, and nothing but the data
//! and the [`Context`] changes.

mod general;
mod hashes;
mod keys;
mod list_places;
mod lists;
mod scan;
mod set_algebra;
mod sets;
mod sorted;
mod sorted_lex;
mod sorted_ranges;
mod strings;
mod table;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use spandrel::heap;

use crate::keyspace::Keyspace;
use crate::numbers;
use crate::reply::{MOST_REPLY, Out};
use crate::server::Server;
use crate::watched::Touches;

pub use table::{Command, Run, Session, Table};

/// The arguments of a command, its name first.
pub type Args<'a> = &'a [&'a [u8]];

/// The outcome of a command: its reply was written, or it failed and has changed nothing.
pub type Done = Result<(), Fail>;

/// Why a command fails.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fail {
    /// The error that the client reads.
    Said(Cow<'static, str>),
    /// The data refuses.
    Data(heap::Error),
}

impl From<heap::Error> for Fail {
    fn from(why: heap::Error) -> Self {
        Self::Data(why)
    }
}

impl Fail {
    /// The error that the client reads.
    pub fn text(&self) -> Cow<'static, str> {
        match self {
            Self::Said(text) => text.clone(),
            Self::Data(heap::Error::Full) => {
                Cow::Borrowed("OOM command not allowed when used memory > 'maxmemory'.")
            }
            Self::Data(heap::Error::Size(_)) => Cow::Borrowed(
                "ERR a key, field or member is longer than 65000 bytes, or the value than any object",
            ),
            Self::Data(why) => Cow::Owned(format!("MISCONF the state refuses the command: {why}")),
        }
    }
}

const fn said(text: &'static str) -> Fail {
    Fail::Said(Cow::Borrowed(text))
}

pub const WRONG_TYPE: Fail =
    said("WRONGTYPE Operation against a key holding the wrong kind of value");
const SYNTAX: Fail = said("ERR syntax error");
const NO_INTEGER: Fail = said("ERR value is not an integer or out of range");
const OUT_OF_RANGE: Fail = said("ERR value is out of range");
const NOT_POSITIVE: Fail = said("ERR value is out of range, must be positive");
const NO_FLOAT: Fail = said("ERR value is not a valid float");
const NO_KEY: Fail = said("ERR no such key");
const OVERFLOW: Fail = said("ERR increment or decrement would overflow");
const TOO_LONG: Fail = said("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
const LONG_REPLY: Fail = said("ERR the reply is longer than 1 GiB; ask for less at a time");
const BAD_CURSOR: Fail = said("ERR invalid cursor");

pub fn wrong_arity(name: &str) -> Fail {
    Fail::Said(format!("ERR wrong number of arguments for '{name}' command").into())
}

/// What commands have beside the data and their arguments.
pub struct Context<'s> {
    pub server: &'s Server,
    /// Milliseconds since 1970.
    pub now: u64,
    pub random: fastrand::Rng,
    /// Keys that were made, less those that were deleted.
    pub keys: i64,
    /// Of a command that may be undone.
    pub touches: Option<&'s Touches>,
    pub out: Out,
}

impl<'s> Context<'s> {
    pub fn new(server: &'s Server, now: u64, seed: u64, out: Out) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        Self { server, now, random, keys: 0, touches: None, out }
    }

    /// Notes that a key changes.
    pub fn touch(&self, key: &[u8]) {
        self.server.watched.touch(key, self.touches);
    }
}

/// Runs a command that may change the data. One that fails is undone, and its reply is the error.
pub fn write<K: Keyspace>(
    context: &mut Context<'_>,
    data: &mut K,
    command: &Command<K>,
    args: Args<'_>,
) {
    let (begin, keys) = (context.out.bytes.len(), context.keys);
    context.out.bound(MOST_REPLY);
    let done = match command.run {
        Run::Write(run) => {
            data.transaction(|data| run(context, data, args).and_then(|()| fits(context)))
        }
        // The longest reply of such a command is a string, which fits.
        Run::Whole(run) => run(context, data, args),
        Run::Read(run) => run(context, data, args).and_then(|()| fits(context)),
        Run::Free(run) => run(context, args),
        Run::Session(session) => queued(context, session),
    };
    if let Err(why) = done {
        fail(context, begin, &why);
        if matches!(command.run, Run::Write(_)) {
            // What was undone.
            context.keys = keys;
        }
    }
}

/// Runs a command that reads the data, or needs none.
pub fn read<K: Keyspace>(
    context: &mut Context<'_>,
    data: &K,
    command: &Command<K>,
    args: Args<'_>,
) {
    let begin = context.out.bytes.len();
    context.out.bound(MOST_REPLY);
    let done = match command.run {
        Run::Read(run) => run(context, data, args).and_then(|()| fits(context)),
        Run::Free(run) => run(context, args),
        Run::Session(session) => queued(context, session),
        // Rounds that only read have none.
        Run::Write(_) | Run::Whole(_) => Err(said("ERR the command writes")),
    };
    if let Err(why) = done {
        fail(context, begin, &why);
    }
}

/// A command about the connection in a transaction.
fn queued(context: &mut Context<'_>, session: Session) -> Done {
    match session {
        // The keys are watched no more when a transaction runs.
        Session::Unwatch => context.out.ok(),
        _ => return Err(said("ERR Command not allowed inside a transaction")),
    }
    Ok(())
}

/// Fails if the reply is too long.
fn fits(context: &Context<'_>) -> Done {
    if context.out.is_cut() { Err(LONG_REPLY) } else { Ok(()) }
}

fn fail(context: &mut Context<'_>, begin: usize, why: &Fail) {
    context.out.bytes.truncate(begin);
    context.out.bound(MOST_REPLY);
    context.out.error(&why.text());
}

/// An integer argument.
fn integer(text: &[u8]) -> Result<i64, Fail> {
    numbers::integer(text).ok_or(NO_INTEGER)
}

fn float(text: &[u8]) -> Result<f64, Fail> {
    numbers::float(text).ok_or(NO_FLOAT)
}

/// Whether an argument is this word, in any case.
fn is(argument: &[u8], word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}

/// The part of `len` elements that two indices name, of which negative ones count from the end.
fn part(len: u64, (from, to): (i64, i64)) -> std::ops::Range<u64> {
    let of = |index: i64| {
        if index < 0 { len as i64 + index.max(-(len as i64) - 1) } else { index.min(len as i64) }
    };
    let from = of(from).max(0) as u64;
    let to = (of(to) + 1).clamp(0, len as i64) as u64;
    from..to.max(from)
}
