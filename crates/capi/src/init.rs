//! Load and exit of the library: start, proof of loading, statistics at exit.

use core::ffi::CStr;
use core::fmt::Write;

use spandrel_adaptive as adaptive;
use spandrel_os::message::{Fd, Line, say, write_all};
use spandrel_os::{degrade, env, usage};
use spandrel_sync::background;

use crate::elsewhere::is_elsewhere;
use crate::identity;

#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;

#[used]
#[unsafe(link_section = ".fini_array")]
static EXITING: extern "C" fn() = exiting;

extern "C" fn loaded() {
    // A program's `errno` is zero when it starts (ISO C).
    let errno = env::errno();
    adaptive::take_small_pages();
    if !is_elsewhere() {
        background::watched_by(identity::is_watched);
        adaptive::start();
        spandrel_backends::resolve_early();
    }
    if env::get(c"SPANDREL_VERBOSE").is_some_and(|v| !v.is_empty() && v != b"0") {
        verbose();
    }
    handshake();
    env::set_errno(errno);
}

fn verbose() {
    if is_elsewhere() {
        return say(format_args!(
            "{} loaded into {} (pid {}), which has a malloc of its own: that one serves it",
            env!("CARGO_PKG_VERSION"),
            core::str::from_utf8(env::program()).unwrap_or("?"),
            env::pid(),
        ));
    }
    let mut names = Line::new();
    for id in adaptive::available().iter() {
        // A line never fails, and this one is short.
        let _ = write!(names, " {}", id.name());
    }
    say(format_args!(
        "{} loaded into {} (pid {}): mode {}, allocators{}",
        env!("CARGO_PKG_VERSION"),
        core::str::from_utf8(env::program()).unwrap_or("?"),
        env::pid(),
        adaptive::current_mode(),
        core::str::from_utf8(names.as_bytes()).unwrap_or(""),
    ));
}

/// Tells `spandrel run` that the library is there: `FD:INODE` names a pipe. The
/// inode guards against a number that means another file by now.
fn handshake() {
    const NAME: &CStr = c"SPANDREL_HANDSHAKE";
    let Some(value) = env::get(NAME) else { return };
    let parsed = core::str::from_utf8(value).ok().and_then(|text| {
        let (fd, inode) = text.split_once(':')?;
        Some((fd.parse::<i32>().ok()?, inode.parse::<u64>().ok()?))
    });
    if let Some((fd, inode)) = parsed {
        // SAFETY: an all-zero stat is valid, and fstat fills it.
        let is_ours = unsafe {
            let mut status: libc::stat = core::mem::zeroed();
            libc::fstat(fd, &mut status) == 0
                && status.st_mode & libc::S_IFMT == libc::S_IFIFO
                && status.st_ino == inode
        };
        if is_ours {
            let mut line = Line::new();
            let _ = write!(line, "spandrel {} ", env!("CARGO_PKG_VERSION"));
            let _ = if is_elsewhere() {
                writeln!(line, "elsewhere")
            } else {
                writeln!(line, "mode {}", adaptive::current_mode())
            };
            let _ = write_all(fd, line.as_bytes());
            // SAFETY: the descriptor is the pipe made for this purpose.
            unsafe { libc::close(fd) };
        }
    }
    env::remove(NAME);
}

/// Longest path of a statistics file in bytes, and one.
const PATH_BYTES: usize = 1000;

extern "C" fn exiting() {
    degrade::say_late();
    adaptive::finish_recording();
    let Some(target) = env::get(c"SPANDREL_STATS") else {
        return;
    };
    match target {
        b"" | b"0" => {}
        b"1" | b"stderr" => {
            // What standard error refuses is lost.
            let _ = write!(Fd(2), "{}", adaptive::Text(&adaptive::measured_stats()));
        }
        path => {
            if let Err(errno) = write_file(path) {
                say(format_args!(
                    "SPANDREL_STATS: {}: cannot be written (errno {errno}); name a file in a \
                     directory that this program may write to, or 'stderr'",
                    core::str::from_utf8(path).unwrap_or("?"),
                ));
            }
        }
    }
}

/// The name of the statistics file: `pattern` with `%p` standing for the process
/// id and `%h` for the host's name. `None`: too long.
fn file_name<'a>(pattern: &[u8], buffer: &'a mut [u8; PATH_BYTES]) -> Option<&'a CStr> {
    let mut number = Line::new();
    // A line never fails, and this one is short.
    let _ = write!(number, "{}", env::pid());
    let mut name = [0; 256];
    let host = usage::host(&mut name);
    let mut len = 0;
    let mut append = |bytes: &[u8]| {
        let room =
            buffer.get_mut(len..len + bytes.len()).filter(|_| len + bytes.len() < PATH_BYTES);
        room.map(|room| room.copy_from_slice(bytes)).map(|()| len += bytes.len())
    };
    let mut rest = pattern;
    let stands_for_something = |pair: &[u8]| matches!(pair, b"%p" | b"%h");
    while let Some(at) = rest.windows(2).position(stands_for_something) {
        let (before, after) = rest.split_at(at);
        append(before)?;
        append(if after.starts_with(b"%h") { host } else { number.as_bytes() })?;
        rest = after.get(2..).unwrap_or(&[]);
    }
    append(rest)?;
    CStr::from_bytes_until_nul(buffer).ok()
}

/// Writes the statistics to a file.
///
/// # Errors
/// The number of the error.
fn write_file(pattern: &[u8]) -> Result<(), i32> {
    let mut buffer = [0; PATH_BYTES];
    let name = file_name(pattern, &mut buffer).ok_or(libc::ENAMETOOLONG)?;
    let json = name.to_bytes().ends_with(b".json");
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC;
    // SAFETY: the name is NUL-terminated.
    let fd = unsafe { libc::open(name.as_ptr(), flags, 0o644) };
    if fd < 0 {
        return Err(env::errno());
    }
    let stats = adaptive::measured_stats();
    let mut out = Buffered { fd, line: Line::new(), refused: None };
    let written = if json {
        write!(out, "{}", adaptive::Json(&stats))
    } else {
        write!(out, "{}", adaptive::Text(&stats))
    };
    let flushed = written.is_ok() && out.flush().is_ok();
    // SAFETY: `fd` was opened above.
    unsafe { libc::close(fd) };
    if flushed { Ok(()) } else { Err(out.refused.unwrap_or(libc::EIO)) }
}

/// Collects small writes into one system call each kilobyte.
struct Buffered {
    fd: i32,
    line: Line,
    /// Why the file does not take more: the error's number.
    refused: Option<i32>,
}

impl Buffered {
    fn flush(&mut self) -> core::fmt::Result {
        let line = core::mem::take(&mut self.line);
        self.write_all(line.as_bytes())
    }

    fn write_all(&mut self, bytes: &[u8]) -> core::fmt::Result {
        write_all(self.fd, bytes).map_err(|why| {
            self.refused.get_or_insert(why);
            core::fmt::Error
        })
    }
}

impl Write for Buffered {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        if self.line.as_bytes().len() + text.len() > 1000 {
            self.flush()?;
        }
        if text.len() > 1000 {
            return self.write_all(text.as_bytes());
        }
        self.line.write_str(text)
    }
}
