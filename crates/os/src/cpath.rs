//! A path as the kernel takes it, on the stack.

use core::ffi::CStr;

/// Bytes of a path, with the zero that ends it.
pub const PATH_BYTES: usize = 4096;

/// A path with the zero byte at its end that the kernel needs.
#[derive(Clone)]
pub struct CPath([u8; PATH_BYTES]);

impl core::fmt::Debug for CPath {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.as_c().fmt(f)
    }
}

impl CPath {
    /// A path and a suffix.
    ///
    /// # Errors
    /// `EINVAL` for a path with a zero byte; `ENAMETOOLONG`.
    pub fn new(path: &[u8], suffix: &[u8]) -> Result<Self, i32> {
        if path.contains(&0) {
            return Err(libc::EINVAL);
        }
        let mut bytes = [0; PATH_BYTES];
        // The last byte stays zero.
        let mut places = bytes.iter_mut().take(PATH_BYTES - 1);
        for byte in path.iter().chain(suffix) {
            *places.next().ok_or(libc::ENAMETOOLONG)? = *byte;
        }
        Ok(Self(bytes))
    }

    /// The path of an open file in `/proc`, by its descriptor.
    pub fn of_descriptor(number: i32) -> Self {
        // The process's first thread may have ended, and has no files then.
        let mut path = *b"/proc/thread-self/fd/0000000000";
        let mut rest = number.unsigned_abs();
        for digit in path.iter_mut().rev().take(10) {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        let (name, digits) = path.split_at(path.len() - 10);
        let first = digits.iter().position(|digit| *digit != b'0').unwrap_or(digits.len() - 1);
        Self::new(name, digits.get(first..).unwrap_or(&[])).unwrap_or(Self([0; PATH_BYTES]))
    }

    /// The path as the kernel takes it.
    pub fn as_c(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or(c"")
    }
}
