//! The parser, the session and the commands, as a connection's bytes reach them, on a map in memory: for the fuzz target and its short run among the tests.
//!
//! Checked of any bytes:
//! - each request has one reply, which is one whole value of the protocol;
//! - the number of keys that the server counts is the number of keys that there are;
//! - the same bytes in other pieces have the same replies.

use redis_protocol::resp2::decode::decode_range;

use crate::commands::{self, Args, Command, Context, Table};
use crate::keyspace::memory::Memory;
use crate::keyspace::records;
use crate::net::protocol::Parser;
use crate::net::session::{Planned, Session, Step};
use crate::numbers;
use crate::reply::Out;
use crate::server::Server;

/// Commands whose replies or values have a length that the client says. They are bounded, and the bounds are larger than what a fuzzer has time for.
const OF_A_LENGTH: [&str; 4] = ["setrange", "srandmember", "hrandfield", "zrandmember"];
/// Commands whose replies tell of the process.
const OF_THE_PROCESS: [&str; 3] = ["info", "time", "lastsave"];
/// The largest length that is tried.
const MOST: u64 = 4096;

/// A client beside the data.
struct Client {
    server: Server,
    table: Table<Memory>,
    session: Session<Memory>,
    data: Memory,
    /// Keys that the commands have counted.
    keys: i64,
    now: u64,
}

impl Client {
    fn new(password: Option<String>) -> Self {
        let server = Server::new("none".into(), "memory".into(), 1, password);
        let session = Session::new(&server);
        let (table, data) = (Table::new(), Memory::default());
        Self { server, table, session, data, keys: 0, now: 1_000_000 }
    }

    /// Runs a request; returns its reply.
    fn ask(&mut self, args: Args<'_>) -> Vec<u8> {
        // Time goes on, so that keys expire.
        self.now += 10;
        if is_long(args) {
            return b"+long\r\n".to_vec();
        }
        let mut said = Out::default();
        let planned = self.session.plan(&self.server, &self.table, &mut said, (0, args));
        let mut context = Context::new(&self.server, self.now, self.now, Out::default());
        match planned {
            Planned::Step(Step::Said(_)) => context.out = said,
            Planned::Step(Step::Run(command, _)) => {
                run(&mut context, &mut self.data, command, args)
            }
            Planned::Step(Step::Exec(queue, _)) => {
                context.out.array(queue.len());
                for queued in queue {
                    let args: Vec<&[u8]> = queued.args.iter().map(Vec::as_slice).collect();
                    run(&mut context, &mut self.data, queued.command, &args);
                }
            }
            // What a connection does, and a copy of the state.
            Planned::Watch | Planned::Save | Planned::Shutdown => context.out.ok(),
        }
        let (keys, reply) = (context.keys, context.out.bytes);
        self.keys += keys;
        assert_eq!(self.keys, records::count_keys(&self.data), "keys after {}", shown(args));
        reply
    }
}

/// As a round does.
fn run(
    context: &mut Context<'_>,
    data: &mut Memory,
    command: &'static Command<Memory>,
    args: Args<'_>,
) {
    match command.writes() {
        true => commands::write(context, data, command, args),
        false => commands::read(context, data, command, args),
    }
}

