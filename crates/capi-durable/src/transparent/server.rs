//! Clients of other processes: a Unix socket, and an event loop in each worker (Mangosteen's RPC mode).
//!
//! A connection belongs to one worker. Its requests are processed in order; each answer leaves after its command is durable. What a connection may make the
//! server hold is bounded: a request of `REQUEST_BYTES`, and `ANSWER_BYTES` of answers that it does not take, beside the last one. Connections of a worker have
//! turns: one that always has another request does not keep the others waiting.

use std::collections::HashMap;
use std::ffi::{CStr, OsStr, c_char, c_int, c_uint, c_void};
use std::io::{self, Read};
use std::os::fd::{AsFd as _, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use super::clients::{self, Functions};
use super::listening::{listen, own};
use crate::cancellation;
use crate::failure::{self, Failure};

/// The longest request.
const REQUEST_BYTES: usize = 16 << 20;
/// With as many bytes of answers no further request of the client is processed until it has taken them.
const ANSWER_BYTES: usize = 1 << 20;
/// Bytes that are read at once.
const CHUNK_BYTES: usize = 64 << 10;
/// Bytes of a buffer that a connection keeps.
const KEPT_BYTES: usize = 256 << 10;
/// Reads and requests of a connection before the others of its worker have their turns.
const TURN: u32 = 64;
/// How long no connection is taken after the system has refused one: it has no descriptor for it, and would say so again at once.
const REST: Duration = Duration::from_millis(100);
/// Descriptors that no connection takes.
const KEPT: u64 = 16;
/// What a framing function returns for bytes that are no request.
const MALFORMED: usize = usize::MAX;
/// The key of the listening socket in an event loop; others are numbers of descriptors.
const LISTENER: u64 = u64::MAX;

/// Numbers of clients, for the program.
static CLIENTS: AtomicI32 = AtomicI32::new(0);

/// `struct spandrel_durable_response`.
#[repr(C)]
pub struct SpandrelDurableResponse {
    response: *const c_void,
    size: usize,
}

/// Serves clients at a socket: -1 with `errno`, or never. See the header.
///
/// # Safety
/// `socket` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spandrel_durable_serve(socket: *const c_char, workers: c_uint) -> c_int {
    // A thread that was cancelled would leave the others without what they share.
    cancellation::held(|| {
        let serve = || {
            crate::current::check_outside()?;
            let functions = clients::functions()?;
            if socket.is_null() {
                return Err(NO_SOCKET);
            }
            // SAFETY: promised by the caller.
            let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(socket) }.to_bytes()));
            let listener = listen(path).map_err(system)?;
            let listener = &listener;
            // All that may be refused comes before the first client.
            keep_descriptors(listener).map_err(system)?;
            let loops = (0..workers.clamp(1, 1024)).map(|_| Events::of(listener));
            let mut loops = loops.collect::<io::Result<Vec<_>>>().map_err(system)?;
            let own = loops.pop().ok_or(Failure::Null)?;
            let is_wanted = RwLock::new(true);
            let is_wanted = &is_wanted;
            std::thread::scope(|scope| {
                let mut begins = is_wanted.write().unwrap_or_else(PoisonError::into_inner);
                for events in loops {
                    let worker = move || {
                        if *is_wanted.read().unwrap_or_else(PoisonError::into_inner) {
                            let _ = work(listener, &events, functions);
                        }
                    };
                    if let Err(why) = std::thread::Builder::new().spawn_scoped(scope, worker) {
                        *begins = false;
                        return Err(system(why));
                    }
                }
                drop(begins);
                work(listener, &own, functions).map_err(system)
            })
        };
        failure::number(serve())
    })
}

const NO_SOCKET: Failure =
    Failure::Wrong("there is no path of a socket; give one, or set SPANDREL_DURABLE_SOCKET");

fn system(why: io::Error) -> Failure {
    spandrel_durable::Error::System(why.raw_os_error().unwrap_or(libc::EIO)).into()
}

/// The descriptors that a worker waits for.
struct Events(OwnedFd);

impl Events {
    fn new() -> io::Result<Self> {
        // SAFETY: makes a descriptor, which is this value's.
        unsafe {
            let made = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            if made < 0 {
                Err(io::Error::last_os_error())
            } else {
                Ok(Self(own(OwnedFd::from_raw_fd(made))?))
            }
        }
    }

    /// With the listening socket in it.
    fn of(listener: &UnixListener) -> io::Result<Self> {
        let events = Self::new()?;
        events.listen(listener)?;
        Ok(events)
    }

    fn listen(&self, listener: &UnixListener) -> io::Result<()> {
        let events = libc::EPOLLIN | libc::EPOLLEXCLUSIVE;
        self.control(libc::EPOLL_CTL_ADD, listener.as_raw_fd(), events, LISTENER)
    }

