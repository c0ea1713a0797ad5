//! The kernel's error numbers in words, with the way out where there is a usual one.

use core::ffi::CStr;
use core::fmt;

/// Writes what the C library calls an error, as the standard library of Rust does.
pub fn write(f: &mut fmt::Formatter<'_>, number: i32) -> fmt::Result {
    let mut words = [0u8; 128];
    // SAFETY: the pointer and length describe the buffer, of which the function leaves a string.
    let outcome = unsafe { libc::strerror_r(number, words.as_mut_ptr().cast(), words.len()) };
    // A number without words has some all the same, in most libraries.
    let text = CStr::from_bytes_until_nul(&words).ok().filter(|text| !text.is_empty());
    match text.and_then(|text| text.to_str().ok()) {
        Some(text) if outcome == 0 || outcome == libc::EINVAL => {
            write!(f, "{text} (os error {number})")
        }
        _ => write!(f, "the system refused (os error {number})"),
    }
}

/// What the user can do about an error of a file that is to be a heap.
pub fn way_out(number: i32) -> Option<&'static str> {
    Some(match number {
        libc::EACCES | libc::EPERM => {
            "the process needs the permission to read it, and to write it where it is to change"
        }
        libc::EROFS => {
            "open it to read only where that is enough, or copy it to where it can be written"
        }
        libc::EMFILE => "close files first, or have 'ulimit -n' allow more",
        libc::ENFILE => "the machine has no more: close files, or raise fs.file-max",
        libc::ELOOP => "it is a symbolic link: name the file itself",
        libc::EEXIST => "open what is there, name another file, or remove it",
        libc::EISDIR | libc::ENXIO => "name a file that holds bytes",
        libc::EIO => "the disk has failed: look at its kernel messages, and restore a copy",
        _ => return None,
    })
}
