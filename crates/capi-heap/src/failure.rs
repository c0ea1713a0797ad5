//! What went wrong last on a thread: `errno`, and the text behind it.

use core::ffi::{c_char, c_int, c_void};
use core::fmt::{self, Write};
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use spandrel_os::env::set_errno;
use spandrel_pheap::{Error, OpenError};

/// Bytes of the longest text, with the zero that ends it; a longer text is cut. With the thread slot of the rooms below, the library has
/// 512 bytes of initial-exec storage: glibc keeps that much for libraries that are loaded later (`glibc.rtld.optional_static_tls`).
const TEXT_BYTES: usize = 312;

/// No function of this thread has failed. Zero, which the storage of a thread begins with.
#[allow(dead_code, reason = "the value that a thread begins with; the others differ from it")]
const NOTHING: usize = 0;
/// There is an error. Its text is made by `spandrel_heap_error_text`: most callers only use the number.
const ERROR: usize = 1;
/// There is a text, made when the error happened: only then its path is known.
const TEXT: usize = 2;

/// The last error of a thread.
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
        // Writing a text never fails: a long text is cut.
        let _ = Text { bytes: &mut self.text, len: 0, is_cut: false }.write_fmt(text);
    }
}

/// The result of a function that makes or opens a heap: a pointer, or null.
pub fn opened<T>(outcome: Result<*mut T, OpenError>) -> *mut T {
    outcome.unwrap_or_else(|why| {
        note_with_path(&why);
        core::ptr::null_mut()
    })
}

/// The result of a function that writes a copy of a heap: 0, or -1.
pub fn done(outcome: Result<(), OpenError>) -> c_int {
    outcome.map_or_else(
        |why| {
            note_with_path(&why);
            -1
        },
        |()| 0,
    )
}

/// The result of a function that returns 0, or -1.
pub fn number(outcome: Result<(), Error>) -> c_int {
    count(outcome.map(|()| 0))
}

/// The result of a function that returns a number, or -1.
pub fn count(outcome: Result<c_int, Error>) -> c_int {
    outcome.unwrap_or_else(|why| {
        note(why);
        -1
    })
}

/// The result of a function that returns a size or a word, or 0.
pub fn word<T: Default>(outcome: Result<T, Error>) -> T {
    outcome.unwrap_or_else(|why| {
        note(why);
        T::default()
    })
}

/// The result of a function that returns an object, or null.
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

/// A text that is cut so that a zero fits behind it, and between two characters.
struct Text<'a> {
    bytes: &'a mut [u8; TEXT_BYTES],
    len: usize,
    is_cut: bool,
}

impl Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.is_cut {
            return Ok(());
        }
        let room = TEXT_BYTES - 1 - self.len;
        self.is_cut = text.len() > room;
        let take = (0..=room.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
        let take = take.unwrap_or(0);
        if let (Some(to), Some(from)) =
            (self.bytes.get_mut(self.len..self.len + take), text.as_bytes().get(..take))
        {
            to.copy_from_slice(from);
            self.len += take;
        }
        Ok(())
    }
}

/// The text of the last function that failed on this thread; "" before any. The text stays until the thread calls this function again, or
/// fails to make, open or copy a heap.
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
