//! `kvserver`: a durable server that speaks Redis' protocol. A write is durable before its reply leaves; reads run beside each other at the
//! speed of memory.
//!
//! ```text
//!  net        sockets, requests, rounds of commands
//!  commands   a file for each family
//!  keyspace   keys of five types as records of one ordered map, which is the durable state
//! ```
//!
//! The state is [`spandrel::durable`]; nothing here writes to a file.

mod caretaker;
mod commands;
mod glob;
mod keyspace;
mod net;
mod numbers;
mod options;
mod reply;
mod server;

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;
use std::thread;

use clap::Parser as _;
use mio::net::{TcpListener, UnixListener};
use mio::{Poll, Waker};
use rustix::fs::Mode;
use rustix::process::umask;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use spandrel::durable::{Durable, Report};

use commands::Table;
use keyspace::records;
use keyspace::state::{LAYOUT, State};
use net::acceptor::{self, Inbox};
use net::stream::Listener;
use net::worker::{WAKE, Worker};
use options::Options;
use server::Server;

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("kvserver: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), String> {
    let password = options.password()?;
    // From here on a signal waits until the server is there to end.
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(|why| why.to_string())?;
    let mut settings = spandrel::durable::Options::new().layout(LAYOUT);
    if let Some(mebibytes) = options.limit {
        settings = settings.limit((mebibytes as usize) << 20);
    }
    if let Some(mebibytes) = options.log_size {
        settings = settings.log_size(u64::from(mebibytes) << 20);
    }
    let db =
        Durable::open(&options.directory, settings, State::open).map_err(|why| why.to_string())?;
    let threads = options
        .threads
        .map_or_else(|| thread::available_parallelism().map_or(1, usize::from), usize::from);
    let directory = options.directory.display().to_string();
    let server = Server::new(directory, db.medium().to_owned(), threads, password);
    server.keys.store(db.read(records::count_keys), Relaxed);
    let served = serve(&server, &db, options, &mut signals);
    let closed = db.close().map_err(|why| format!("{}: {why}", options.directory.display()));
    served.and(closed)
}

/// Serves clients until a signal comes.
fn serve(
    server: &Server,
    db: &Durable<State>,
    options: &Options,
    signals: &mut Signals,
) -> Result<(), String> {
    let socket = options.socket();
    let (listeners, addresses) = listen(options, &socket)?;
    let table = Table::new();
    let system = |why: io::Error| why.to_string();
    let mut inboxes = Vec::new();
    let mut workers = Vec::new();
    for _ in 0..server.threads {
        let poll = Poll::new().map_err(system)?;
        let waker = Waker::new(poll.registry(), WAKE).map_err(system)?;
        let (sender, inbox) = mpsc::channel();
        inboxes.push(Inbox { sender, waker });
        workers.push(Worker::new(server, &table, poll, inbox));
    }
    let poll = Poll::new().map_err(system)?;
    let waker = Waker::new(poll.registry(), WAKE).map_err(system)?;
    let served = thread::scope(|scope| {
        let caretaker = scope.spawn(|| caretaker::run(server, db));
        let workers: Vec<_> =
            workers.into_iter().map(|worker| scope.spawn(move || ended(worker.run(db)))).collect();
        let acceptor = scope.spawn(|| ended(acceptor::run(server, poll, listeners, &inboxes)));
        println!("kvserver: {}: {}, on {addresses}", server.directory, found(db.report()));
        signals.forever().next();
        server.end();
        caretaker.thread().unpark();
        let woken =
            inboxes.iter().map(|inbox| &inbox.waker).chain([&waker]).try_for_each(Waker::wake);
        let ends =
            workers.into_iter().chain([acceptor]).map(|thread| thread.join().unwrap_or(Ok(())));
        ends.fold(woken, |all, end| all.and(end))
    });
    // The next server makes its own.
    let _ = fs::remove_file(&socket);
    served.map_err(system)
}

/// Ends the server if a thread of it has failed.
fn ended(outcome: io::Result<()>) -> io::Result<()> {
    if outcome.is_err() {
        signal_hook::low_level::raise(SIGTERM)?;
    }
    outcome
}

/// What opening has found, in words.
fn found(report: Report) -> String {
    match report {
        Report { created: true, .. } => "created".into(),
        Report { was_closed: true, .. } => "closed before".into(),
        report => format!("recovered, {} batches from the log", report.replayed),
    }
}

/// The sockets that clients come to, and where they are, in words.
fn listen(options: &Options, socket: &Path) -> Result<(Vec<Listener>, String), String> {
    let words = |why: io::Error| format!("{}: {why}", socket.display());
    make_way(socket).map_err(words)?;
    // From its first moment on the socket is the owner's alone.
    let mask = umask(Mode::RWXG | Mode::RWXO | Mode::XUSR);
    let listener = UnixListener::bind(socket);
    umask(mask);
    let listener = listener.map_err(words)?;
    let mut listeners = vec![Listener::Unix(listener)];
    let mut addresses = socket.display().to_string();
    for address in &options.listen {
        let words = |why: io::Error| format!("{address}: {why}");
        let listener = TcpListener::bind(*address).map_err(words)?;
        addresses.push_str(&format!(" and {}", listener.local_addr().map_err(words)?));
        listeners.push(Listener::Tcp(listener));
    }
    Ok((listeners, addresses))
}

/// Removes the socket of a server that was killed.
///
/// # Errors
/// A server listens there, or it is no socket.
fn make_way(socket: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(socket) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !found.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is there, and no socket"));
    }
    if StdUnixStream::connect(socket).is_ok() {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, "another server listens there"));
    }
    fs::remove_file(socket)
}
