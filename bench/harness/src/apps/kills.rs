//! Redis under load, killed and started again: what is lost of all that was acknowledged, and when it serves again.

use crate::makalu::disk;
use crate::redis::client::Client;
use crate::redis::server::{SOCKET, Server, durable, redis};
use serde_json::{Value, json};
use spandrel_console::progress::Progress;
use spandrel_console::shutdown::{Kind, Scratch};
use spandrel_console::terminal::table;
use spandrel_measure::contender::{Contender, Role};
use spandrel_measure::places;
use spandrel_measure::rounds::{self, Series};
use spandrel_report::numbers::{count, median, time};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Clients, and requests that each sends at once.
const CLIENTS: usize = 8;
const PIPELINE: usize = 16;
/// Keys of a client.
const KEYS: usize = 1000;
/// Bytes of a value: the record of the Mangosteen paper.
const VALUE: usize = 1000;
/// How long the server works before it is killed: it begins with empty files and untranslated code.
const WORKS: Duration = Duration::from_secs(3);

/// Redis under `spandrel durable run`.
const DURABLE: &str = "durable run";
/// Redis with its own log: how often that is synced.
const LOGS: [(&str, &str); 2] = [("AOF, always", "always"), ("AOF, each second", "everysec")];

/// The servers; none where their programs are not there.
fn servers() -> Vec<Contender> {
    let of = |name: &str| Contender { name: name.into(), ..Contender::system() };
    let logs = LOGS.iter().map(|(name, _)| of(name));
    let ours = Contender { role: Role::Ours, ..of(DURABLE) };
    let has_ours = places::beside("libspandrel_program.so").is_some();
    logs.chain(has_ours.then_some(ours)).collect()
}

/// What a client has sent, and what was acknowledged of it, by the numbers of its requests.
struct Sender {
    sent: usize,
    acknowledged: usize,
}

/// Measures all servers on an ordinary file system.
pub fn measure(runs: usize, progress: &Progress) -> Result<Vec<Series>, String> {
    let place = disk::find().ok_or("no directory on an ordinary file system: TMPDIR names one")?;
    Ok(rounds::in_turns(&servers(), runs, progress, "redis-server, killed", |server| {
        run(server, &place)
    }))
}

fn start(server: &Contender, directory: &Rc<Scratch<TempDir>>) -> Result<Server, String> {
    let command = match LOGS.iter().find(|(name, _)| *name == server.name) {
        Some((_, synced)) => {
            redis(directory.path(), &["--appendonly", "yes", "--appendfsync", synced])
        }
        None => durable(directory.path())?,
    };
    Server::launch("redis-server", command, directory.clone())
}

fn run(server: &Contender, place: &Path) -> Result<Value, String> {
    let directory = Scratch::directory_in(Kind::Redis, place)
        .map(Rc::new)
        .map_err(|why| format!("{}: {why}", place.display()))?;
    let socket = directory.path().join(SOCKET);
    let first = start(server, &directory)?;
    let begun = Instant::now();
    let clients: Vec<Sender> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                scope.spawn({
                    let socket = &socket;
                    move || work(socket, number)
                })
            })
            .collect();
        std::thread::sleep(WORKS);
        drop(first);
        clients
            .into_iter()
            .map(|client| client.join().unwrap_or(Sender { sent: 0, acknowledged: 0 }))
            .collect()
    });
    let worked = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    let again = start(server, &directory)?;
    let back = begun.elapsed();
    let acknowledged: usize = clients.iter().map(|client| client.acknowledged).sum();
    if acknowledged == 0 {
        return Err("it acknowledged nothing".into());
    }
    let mut lost = 0;
    for (number, client) in clients.iter().enumerate() {
        lost += missing(&socket, number, client).map_err(|why| format!("what is left: {why}"))?;
    }
    again.stop()?;
    Ok(json!({
        "rate": acknowledged as f64 / worked,
        "acknowledged": acknowledged,
        "lost": lost,
        "back_ns": back.as_nanos() as u64,
    }))
}

