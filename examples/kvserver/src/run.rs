//! The program: its options, its state and its threads, until a signal ends it.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::Parser as _;
use mio::net::{TcpListener, UnixListener};
use mio::{Poll, Waker};
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use spandrel::durable::{Durable, Report};

use crate::caretaker;
use crate::commands::Table;
use crate::keyspace::records;
use crate::keyspace::state::{LAYOUT, State};
use crate::net::acceptor::{self, Inbox, MOST_CLIENTS};
use crate::net::stream::Listener;
use crate::net::worker::{WAKE, Worker};
use crate::options::Options;
use crate::saves::Saves;
use crate::server::{MOST_OF_ROUND, Server};

/// The code of a process that was started by a wrong command, as clap has it.
const MISUSED: u8 = 2;

/// The program `kvserver`.
pub fn main() -> ExitCode {
    let options = Options::parse();
    let checked = options.check_socket().and_then(|()| options.password());
    let Failed { why, code } = match checked.map(|password| run(&options, password)) {
        Ok(Ok(())) => return ExitCode::SUCCESS,
        Ok(Err(failed)) => failed,
        Err(why) => Failed::by_input(why),
    };
    complain!("kvserver: {why}");
    code.into()
}

/// Why the server ends, and its exit code.
struct Failed {
    why: String,
    code: u8,
}

impl Failed {
    /// What was given cannot be used.
    fn by_input(why: String) -> Self {
        Self { why, code: MISUSED }
    }
}

impl From<String> for Failed {
    fn from(why: String) -> Self {
        Self { why, code: 1 }
    }
}

fn run(options: &Options, password: Option<String>) -> Result<(), Failed> {
    // From here on a signal waits until the server is there to end.
    let mut signals =
        Signals::new([SIGTERM, SIGINT, caretaker::REOPEN]).map_err(|why| why.to_string())?;
    let mut settings = spandrel::durable::Options::new().layout(LAYOUT);
    if let Some(mebibytes) = options.limit {
        settings = settings.limit((mebibytes as usize) << 20);
    }
    if let Some(mebibytes) = options.log_size {
        settings = settings.log_size(u64::from(mebibytes) << 20);
    }
    // The thread of the log needs a processor too; and requests that one thread has are one batch, where those of several threads take turns.
    let usual =
        || thread::available_parallelism().map_or(1, |all| all.get().saturating_sub(1).max(1));
    let threads = options.threads.map_or_else(usual, usize::from);
    // Those of the caretaker and of copies beside them.
    settings = settings.clients(threads + 4);
    let most_clients = most_clients(threads)?;
    let mut db = open(options, &settings).map_err(|why| Failed::by_input(why.to_string()))?;
    loop {
        let directory = options.directory.clone();
        let mut server = Server::new(directory, db.medium().to_owned(), threads, password.clone());
        server.most_clients = most_clients;
        if let Some(mebibytes) = options.log_size {
            let quarter = (mebibytes as usize) << 18;
            server.most_of_round = quarter.min(MOST_OF_ROUND);
        }
        server.saves = Saves::new(options.copies.clone());
        server.keys.store(db.read(records::count_keys), Relaxed);
        let served = serve(&server, &db, options, &mut signals);
        let closed = db.close().map_err(|why| format!("{}: {why}", options.directory.display()));
        // What was not acknowledged is there or not, as after a kill: clients connect again.
        if served? != caretaker::REOPEN {
            return Ok(closed?);
        }
        say!(
            "kvserver: {}: the disk has room again; the state is opened anew",
            server.directory.display()
        );
        let Some(opened) = open_again(options, &settings, &mut signals) else { return Ok(()) };
        db = opened;
    }
}

fn open(
    options: &Options,
    settings: &spandrel::durable::Options,
) -> Result<Durable<State>, spandrel::durable::OpenError> {
    Durable::open(&options.directory, *settings, State::open)
}

