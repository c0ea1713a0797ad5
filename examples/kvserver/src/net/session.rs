//! What a connection is at: its name, whether it has said the password, its transaction. Requests become steps here.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;

use spandrel::heap;
use subtle::ConstantTimeEq as _;

use super::protocol::Limits;
use crate::commands::{Args, Command, Fail, Run, Session as Wish, Table, wrong_arity};
use crate::keyspace::Keyspace;
use crate::reply::{Out, short};
use crate::server::Server;

/// The most bytes of the commands of a transaction.
const MOST_QUEUED: usize = 1 << 30;

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";

/// A command of a transaction, with arguments of its own.
pub struct Queued<K: 'static> {
    pub command: &'static Command<K>,
    pub args: Vec<Vec<u8>>,
}

/// Of a key that was watched: the number of its last change, and whether it was there.
pub struct Watch {
    pub changed: u64,
    pub was_there: bool,
}

/// Keys that were watched.
pub type Watches = HashMap<Vec<u8>, Watch>;

/// The most keys that a client watches, and their bytes.
const MOST_WATCHED: usize = 1 << 16;
const MOST_WATCHED_BYTES: usize = 64 << 20;
/// A longer key is never there.
const MOST_OF_KEY: usize = 65_000;
/// The longest name of a client.
const MOST_OF_NAME: usize = 64 << 10;

/// What a request asks for.
pub enum Step<K: 'static> {
    /// The reply is known: as many bytes of what the session has said.
    Said(usize),
    /// A command with the arguments of the request of that number.
    Run(&'static Command<K>, usize),
    /// The commands of a transaction, if no watched key has changed.
    Exec(Vec<Queued<K>>, Watches),
}

impl<K> Step<K> {
    /// Whether the step may change the data.
    pub fn writes(&self) -> bool {
        match self {
            Self::Said(_) => false,
            Self::Run(command, _) => command.writes(),
            Self::Exec(commands, _) => commands.iter().any(|queued| queued.command.writes()),
        }
    }
}

/// The commands of a transaction that has begun.
struct Open<K: 'static> {
    queue: Vec<Queued<K>>,
    bytes: usize,
    /// A command was refused: the transaction will be.
    is_spoilt: bool,
}

impl<K> Open<K> {
    fn queue(&mut self, command: &'static Command<K>, args: Args<'_>) -> Result<(), Fail> {
        self.bytes += args.iter().map(|arg| arg.len() + size_of::<Vec<u8>>()).sum::<usize>();
        if self.bytes > MOST_QUEUED {
            return Err(Fail::Said("ERR the transaction is too large".into()));
        }
        self.queue.push(Queued { command, args: args.iter().map(|arg| arg.to_vec()).collect() });
        Ok(())
    }
}

/// What becomes of a request.
pub enum Planned<K: 'static> {
    Step(Step<K>),
    /// The keys are to be entered, and looked at, before the next request.
    Watch,
    /// A copy is to be made when the requests before are done.
    Save,
    /// The server is to end.
    Shutdown,
}

/// See the head of this file.
pub struct Session<K: 'static> {
    id: u64,
    name: Vec<u8>,
    is_known: bool,
    /// The connection ends when its replies have left.
    pub is_over: bool,
    open: Option<Open<K>>,
    pub watched: Watches,
}

impl<K: Keyspace> Session<K> {
    pub fn new(server: &Server) -> Self {
        Self {
            id: server.last_client.fetch_add(1, Relaxed) + 1,
            name: Vec::new(),
            is_known: server.password.is_none(),
            is_over: false,
            open: None,
            watched: Watches::new(),
        }
    }

    pub fn limits(&self) -> Limits {
        if self.is_known { Limits::KNOWN } else { Limits::UNKNOWN }
    }

