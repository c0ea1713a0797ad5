//! What went wrong last on a thread: `errno`, and the text behind it.

use core::ffi::{c_char, c_int, c_void};
use core::fmt::{self, Write};
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use spandrel_os::env::set_errno;
use spandrel_pheap::{Error, OpenError};

/// Bytes of the longest text, with the zero that ends it; what is longer is cut. With the thread slot of the rooms below the library has 512
/// bytes of initial-exec storage, which is what the C library keeps for libraries that are loaded later (`glibc.rtld.optional_static_tls`).
const TEXT_BYTES: usize = 320;

/// There has been no error on this thread. Zero: so it begins.
#[allow(dead_code, reason = "zero, which the others differ from")]
const NOTHING: usize = 0;
/// There is an error, whose text is made when the program asks for it: most failures are of callers that know what the number means.
const ERROR: usize = 1;
/// There is a text: that of an error with a path, which is known only when it happens.
const TEXT: usize = 2;

/// What is kept for each thread.
#[repr(C)]
struct Last {
    error: MaybeUninit<Error>,
    /// One of the above.
    kept: usize,
    text: [u8; TEXT_BYTES],
}

const LAST_BYTES: usize = 384;
const _: () = assert!(size_of::<Last>() <= LAST_BYTES && align_of::<Last>() <= 64);

// Initial-exec, as the thread slot is: see `spandrel_sync::slot`.
core::arch::global_asm!(
    ".pushsection .tbss.spandrel_heap_last,\"awT\",@nobits",
    ".balign 64",
    ".hidden spandrel_heap_last",
    ".globl spandrel_heap_last",
    ".type spandrel_heap_last,@object",
    ".size spandrel_heap_last,{bytes}",
    "spandrel_heap_last:",
    ".zero {bytes}",
    ".popsection",
    bytes = const LAST_BYTES,
);

fn last() -> *mut Last {
    let last: *mut Last;
    // SAFETY: the first word of the thread control block is its own address; the offset from it is fixed when the library is
    // loaded.
    unsafe {
        core::arch::asm!(
            "mov {last}, qword ptr fs:[0]",
            "add {last}, qword ptr [rip + spandrel_heap_last@GOTTPOFF]",
            last = out(reg) last,
            options(pure, readonly, nostack),
        );
    }
    last
}

#[cold]
fn note(error: Error) {
    // SAFETY: this thread's own, and no function keeps a reference.
    let last = unsafe { &mut *last() };
    last.error.write(error);
    last.kept = ERROR;
    set_errno(error.errno());
}

#[cold]
fn note_with_path(error: &OpenError) {
    // SAFETY: this thread's own, and no function keeps a reference.
    let last = unsafe { &mut *last() };
    last.write(format_args!("{error:#}"));
    last.kept = TEXT;
    set_errno(error.errno());
}

impl Last {
    fn write(&mut self, text: fmt::Arguments<'_>) {
        self.text.fill(0);
        // A text never fails; it is cut.
        let _ = Text { bytes: &mut self.text, len: 0 }.write_fmt(text);
    }
}

/// For functions that make or open a heap, and return a pointer, or null.
pub fn opened<T>(outcome: Result<*mut T, OpenError>) -> *mut T {
    outcome.unwrap_or_else(|why| {
        note_with_path(&why);
        core::ptr::null_mut()
    })
}

/// For functions that write a copy of a heap, and return 0, or -1.
pub fn done(outcome: Result<(), OpenError>) -> c_int {
    outcome.map_or_else(
        |why| {
            note_with_path(&why);
            -1
        },
        |()| 0,
    )
}

/// For functions that return 0, or -1.
pub fn number(outcome: Result<(), Error>) -> c_int {
    count(outcome.map(|()| 0))
}

/// For functions that return a number, or -1.
pub fn count(outcome: Result<c_int, Error>) -> c_int {
    outcome.unwrap_or_else(|why| {
        note(why);
        -1
    })
}

/// For functions that return a size or a word, or 0.
pub fn word<T: Default>(outcome: Result<T, Error>) -> T {
    outcome.unwrap_or_else(|why| {
        note(why);
        T::default()
    })
}

/// For functions that return an object, or null.
#[inline]
pub fn object(outcome: Result<NonNull<u8>, Error>) -> *mut c_void {
    match outcome {
        Ok(object) => object.as_ptr().cast(),
        Err(why) => {
            note(why);
            core::ptr::null_mut()
        }
    }
}

/// A text that ends with a zero, however long it would be.
struct Text<'a> {
    bytes: &'a mut [u8; TEXT_BYTES],
    len: usize,
}

impl Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let take = text.len().min(TEXT_BYTES - 1 - self.len);
        if let (Some(to), Some(from)) =
            (self.bytes.get_mut(self.len..self.len + take), text.as_bytes().get(..take))
        {
            to.copy_from_slice(from);
            self.len += take;
        }
        Ok(())
    }
}

/// The text of the last function of this thread that failed; "" before any. The text is there until the thread calls this again, or fails
/// to open a heap.
#[unsafe(no_mangle)]
pub extern "C" fn spandrel_heap_error_text() -> *const c_char {
    // SAFETY: this thread's own, and no function keeps a reference.
    let last = unsafe { &mut *last() };
    match last.kept {
        ERROR => {
            // SAFETY: it was written.
            let error = unsafe { last.error.assume_init() };
            last.write(format_args!("{error}"));
        }
        TEXT => {}
        _ => last.text.fill(0),
    }
    last.text.as_ptr().cast()
}
