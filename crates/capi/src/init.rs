//! Load and exit of the library: start, proof of loading, statistics at exit.

use core::ffi::CStr;
use core::fmt::Write;

use spandrel_adaptive as adaptive;
use spandrel_os::env;
use spandrel_os::message::{Fd, Line, say, write_all};

#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;

#[used]
#[unsafe(link_section = ".fini_array")]
static EXITING: extern "C" fn() = exiting;

extern "C" fn loaded() {
    // A program's `errno` is zero when it starts (ISO C).
    let errno = env::errno();
    adaptive::start();
    spandrel_backends::resolve_early();
    if env::get(c"SPANDREL_VERBOSE").is_some_and(|v| !v.is_empty() && v != b"0") {
        verbose();
    }
    handshake();
    env::set_errno(errno);
}

fn verbose() {
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
            let _ = writeln!(
                line,
                "spandrel {} mode {}",
                env!("CARGO_PKG_VERSION"),
                adaptive::current_mode()
            );
            write_all(fd, line.as_bytes());
            // SAFETY: the descriptor is the pipe made for this purpose.
            unsafe { libc::close(fd) };
        }
    }
    env::remove(NAME);
}

/// Longest path of a statistics file in bytes.
const PATH_BYTES: usize = 1000;

extern "C" fn exiting() {
    let Some(target) = env::get(c"SPANDREL_STATS") else {
        return;
    };
    match target {
        b"" | b"0" => {}
        b"1" | b"stderr" => {
            // What standard error refuses is lost.
            let _ = write!(Fd(2), "{}", adaptive::Text(&adaptive::stats()));
        }
        path => {
            if !write_file(path) {
                say(format_args!(
                    "SPANDREL_STATS: {}: cannot be written (errno {})",
                    core::str::from_utf8(path).unwrap_or("?"),
                    env::errno()
                ));
            }
        }
    }
}

/// Writes the statistics to `pattern`, `%p` standing for the process id.
fn write_file(pattern: &[u8]) -> bool {
    let mut path = Line::new();
    let mut rest = pattern;
    while let Some(at) = rest.windows(2).position(|pair| pair == b"%p") {
        let (before, after) = rest.split_at(at);
        let _ = path.write_str(core::str::from_utf8(before).unwrap_or("?"));
        let _ = write!(path, "{}", env::pid());
        rest = after.get(2..).unwrap_or(&[]);
    }
    let _ = path.write_str(core::str::from_utf8(rest).unwrap_or("?"));
    let json = path.as_bytes().ends_with(b".json");
    let _ = path.write_str("\0");
    let Ok(name) = CStr::from_bytes_with_nul(path.as_bytes()) else {
        return false;
    };
    if name.count_bytes() > PATH_BYTES {
        return false;
    }
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC;
    // SAFETY: the name is NUL-terminated.
    let fd = unsafe { libc::open(name.as_ptr(), flags, 0o644) };
    if fd < 0 {
        return false;
    }
    let stats = adaptive::stats();
    let mut out = Buffered { fd, line: Line::new() };
    let written = if json {
        write!(out, "{}", adaptive::Json(&stats))
    } else {
        write!(out, "{}", adaptive::Text(&stats))
    };
    let flushed = out.flush();
    // SAFETY: `fd` was opened above.
    unsafe { libc::close(fd) };
    written.is_ok() && flushed
}

/// Collects small writes into one system call each kilobyte.
struct Buffered {
    fd: i32,
    line: Line,
}

impl Buffered {
    fn flush(&mut self) -> bool {
        let line = core::mem::take(&mut self.line);
        write_all(self.fd, line.as_bytes())
    }
}

impl Write for Buffered {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        if self.line.as_bytes().len() + text.len() > 1000 && !self.flush() {
            return Err(core::fmt::Error);
        }
        if text.len() > 1000 {
            return if write_all(self.fd, text.as_bytes()) {
                Ok(())
            } else {
                Err(core::fmt::Error)
            };
        }
        self.line.write_str(text)
    }
}
