//! What went wrong last on a thread: `errno`, and the text behind it.

use core::ffi::{c_char, c_int, c_void};
use core::fmt::{self, Write};
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use spandrel_os::env::set_errno;
use spandrel_pheap::Error;

/// Bytes of the longest text, with the zero that ends it; what is longer is cut.
const TEXT_BYTES: usize = 192;

/// What is kept for each thread; zero when it begins. Texts are made when they are asked for: most failures are of callers who
/// know what the number means.
#[repr(C)]
struct Last {
    error: MaybeUninit<Error>,
    /// Not 0: there is an error. What begins as zeroes need not be one.
    is_set: usize,
    text: [u8; TEXT_BYTES],
}

const LAST_BYTES: usize = 256;
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
    // SAFETY: this thread's own, and nobody keeps a reference.
    let last = unsafe { &mut *last() };
    last.error.write(error);
    last.is_set = 1;
    set_errno(error.errno());
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

/// What the last function of this thread that failed has to say of it; "" before any. The text is there until the thread asks
/// again.
#[unsafe(no_mangle)]
pub extern "C" fn spandrel_heap_error_text() -> *const c_char {
    // SAFETY: this thread's own, and nobody keeps a reference.
    let last = unsafe { &mut *last() };
    last.text.fill(0);
    if last.is_set != 0 {
        // SAFETY: set, so that it was written.
        let error = unsafe { last.error.assume_init() };
        // A text never fails; it is cut.
        let _ = write!(Text { bytes: &mut last.text, len: 0 }, "{error}");
    }
    last.text.as_ptr().cast()
}