fn is_one_of(args: Args<'_>, names: &[&str]) -> bool {
    let name = args.first().copied().unwrap_or_default();
    names.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

fn is_long(args: Args<'_>) -> bool {
    let mut lengths = args.iter().filter_map(|arg| numbers::integer(arg));
    is_one_of(args, &OF_A_LENGTH) && lengths.any(|length| length.unsigned_abs() > MOST)
}

fn shown(args: Args<'_>) -> String {
    let words: Vec<_> = args.iter().map(|arg| arg.escape_ascii().to_string()).collect();
    words.join(" ")
}

/// The replies to bytes that come in pieces of these lengths, again and again, and whether the connection went on.
fn replies(bytes: &[u8], pieces: &[u8], password: Option<&str>) -> (Vec<Vec<u8>>, bool) {
    let mut client = Client::new(password.map(str::to_owned));
    let (mut parser, mut come, mut replies) = (Parser::default(), Vec::new(), Vec::new());
    let (mut rest, mut lengths) = (bytes, pieces.iter().cycle());
    while !rest.is_empty() {
        let len = lengths.next().map_or(rest.len(), |len| 1 + usize::from(*len)).min(rest.len());
        let (piece, behind) = rest.split_at(len);
        rest = behind;
        come.extend_from_slice(piece);
        loop {
            match parser.next(&mut come, client.session.limits()) {
                Ok(Some(request)) => {
                    let arguments = parser.arguments().get(request).unwrap_or_default();
                    let args: Vec<&[u8]> =
                        arguments.iter().map(|argument| &come[argument.clone()]).collect();
                    let reply = client.ask(&args);
                    let is_silent = client.session.is_over && reply.is_empty();
                    let decoded = decode_range(&reply).expect("a value of the protocol");
                    let taken = decoded.map(|(_, taken)| taken);
                    assert!(
                        is_silent || taken == Some(reply.len()),
                        "{}: {}",
                        shown(&args),
                        reply.escape_ascii()
                    );
                    let is_same = !is_one_of(&args, &OF_THE_PROCESS);
                    replies.push(if is_same { reply } else { Vec::new() });
                    if client.session.is_over {
                        return (replies, false);
                    }
                }
                Ok(None) => break,
                Err(_) => return (replies, false),
            }
        }
        come.drain(..parser.forget());
    }
    (replies, true)
}

/// Words that commands know, keys and members of few names, numbers at the ends of their ranges.
pub const WORDS: &[&str] = &[
    "k",
    "l",
    "h",
    "s",
    "z",
    "m",
    "a",
    "0",
    "1",
    "-1",
    "2",
    "10",
    "4096",
    "1.5",
    "inf",
    "-inf",
    "nan",
    "9223372036854775807",
    "-9223372036854775808",
    "(1",
    "[a",
    "-",
    "+",
    "*",
    "k*",
    "[^a]?",
    "",
    "EX",
    "PX",
    "NX",
    "XX",
    "GT",
    "LT",
    "CH",
    "INCR",
    "KEEPTTL",
    "GET",
    "MATCH",
    "COUNT",
    "TYPE",
    "LIMIT",
    "WITHSCORES",
    "WITHVALUES",
    "BYSCORE",
    "BYLEX",
    "REV",
    "WEIGHTS",
    "AGGREGATE",
    "MAX",
    "STORE",
    "LEFT",
    "RIGHT",
    "BEFORE",
    "AFTER",
    "RANK",
    "MAXLEN",
    "REPLACE",
    "DB",
    "SETNAME",
    "secret",
];

/// The names of all commands, in order.
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<_> = Table::<Memory>::all().iter().map(|command| command.name).collect();
    names.sort_unstable();
    names
}

/// Sends bytes as a whole, then in pieces of these lengths. See the head of this file.
pub fn exercise(bytes: &[u8], pieces: &[u8], has_password: bool) {
    let password = has_password.then_some("secret");
    let whole = replies(bytes, &[], password);
    assert_eq!(replies(bytes, pieces, password), whole, "{}", bytes.escape_ascii());
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::net::protocol::tests::encoded;
    use proptest::prelude::*;

    fn request() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let word = prop_oneof![
            8 => prop::sample::select(WORDS).prop_map(|word| word.as_bytes().to_vec()),
            1 => prop::collection::vec(any::<u8>(), 0..6),
        ];
        (prop::sample::select(names()), prop::collection::vec(word, 0..6)).prop_map(
            |(name, words)| std::iter::once(name.as_bytes().to_vec()).chain(words).collect(),
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 150 } else { 3_000 }))]

        #[test]
        fn any_requests_have_a_reply_each(
            requests in prop::collection::vec(request(), 1..60),
            pieces in prop::collection::vec(any::<u8>(), 0..5),
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
            has_password in prop::bool::weighted(0.1),
        ) {
            let mut bytes = encoded(&requests);
            exercise(&bytes, &pieces, has_password);
            // And with damage.
            for (at, bits) in flips {
                let at = at.index(bytes.len());
                bytes[at] ^= bits;
            }
            exercise(&bytes, &pieces, has_password);
        }
    }
}