/// Opens the state of a server that goes on, as soon as there is room. `None`: a signal has come.
fn open_again(
    options: &Options,
    settings: &spandrel::durable::Options,
    signals: &mut Signals,
) -> Option<Durable<State>> {
    let mut is_said = false;
    loop {
        if signals.pending().any(|signal| signal != caretaker::REOPEN) {
            return None;
        }
        match open(options, settings) {
            Ok(db) => return Some(db),
            Err(why) if !std::mem::replace(&mut is_said, true) => {
                complain!("kvserver: {why}; it is tried again each second");
            }
            Err(_) => {}
        }
        thread::sleep(Duration::from_secs(1));
    }
}

/// The number of clients that the process has descriptors for, after it has asked the system for more.
///
/// # Errors
/// There are too few for any, in words.
fn most_clients(threads: usize) -> Result<usize, String> {
    // Those of the state, of copies, and of each thread's event loop. A client must not take the one that the log needs to grow.
    let own = 64 + 3 * threads;
    let wanted = (MOST_CLIENTS + own) as u64;
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.map_or(wanted, |most| wanted.min(most));
    let current = limit.current.unwrap_or(u64::MAX);
    // What the system refuses leaves the limit as it was.
    let is_raised = current < most
        && setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..limit }).is_ok();
    let has = usize::try_from(if is_raised { most } else { current }).unwrap_or(usize::MAX);
    match has.saturating_sub(own).min(MOST_CLIENTS) {
        0 => Err(format!(
            "the process may have {has} open files, and needs {own} beside those of clients; have 'ulimit -n' allow more, or give fewer --threads"
        )),
        most => Ok(most),
    }
}

/// Serves clients until a signal comes, which is returned.
fn serve(
    server: &Server,
    db: &Durable<State>,
    options: &Options,
    signals: &mut Signals,
) -> Result<i32, Failed> {
    let socket = options.socket();
    let (listeners, addresses) = listen(options, &socket).map_err(Failed::by_input)?;
    // Another server may have the name when this one ends.
    let own = place_of(&socket);
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
        let saver = scope.spawn(|| server.saves.run(db));
        let caretaker = scope.spawn(|| caretaker::run(server, db));
        let workers: Vec<_> =
            workers.into_iter().map(|worker| scope.spawn(move || ended(worker.run(db)))).collect();
        let acceptor = scope.spawn(|| ended(acceptor::run(server, poll, listeners, &inboxes)));
        say!("kvserver: {}: {}, on {addresses}", server.directory.display(), found(db.report()));
        // The signal that opens the state anew is the server's own.
        let is_end = |signal: &i32| *signal != caretaker::REOPEN || server.reopens.load(Relaxed);
        let signal = signals.forever().find(is_end);
        server.end();
        server.saves.end();
        if server.saves.status().is_running {
            say!("kvserver: {}: the copy that was begun is made first", server.directory.display());
        }
        caretaker.thread().unpark();
        let woken =
            inboxes.iter().map(|inbox| &inbox.waker).chain([&waker]).try_for_each(Waker::wake);
        let ends =
            workers.into_iter().chain([acceptor]).map(|thread| thread.join().unwrap_or(Ok(())));
        let ended = ends.fold(woken, |all, end| all.and(end));
        let _ = saver.join();
        ended.map(|()| signal.unwrap_or(SIGTERM))
    });
    // The next server makes its own.
    if own.is_some() && place_of(&socket) == own {
        let _ = fs::remove_file(&socket);
    }
    Ok(served.map_err(system)?)
}

/// By what a socket is known, whatever its name and mode are: its number, which a later file may get, and when it was bound.
fn place_of(path: &Path) -> Option<[i64; 4]> {
    let file = fs::symlink_metadata(path).ok()?;
    Some([file.dev() as i64, file.ino() as i64, file.mtime(), file.mtime_nsec()])
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
    match StdUnixStream::connect(socket) {
        Err(why) if why.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(socket),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(()),
        // One of another kind, or one whose server takes no more clients now.
        _ => Err(io::Error::new(io::ErrorKind::AddrInUse, "another server listens there")),
    }
}