    /// Plans the request of that number. What is known of the reply is said at once.
    pub fn plan(
        &mut self,
        server: &Server,
        table: &Table<K>,
        said: &mut Out,
        (number, args): (usize, Args<'_>),
    ) -> Planned<K> {
        let begin = said.bytes.len();
        let planned = self.try_plan(server, table, said, (number, args));
        planned.unwrap_or_else(|why| {
            if let Some(open) = &mut self.open {
                open.is_spoilt = true;
            }
            said.bytes.truncate(begin);
            said.error(&why.text());
            Planned::Step(Step::Said(said.bytes.len() - begin))
        })
    }

    fn try_plan(
        &mut self,
        server: &Server,
        table: &Table<K>,
        said: &mut Out,
        (number, args): (usize, Args<'_>),
    ) -> Result<Planned<K>, Fail> {
        let begin = said.bytes.len();
        let name = args.first().copied().unwrap_or_default();
        // A page in a browser may have it speak to any address of this host. What follows the head of its request would be commands.
        if is(name, "POST") || is(name, "Host:") {
            self.is_over = true;
            return Ok(Planned::Step(Step::Said(0)));
        }
        let command = table.find(name).ok_or_else(|| unknown(args))?;
        if !command.takes(args.len()) {
            return Err(wrong_arity(command.name));
        }
        let wish = match command.run {
            Run::Session(wish) => Some(wish),
            _ => None,
        };
        if !self.is_known && !matches!(wish, Some(Wish::Auth | Wish::Hello | Wish::Quit)) {
            return Err(Fail::Said("NOAUTH Authentication required.".into()));
        }
        if matches!(wish, None | Some(Wish::Unwatch))
            && let Some(open) = &mut self.open
        {
            open.queue(command, args)?;
            said.simple("QUEUED");
            return Ok(Planned::Step(Step::Said(said.bytes.len() - begin)));
        }
        match wish {
            Some(wish) => self.session(server, said, wish, args, begin),
            None => Ok(Planned::Step(Step::Run(command, number))),
        }
    }

    /// A command about the connection.
    fn session(
        &mut self,
        server: &Server,
        said: &mut Out,
        wish: Wish,
        args: Args<'_>,
        begin: usize,
    ) -> Result<Planned<K>, Fail> {
        let error = |text: &'static str| Err(Fail::Said(text.into()));
        let is_open = self.open.is_some();
        match wish {
            // Refused within a transaction, which goes on.
            Wish::Multi if is_open => said.error("ERR MULTI calls can not be nested"),
            Wish::Watch if is_open => said.error("ERR WATCH inside MULTI is not allowed"),
            Wish::Multi => {
                self.open = Some(Open { queue: Vec::new(), bytes: 0, is_spoilt: false });
                said.ok();
            }
            Wish::Exec => match self.open.take() {
                None => return error("ERR EXEC without MULTI"),
                Some(open) => {
                    let watched = std::mem::take(&mut self.watched);
                    if open.is_spoilt {
                        leave(server, watched);
                        return error(
                            "EXECABORT Transaction discarded because of previous errors.",
                        );
                    }
                    return Ok(Planned::Step(Step::Exec(open.queue, watched)));
                }
            },
            Wish::Discard => {
                if self.open.take().is_none() {
                    return error("ERR DISCARD without MULTI");
                }
                self.unwatch(server);
                said.ok();
            }
            Wish::Quit => {
                self.is_over = true;
                said.ok();
            }
            _ if is_open => return error("ERR Command not allowed inside a transaction"),
            Wish::Watch => {
                self.check_watches(&args[1..])?;
                return Ok(Planned::Watch);
            }
            Wish::Save => match &args[1..] {
                [] => return Ok(Planned::Save),
                [word] if is(word, "SCHEDULE") => return Ok(Planned::Save),
                _ => return error("ERR syntax error"),
            },
            Wish::Unwatch => {
                self.unwatch(server);
                said.ok();
            }
            Wish::Shutdown => {
                let mut words = args[1..].iter();
                if !words.all(|word| {
                    ["NOSAVE", "SAVE", "NOW", "FORCE"].iter().any(|known| is(word, known))
                }) {
                    return error("ERR syntax error");
                }
                self.is_over = true;
                return Ok(Planned::Shutdown);
            }
            Wish::Select => match args[1] {
                b"0" => said.ok(),
                other if crate::numbers::integer(other).is_none() => {
                    return error("ERR value is not an integer or out of range");
                }
                _ => return error("ERR DB index is out of range"),
            },
            Wish::Auth => {
                match args {
                    [_, password] => self.authenticate(server, None, password)?,
                    [_, user, password] => self.authenticate(server, Some(user), password)?,
                    _ => return error("ERR syntax error"),
                }
                said.ok();
            }
            Wish::Hello => self.hello(server, said, args)?,
            Wish::Client => self.client(said, args)?,
        }
        Ok(Planned::Step(Step::Said(said.bytes.len() - begin)))
    }

    fn authenticate(
        &mut self,
        server: &Server,
        user: Option<&[u8]>,
        password: &[u8],
    ) -> Result<(), Fail> {
        let Some(expected) = &server.password else {
            // As in Redis, a client that names the user of a server without a password may say any.
            if user == Some(b"default") {
                return Ok(());
            }
            if user.is_some() {
                return Err(Fail::Said(WRONG_PASSWORD.into()));
            }
            let text = "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?";
            return Err(Fail::Said(text.into()));
        };
        let is_right: bool = expected.as_bytes().ct_eq(password).into();
        if user.is_none_or(|user| user == b"default") && is_right {
            self.is_known = true;
            return Ok(());
        }
        Err(Fail::Said(WRONG_PASSWORD.into()))
    }

    fn hello(&mut self, server: &Server, said: &mut Out, args: Args<'_>) -> Result<(), Fail> {
        let mut rest = &args[1..];
        if let [version, others @ ..] = rest {
            match *version {
                b"2" => {}
                other if crate::numbers::integer(other).is_none() => {
                    return Err(Fail::Said(
                        "ERR Protocol version is not an integer or out of range".into(),
                    ));
                }
                _ => return Err(Fail::Said("NOPROTO unsupported protocol version".into())),
            }
            rest = others;
        }
        let mut name = None;
        while let [word, others @ ..] = rest {
            rest = match others {
                [user, password, others @ ..] if is(word, "AUTH") => {
                    self.authenticate(server, Some(user), password)?;
                    others
                }
                [given, others @ ..] if is(word, "SETNAME") => {
                    name = Some(*given);
                    others
                }
                _ => {
                    let word = short(word);
                    return Err(Fail::Said(
                        format!("ERR Syntax error in HELLO option '{word}'").into(),
                    ));
                }
            };
        }
        if !self.is_known {
            let text = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time";
            return Err(Fail::Said(text.into()));
        }
        if let Some(name) = name {
            self.set_name(name)?;
        }
        said.array(14);
        for (key, value) in
            [("server", "spandrel-kvserver"), ("version", env!("CARGO_PKG_VERSION"))]
        {
            said.bulk(key.as_bytes());
            said.bulk(value.as_bytes());
        }
        said.bulk(b"proto");
        said.integer(2);
        said.bulk(b"id");
        said.integer(self.id as i64);
        for (key, value) in [("mode", "standalone"), ("role", "master")] {
            said.bulk(key.as_bytes());
            said.bulk(value.as_bytes());
        }
        said.bulk(b"modules");
        said.array(0);
        Ok(())
    }

    /// Whether these keys may be watched as well.
    fn check_watches(&self, keys: Args<'_>) -> Result<(), Fail> {
        if keys.iter().any(|key| key.len() > MOST_OF_KEY) {
            return Err(Fail::Data(heap::Error::Size(MOST_OF_KEY)));
        }
        let bytes = self.watched.keys().map(Vec::len).chain(keys.iter().map(|key| key.len()));
        if self.watched.len() + keys.len() > MOST_WATCHED
            || bytes.sum::<usize>() > MOST_WATCHED_BYTES
        {
            let text = "ERR too many keys are watched; UNWATCH, or EXEC first";
            return Err(Fail::Said(text.into()));
        }
        Ok(())
    }

    fn set_name(&mut self, name: &[u8]) -> Result<(), Fail> {
        if name.len() > MOST_OF_NAME {
            return Err(Fail::Said("ERR Client names cannot be that long.".into()));
        }
        if !name.iter().all(u8::is_ascii_graphic) {
            let text = "ERR Client names cannot contain spaces, newlines or special characters.";
            return Err(Fail::Said(text.into()));
        }
        self.name = name.to_vec();
        Ok(())
    }

    fn client(&mut self, said: &mut Out, args: Args<'_>) -> Result<(), Fail> {
        match args {
            [_, word] if is(word, "ID") => said.integer(self.id as i64),
            [_, word] if is(word, "GETNAME") => {
                said.bulk_or_null(Some(&self.name[..]).filter(|name| !name.is_empty()));
            }
            [_, word, name] if is(word, "SETNAME") => {
                self.set_name(name)?;
                said.ok();
            }
            [_, word] if is(word, "INFO") => {
                let name = String::from_utf8_lossy(&self.name);
                said.bulk(format!("id={} name={name} db=0 resp=2\n", self.id).as_bytes());
            }
            [_, word, ..] => {
                let word = short(word);
                let text = format!(
                    "ERR unknown subcommand '{word}'. Try CLIENT ID, GETNAME, SETNAME or INFO."
                );
                return Err(Fail::Said(text.into()));
            }
            _ => return Err(wrong_arity("client")),
        }
        Ok(())
    }

    /// Forgets the keys that are watched.
    pub fn unwatch(&mut self, server: &Server) {
        leave(server, std::mem::take(&mut self.watched));
    }
}

/// Takes back the entries of keys that were watched.
pub fn leave(server: &Server, watched: Watches) {
    for key in watched.keys() {
        server.watched.leave(key);
    }
}

fn is(argument: &[u8], word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}

/// The error of a command that is not there: its name and the beginning of its arguments.
fn unknown(args: Args<'_>) -> Fail {
    const MOST: usize = 128;
    let mut beginning = String::new();
    for arg in args.iter().skip(1) {
        if beginning.len() >= MOST {
            break;
        }
        beginning.push_str(&format!("'{}' ", short(arg)));
    }
    let name = short(args.first().copied().unwrap_or_default());
    Fail::Said(
        format!("ERR unknown command '{name}', with args beginning with: {beginning}").into(),
    )
}