    fn control(&self, what: c_int, fd: RawFd, events: c_int, key: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: key };
        // SAFETY: both are open descriptors, and the event is this function's.
        let done = unsafe { libc::epoll_ctl(self.0.as_raw_fd(), what, fd, &mut event) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The keys of the descriptors that are ready, after `ms` milliseconds at most; -1: as long as it takes.
    fn wait(&self, ms: c_int) -> io::Result<Vec<u64>> {
        let mut ready = [libc::epoll_event { events: 0, u64: 0 }; 64];
        let most = ready.len() as c_int;
        // SAFETY: as many events as there is room for.
        let count = unsafe { libc::epoll_wait(self.0.as_raw_fd(), ready.as_mut_ptr(), most, ms) };
        match count {
            ..0 => {
                let why = io::Error::last_os_error();
                if why.kind() == io::ErrorKind::Interrupted { Ok(Vec::new()) } else { Err(why) }
            }
            count => Ok(ready.iter().take(count as usize).map(|event| event.u64).collect()),
        }
    }
}

/// A connection, and the program's client.
struct Connection<'f> {
    stream: UnixStream,
    functions: &'f Functions,
    client: *mut c_void,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Bytes of it that were sent.
    sent: usize,
    /// A request, aligned for any type.
    request: Vec<u128>,
    /// What the event loop waits for.
    waits: c_int,
}

/// Why a connection does not go on.
#[derive(PartialEq, Eq)]
enum Pause {
    /// It has no whole request.
    Request,
    /// Its client takes no answers.
    Room,
    /// It has had its turn.
    Turn,
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        if let Some(destroy) = self.functions.destroy_client {
            // SAFETY: a client of the program's own function, used no more.
            unsafe { destroy(self.client) };
        }
    }
}

/// One worker.
fn work(listener: &UnixListener, events: &Events, functions: &Functions) -> io::Result<()> {
    let mut connections = HashMap::new();
    // Connections that go on without an event, each once, and since when no connection is taken.
    let (mut turns, mut rests) = (Vec::new(), None::<Instant>);
    loop {
        let most = if rests.is_some() { REST.as_millis() as c_int } else { -1 };
        let ready = events.wait(if turns.is_empty() { most } else { 0 })?;
        if rests.is_some_and(|since| since.elapsed() >= REST) && events.listen(listener).is_ok() {
            rests = None;
        }
        let mut keys = std::mem::take(&mut turns);
        // One turn each: of what goes on without an event, most is ready as well.
        for key in ready {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        for key in keys {
            if key == LISTENER {
                match take(listener, events, functions) {
                    Ok(Some(connection)) => {
                        let _ = connections.insert(connection.key(), connection);
                    }
                    Ok(None) => {}
                    Err(_) => {
                        let fd = listener.as_raw_fd();
                        if events.control(libc::EPOLL_CTL_DEL, fd, 0, LISTENER).is_ok() {
                            rests = Some(Instant::now());
                        }
                    }
                }
                continue;
            }
            let Some(connection) = connections.get_mut(&key) else { continue };
            match connection.go_on().and_then(|pause| connection.wait(events, pause)) {
                Ok(Pause::Turn) => turns.push(key),
                Ok(_) => {}
                // Its descriptor is closed, and leaves the event loop by that.
                Err(_) => drop(connections.remove(&key)),
            }
        }
    }
}

/// Takes a connection. `None`: another worker was faster, or the program refuses the client.
///
/// # Errors
/// The system has no descriptor or no memory for it.
fn take<'f>(
    listener: &UnixListener,
    events: &Events,
    functions: &'f Functions,
) -> io::Result<Option<Connection<'f>>> {
    keep_descriptors(listener)?;
    let stream = match listener.accept() {
        Ok((stream, _)) => UnixStream::from(own(stream.into())?),
        Err(why) => {
            use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
            let is_usual = [WouldBlock, Interrupted, ConnectionAborted].contains(&why.kind());
            return if is_usual { Ok(None) } else { Err(why) };
        }
    };
    let fd = stream.as_raw_fd();
    let connection = Connection::new(stream, functions)
        .filter(|_| events.control(libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN, fd as u64).is_ok());
    Ok(connection)
}

/// Leaves descriptors for the state, which needs some for a longer log and for a copy.
///
/// # Errors
/// `EMFILE`: no more than these are left.
fn keep_descriptors(listener: &UnixListener) -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is this function's.
    let most = match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } {
        0 => limit.rlim_cur,
        _ => return Ok(()),
    };
    // The kernel gives the lowest number that is free.
    let next = listener.as_fd().try_clone_to_owned()?.as_raw_fd() as u64;
    if next + KEPT.min(most / 4) < most {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::EMFILE))
    }
}

impl<'f> Connection<'f> {
    /// `None`: the program refuses the client.
    fn new(stream: UnixStream, functions: &'f Functions) -> Option<Self> {
        stream.set_nonblocking(true).ok()?;
        let mut number = CLIENTS.fetch_add(1, Relaxed);
        // SAFETY: the program's own function, as the header has it.
        let client = unsafe { (functions.init_client?)((&raw mut number).cast()) };
        if client.is_null() {
            return None;
        }
        let (input, output, request) = (Vec::new(), Vec::new(), Vec::new());
        let waits = libc::EPOLLIN;
        Some(Self { stream, functions, client, input, output, sent: 0, request, waits })
    }

