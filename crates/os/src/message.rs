//! Messages on standard error without allocation.

use core::ffi::CStr;
use core::fmt::{self, Write};

use crate::call::call;

/// Longest message in bytes; what is longer is cut.
const LINE_BYTES: usize = 1024;

/// A line under construction on the stack.
pub struct Line {
    bytes: [u8; LINE_BYTES],
    len: usize,
}

impl Line {
    /// An empty line.
    pub const fn new() -> Self {
        Line { bytes: [0; LINE_BYTES], len: 0 }
    }

    /// What has been written so far.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }
}

impl Line {
    /// The line as a C string; what is longer than the room for it is cut.
    /// `None` when it contains a zero byte.
    pub fn as_c_str(&self) -> Option<&CStr> {
        // Bytes beyond the length are zero: nothing is ever taken back.
        let end = self.len.min(LINE_BYTES - 1);
        let text = CStr::from_bytes_until_nul(self.bytes.get(..=end)?).ok()?;
        (text.count_bytes() == end).then_some(text)
    }
}

impl Default for Line {
    fn default() -> Self {
        Self::new()
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = LINE_BYTES - self.len;
        let take = text.len().min(room);
        if let (Some(to), Some(from)) =
            (self.bytes.get_mut(self.len..self.len + take), text.as_bytes().get(..take))
        {
            to.copy_from_slice(from);
            self.len += take;
        }
        Ok(())
    }
}

/// A number of bytes, in words.
pub struct Bytes(pub usize);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, if self.0 == 1 { "byte" } else { "bytes" })
    }
}

/// Writes to a file descriptor; short writes are continued, errors end it.
pub struct Fd(pub i32);

impl Fd {
    /// Whether the calling thread has it open. `errno` is left as it was found.
    pub fn is_open(&self) -> bool {
        // SAFETY: asks for a flag.
        unsafe { call(libc::SYS_fcntl, [self.0 as usize, libc::F_GETFD as usize]) }.is_ok()
    }
}

impl Write for Fd {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        write_all(self.0, text.as_bytes()).map_err(|_| fmt::Error)
    }
}

/// Writes all of `bytes`. `errno` is left as it was found, and the thread is not cancelled here: this happens
/// within malloc.
///
/// # Errors
/// The error's number: the descriptor refuses them.
pub fn write_all(fd: i32, mut bytes: &[u8]) -> Result<(), i32> {
    while !bytes.is_empty() {
        let (at, len) = (bytes.as_ptr().expose_provenance(), bytes.len());
        // SAFETY: the pointer and length describe `bytes`.
        match unsafe { call(libc::SYS_write, [fd as usize, at, len]) } {
            Ok(0) => return Err(libc::EIO),
            Ok(count) => bytes = bytes.get(count..).unwrap_or(&[]),
            Err(libc::EINTR) => {}
            Err(why) => return Err(why),
        }
    }
    Ok(())
}

/// Writes one line, prefixed `spandrel: `, to standard error.
pub fn say(args: fmt::Arguments<'_>) {
    let mut line = Line::new();
    // `Line` never fails; it cuts. Leave room for the newline.
    let _ = line.write_str("spandrel: ");
    let _ = line.write_fmt(args);
    line.len = line.len.min(LINE_BYTES - 1);
    let _ = line.write_str("\n");
    let _ = write_all(2, line.as_bytes());
}