fn key(client: usize, request: usize) -> String {
    format!("key:{client}:{}", request % KEYS)
}

/// Sends requests until the server is gone.
fn work(socket: &Path, number: usize) -> Sender {
    let mut client = Sender { sent: 0, acknowledged: 0 };
    let mut work = || {
        let mut stream = BufReader::new(UnixStream::connect(socket)?);
        loop {
            let mut requests = String::new();
            for request in client.sent..client.sent + PIPELINE {
                let key = key(number, request);
                requests += &format!(
                    "*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${VALUE}\r\n{request:0VALUE$}\r\n",
                    key.len()
                );
            }
            client.sent += PIPELINE;
            stream.get_mut().write_all(requests.as_bytes())?;
            for _ in 0..PIPELINE {
                let mut line = String::new();
                if stream.read_line(&mut line)? == 0 || line != "+OK\r\n" {
                    return Err(io::Error::other(line));
                }
                client.acknowledged += 1;
            }
        }
    };
    let _: io::Result<()> = work();
    client
}

/// How many keys of a client do not have what was acknowledged last, or something sent later.
fn missing(socket: &Path, number: usize, client: &Sender) -> io::Result<usize> {
    let mut server = Client::connect(socket)?;
    let mut missing = 0;
    for first in 0..KEYS.min(client.acknowledged) {
        // The last request about the key that was acknowledged.
        let last = first + (client.acknowledged - 1 - first) / KEYS * KEYS;
        let found = server.ask(&format!("GET {}", key(number, first)));
        let found = found.ok().and_then(|value| value.parse::<usize>().ok());
        let is_there = found
            .is_some_and(|found| (last..client.sent).contains(&found) && found % KEYS == first);
        missing += usize::from(!is_there);
    }
    Ok(missing)
}

/// A row for each server.
pub fn table(all: &[Series]) -> String {
    let header =
        ["redis-server, killed", "requests/s", "acknowledged", "lost", "serves again after"];
    let mut table = table::new(&header.map(String::from));
    for series in all {
        let of = |key: &str| median(&series.values(key));
        let text = |key: &str, show: fn(f64) -> String| of(key).map_or(table::NOTHING.into(), show);
        let whole = |number: f64| count(number as u64);
        // The worst of all rounds.
        let lost = series.values("lost").into_iter().reduce(f64::max);
        let cells = vec![
            series.contender.name.clone(),
            text("rate", whole),
            text("acknowledged", whole),
            lost.map_or(table::NOTHING.into(), whole),
            text("back_ns", time),
        ];
        table::add(&mut table, series.contender.ours(), cells);
    }
    table.to_string()
}

/// Whether a durable server has lost what was acknowledged, or does not work.
pub fn is_broken(all: &[Series]) -> bool {
    all.iter().any(|series| {
        let has_lost = series.values("lost").iter().any(|lost| *lost > 0.0);
        series.contender.ours() && (series.failed.is_some() || has_lost)
    })
}

/// What the table shows, and what went wrong.
pub fn notes(all: &[Series]) -> Vec<String> {
    let mut notes = vec![format!(
        "redis-server, killed: {CLIENTS} clients, each with {PIPELINE} SETs of {VALUE} B at once, on a disk; SIGKILL while they \
         write, and the same command again; lost: keys without what was acknowledged last. A loss of power takes more \
         from a log that is synced each second"
    )];
    let failed = all.iter().filter_map(|s| Some((&s.contender.name, s.failed.as_ref()?)));
    notes.extend(failed.map(|(who, why)| format!("redis-server, killed: FAILED on {who}: {why}")));
    notes
}

/// Everything that was measured.
pub fn data(all: &[Series]) -> Value {
    let servers = all.iter().map(|series| {
        json!({"server": series.contender.name, "failed": series.failed, "samples": series.samples})
    });
    servers.collect()
}