    /// The key of the connection in an event loop.
    fn key(&self) -> u64 {
        self.stream.as_raw_fd() as u64
    }

    /// Has the event loop wait for what the connection lacks.
    fn wait(&mut self, events: &Events, pause: Pause) -> io::Result<Pause> {
        let waits = match pause {
            Pause::Room => libc::EPOLLOUT,
            Pause::Request => libc::EPOLLIN,
            Pause::Turn => return Ok(pause),
        };
        if waits != self.waits {
            let fd = self.stream.as_raw_fd();
            events.control(libc::EPOLL_CTL_MOD, fd, waits, self.key())?;
            self.waits = waits;
        }
        Ok(pause)
    }

    /// Reads, processes and answers, as far as possible within a turn. An error ends the connection.
    fn go_on(&mut self) -> io::Result<Pause> {
        let mut chunk = [0; CHUNK_BYTES];
        let mut left = TURN;
        loop {
            self.write()?;
            if !self.is_answered() {
                // The client takes no answers: no more of its requests.
                return Ok(Pause::Room);
            }
            if left == 0 {
                return Ok(Pause::Turn);
            }
            match self.requests(&mut left) {
                Ok(true) => continue,
                Ok(false) => {}
                Err(why) => {
                    // The answers before it are to durable requests.
                    let _ = self.write();
                    return Err(why);
                }
            }
            left -= 1;
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.input.extend_from_slice(chunk.get(..read).unwrap_or_default()),
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => return Ok(Pause::Request),
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return Err(why),
            }
        }
    }

    fn write(&mut self) -> io::Result<()> {
        while !self.is_answered() {
            match send(&self.stream, self.output.get(self.sent..).unwrap_or_default()) {
                Ok(written) => self.sent += written,
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return Err(why),
            }
        }
        self.sent = 0;
        emptied(&mut self.output);
        Ok(())
    }

    /// Whether its client has all answers.
    fn is_answered(&self) -> bool {
        self.sent == self.output.len()
    }

    /// Processes requests that have come whole, `left` of them at most. False: there is none.
    fn requests(&mut self, left: &mut u32) -> io::Result<bool> {
        let frame = self.functions.frame.ok_or(io::ErrorKind::InvalidInput)?;
        let mut done = 0;
        while *left > 0 && self.output.len() < ANSWER_BYTES {
            let rest = self.input.get(done..).unwrap_or_default();
            if rest.is_empty() {
                break;
            }
            // SAFETY: the program's own function, with bytes that it only reads.
            let bytes = unsafe { frame(rest.as_ptr().cast(), rest.len()) };
            if bytes == MALFORMED || bytes.max(rest.len()) > REQUEST_BYTES + CHUNK_BYTES {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let Some(request) = rest.get(..bytes).filter(|request| !request.is_empty()) else {
                break;
            };
            self.request.resize(bytes.div_ceil(size_of::<u128>()), 0);
            // SAFETY: the buffer is as long.
            unsafe {
                let to = self.request.as_mut_ptr().cast::<u8>();
                to.copy_from_nonoverlapping(request.as_ptr(), bytes);
            }
            done += bytes;
            *left -= 1;
            self.process()?;
        }
        match done == self.input.len() {
            true => emptied(&mut self.input),
            false => drop(self.input.drain(..done)),
        }
        if self.request.len() > KEPT_BYTES / size_of::<u128>() {
            self.request = Vec::new();
        }
        Ok(done > 0)
    }

    /// Processes the request, and takes its answer.
    fn process(&mut self) -> io::Result<()> {
        // SAFETY: the program's own functions, as the header has it; the response is the library's to free.
        unsafe {
            if let Some(deserialize) = self.functions.deserialize {
                deserialize(self.client, self.request.as_mut_ptr().cast());
            }
            if clients::spandrel_durable_command_of(self.client) != 0 {
                // Not durable: no answer.
                return Err(io::Error::last_os_error());
            }
            let Some(response) = self.functions.response else { return Ok(()) };
            let made: *mut SpandrelDurableResponse = response(self.client);
            if !made.is_null() {
                let SpandrelDurableResponse { response, size } = made.read();
                if size > 0 {
                    let answer = std::slice::from_raw_parts(response.cast::<u8>(), size);
                    self.output.extend_from_slice(answer);
                }
                libc::free(made.cast());
            }
        }
        Ok(())
    }
}

/// Empties a buffer. One that was long is not kept for a connection that may do nothing from now on.
fn emptied(buffer: &mut Vec<u8>) {
    match buffer.capacity() > KEPT_BYTES {
        true => *buffer = Vec::new(),
        false => buffer.clear(),
    }
}

/// Sends bytes. A client that has left is an error, and no signal.
fn send(stream: &UnixStream, bytes: &[u8]) -> io::Result<usize> {
    let (socket, how) = (stream.as_raw_fd(), libc::MSG_NOSIGNAL);
    // SAFETY: the bytes are there.
    let sent = unsafe { libc::send(socket, bytes.as_ptr().cast(), bytes.len(), how) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}
