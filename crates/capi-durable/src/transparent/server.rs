//! Clients of other processes: a Unix socket, and an event loop in each worker (Mangosteen's RPC mode).
//!
//! A connection belongs to one worker. Its requests are processed in order; each answer leaves after its command is durable. What a connection may make the
//! server hold is bounded: a request of `REQUEST_BYTES`, and `ANSWER_BYTES` of answers that it does not take, beside the last one.

use std::collections::HashMap;
use std::ffi::{CStr, OsStr, c_char, c_int, c_uint, c_void};
use std::fs::Permissions;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use super::clients::{self, Functions};
use crate::failure::{self, Failure};

/// The longest request.
const REQUEST_BYTES: usize = 16 << 20;
/// With as many bytes of answers no further request of the client is processed until it has taken them.
const ANSWER_BYTES: usize = 1 << 20;
/// Bytes that are read at once.
const CHUNK_BYTES: usize = 64 << 10;
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
    let serve = || {
        crate::current::check_outside()?;
        let functions = clients::functions()?;
        if socket.is_null() {
            return Err(Failure::Null);
        }
        // SAFETY: promised by the caller.
        let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(socket) }.to_bytes()));
        let listener = listen(path).map_err(system)?;
        let listener = &listener;
        std::thread::scope(|scope| {
            for _ in 1..workers.clamp(1, 1024) {
                scope.spawn(move || work(listener, functions));
            }
            work(listener, functions).map_err(system)
        })
    };
    failure::number(serve())
}

fn system(why: io::Error) -> Failure {
    spandrel_durable::Error::System(why.raw_os_error().unwrap_or(libc::EIO)).into()
}

/// A socket for the user alone. One that no process listens at any more is removed.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let listener = match UnixListener::bind(path) {
        Err(why) if why.kind() == io::ErrorKind::AddrInUse => {
            let is_left = UnixStream::connect(path)
                .is_err_and(|why| why.kind() == io::ErrorKind::ConnectionRefused);
            if !is_left {
                return Err(why);
            }
            std::fs::remove_file(path)?;
            UnixListener::bind(path)?
        }
        bound => bound?,
    };
    std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
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
                Ok(Self(OwnedFd::from_raw_fd(made)))
            }
        }
    }

    fn control(&self, what: c_int, fd: RawFd, events: c_int, key: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: key };
        // SAFETY: both are open descriptors, and the event is this function's.
        let done = unsafe { libc::epoll_ctl(self.0.as_raw_fd(), what, fd, &mut event) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The keys of the descriptors that are ready.
    fn wait(&self) -> io::Result<Vec<u64>> {
        let mut ready = [libc::epoll_event { events: 0, u64: 0 }; 64];
        let most = ready.len() as c_int;
        // SAFETY: as many events as there is room for.
        let count = unsafe { libc::epoll_wait(self.0.as_raw_fd(), ready.as_mut_ptr(), most, -1) };
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
    /// A request, aligned for any type.
    request: Vec<u128>,
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
fn work(listener: &UnixListener, functions: &Functions) -> io::Result<()> {
    let events = Events::new()?;
    let of_listener = libc::EPOLLIN | libc::EPOLLEXCLUSIVE;
    events.control(libc::EPOLL_CTL_ADD, listener.as_raw_fd(), of_listener, LISTENER)?;
    let mut connections = HashMap::new();
    loop {
        for key in events.wait()? {
            if key == LISTENER {
                // Another worker may have been faster.
                if let Ok((stream, _)) = listener.accept()
                    && let Some(connection) = Connection::new(stream, functions)
                {
                    let fd = connection.stream.as_raw_fd();
                    if events.control(libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN, fd as u64).is_ok() {
                        connections.insert(fd as u64, connection);
                    }
                }
                continue;
            }
            let Some(connection) = connections.get_mut(&key) else { continue };
            let waits = match connection.go_on() {
                Ok(()) if connection.output.is_empty() => libc::EPOLLIN,
                Ok(()) => libc::EPOLLOUT,
                Err(_) => {
                    // Its descriptor is closed, and leaves the event loop by that.
                    connections.remove(&key);
                    continue;
                }
            };
            let fd = connection.stream.as_raw_fd();
            events.control(libc::EPOLL_CTL_MOD, fd, waits, key)?;
        }
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
        Some(Self { stream, functions, client, input, output, request })
    }

    /// Reads, processes and answers, as far as possible. An error ends the connection.
    fn go_on(&mut self) -> io::Result<()> {
        let mut chunk = [0; CHUNK_BYTES];
        loop {
            self.write()?;
            if !self.output.is_empty() {
                // The client takes no answers: no more of its requests.
                return Ok(());
            }
            if self.requests()? {
                continue;
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.input.extend_from_slice(chunk.get(..read).unwrap_or_default()),
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return Err(why),
            }
        }
    }

    fn write(&mut self) -> io::Result<()> {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(written) => drop(self.output.drain(..written)),
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return Err(why),
            }
        }
        Ok(())
    }

    /// Processes requests that have come whole. False: there is none.
    fn requests(&mut self) -> io::Result<bool> {
        let frame = self.functions.frame.ok_or(io::ErrorKind::InvalidInput)?;
        let mut done = 0;
        while self.output.len() < ANSWER_BYTES {
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
            self.process()?;
        }
        self.input.drain(..done);
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
                let answer = (*made).response.cast::<u8>();
                self.output.extend_from_slice(std::slice::from_raw_parts(answer, (*made).size));
                libc::free(made.cast());
            }
        }
        Ok(())
    }
}
