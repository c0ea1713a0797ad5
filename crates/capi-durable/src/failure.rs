//! What went wrong last on a thread: `errno`, and the text behind it.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::fmt;
use std::ptr;

use spandrel::durable::{Error, OpenError};

use crate::translated::Name;

/// Why a function has failed.
#[derive(Clone, Copy, Debug)]
pub enum Failure {
    /// The state refuses.
    State(Error),
    /// An argument that must not be NULL is.
    Null,
    /// An argument is wrong: which.
    Wrong(&'static str),
    /// What only a command may call was called outside of one.
    Outside,
    /// What only a command that writes may call was called in one that reads.
    Reads,
    /// The command runs on another state.
    Other,
    /// A command has called what begins another one, or waits for one.
    Nested,
    /// The same from load until start, in the thread that makes the program's own state.
    Early,
    /// The bytes do not lie in the state.
    Elsewhere,
    /// The command has returned this negative number.
    Refused(c_int),
    /// The kernel draws the addresses of the program, and the state leads into it.
    Addresses,
    /// The state leads into a file, and the process has another build of it, or none.
    OtherBuild(Name),
    /// The same file lies at another address.
    Moved(Name),
}

impl From<Error> for Failure {
    fn from(why: Error) -> Self {
        Self::State(why)
    }
}

impl From<spandrel_pheap::Error> for Failure {
    fn from(why: spandrel_pheap::Error) -> Self {
        Self::State(why.into())
    }
}

impl Failure {
    fn errno(self) -> c_int {
        match self {
            Self::State(why) => why.errno(),
            Self::Null | Self::Wrong(_) | Self::Other => libc::EINVAL,
            Self::Outside | Self::Reads => libc::EROFS,
            Self::Nested | Self::Early => libc::EDEADLK,
            Self::Elsewhere => libc::EFAULT,
            Self::Refused(_) => libc::ECANCELED,
            Self::Addresses => libc::ENOTSUP,
            Self::OtherBuild(_) | Self::Moved(_) => libc::EPROTOTYPE,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::State(why) => why.fmt(f),
            Self::Null => f.write_str("a pointer is NULL that must not be; see spandrel_durable.h"),
            Self::Wrong(what) => f.write_str(what),
            Self::Outside => f.write_str(
                "no command of the state runs in this thread; call it in the function that spandrel_durable_write runs",
            ),
            Self::Reads => f.write_str(
                "a command that reads must not change the state; call it in the function that spandrel_durable_write runs",
            ),
            Self::Other => f.write_str(
                "the command runs on another state; use the one that the function was given",
            ),
            Self::Nested => f.write_str(
                "a command must not begin another one, nor close the state or ask for its figures; call it after the first has returned",
            ),
            Self::Early => f.write_str(
                "the thread makes the program's own state, for as long as that is new; call it after spandrel_durable_start, initMangosteen or mangosteenInit",
            ),
            Self::Elsewhere => f.write_str(
                "the bytes do not lie in the state; use memory of spandrel_durable_malloc",
            ),
            Self::Refused(number) => write!(f, "the command returned {number}, and was undone"),
            Self::Addresses => f.write_str(
                "the kernel draws the addresses of the program, and what translated commands make may lead into it; call spandrel_durable_fix_addresses() first in main, or link with -no-pie",
            ),
            Self::OtherBuild(name) => write!(
                f,
                "the state was made with another build of {name}, and may lead into it; open it with that build, and have the program write out what the state has, as no tool translates such values"
            ),
            Self::Moved(name) => write!(
                f,
                "{name} was at another address when the state was made, which may lead into it; start the program in the same way (spandrel_durable_fix_addresses(), the same libraries preloaded, the same `ulimit -s`)"
            ),
        }
    }
}

/// The text of the last failure: made when it is asked for, as most callers only use the number.
enum Last {
    Nothing,
    Reason(Failure),
    Text(CString),
}

thread_local! {
    static LAST: RefCell<Last> = const { RefCell::new(Last::Nothing) };
}

fn text(of: impl fmt::Display) -> CString {
    let mut bytes = of.to_string().into_bytes();
    bytes.retain(|byte| *byte != 0);
    CString::new(bytes).unwrap_or_default()
}

#[cold]
fn keep(last: Last, errno: c_int) {
    // A thread that ends has no text any more.
    let _ = LAST.try_with(|place| {
        if let Ok(mut place) = place.try_borrow_mut() {
            *place = last;
        }
    });
    // SAFETY: the thread's own number.
    unsafe { *libc::__errno_location() = errno };
}

fn note(why: Failure) {
    keep(Last::Reason(why), why.errno());
}

/// The result of a function that opens a state: a pointer, or null. `directory`: what was to be opened.
pub fn opened<T>(outcome: Result<*mut T, Failure>, directory: &std::path::Path) -> *mut T {
    outcome.unwrap_or_else(|why| {
        let errno = why.errno();
        keep(Last::Text(text(format_args!("{}: {why}", directory.display()))), errno);
        ptr::null_mut()
    })
}

/// The result of a function that has to do with a directory and returns 0, or -1.
pub fn number_in(outcome: Result<(), Failure>, directory: &std::path::Path) -> c_int {
    let Err(why) = outcome else { return 0 };
    let errno = why.errno();
    keep(Last::Text(text(format_args!("{}: {why}", directory.display()))), errno);
    -1
}

impl From<OpenError> for Failure {
    fn from(why: OpenError) -> Self {
        Self::State(why.why)
    }
}

/// The result of a function that the system refuses: 0, or -1.
pub fn system(outcome: std::io::Result<()>) -> c_int {
    let Err(why) = outcome else { return 0 };
    keep(Last::Text(text(&why)), why.raw_os_error().unwrap_or(libc::EPERM));
    -1
}

/// The result of a function that returns 0, or -1.
pub fn number(outcome: Result<(), Failure>) -> c_int {
    count(outcome.map(|()| 0))
}

/// The result of a function that returns a number, or -1.
pub fn count(outcome: Result<c_int, Failure>) -> c_int {
    outcome.unwrap_or_else(|why| {
        note(why);
        -1
    })
}

/// The result of a function that returns a size, or 0.
pub fn word(outcome: Result<usize, Failure>) -> usize {
    outcome.unwrap_or_else(|why| {
        note(why);
        0
    })
}

/// The result of a function that returns an address, or null.
pub fn address(outcome: Result<*mut c_void, Failure>) -> *mut c_void {
    outcome.unwrap_or_else(|why| {
        note(why);
        ptr::null_mut()
    })
}

/// Ends the process, with a reason: going on would be undefined.
pub fn end(why: &str) -> ! {
    eprintln!("spandrel: {why}");
    std::process::abort()
}

/// The text of the last function that failed on this thread; "" before any. The text stays until the thread calls one of these functions again.
#[unsafe(no_mangle)]
pub extern "C" fn spandrel_durable_error_text() -> *const c_char {
    let shown = LAST.try_with(|place| {
        let mut place = place.try_borrow_mut().ok()?;
        if let Last::Reason(why) = &*place {
            let made = text(why);
            *place = Last::Text(made);
        }
        match &*place {
            Last::Text(text) => Some(text.as_ptr()),
            _ => None,
        }
    });
    shown.ok().flatten().unwrap_or(c"".as_ptr())
}
