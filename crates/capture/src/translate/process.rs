//! The code of the program that runs, and its memory as it may be read.

use spandrel_pages::PAGE_BYTES;

use super::decode::LONGEST;
use super::modules;
use super::restartable;
use super::rewrite::Source;

/// The code of this process.
#[derive(Default)]
pub struct Process {
    /// The part of a module that was looked at last.
    pub known: (u64, u64),
    /// Code that lies in no module and is translated all the same.
    pub added: (u64, u64),
    /// Code that was made at run time is translated too: in tests.
    pub takes_all: bool,
}

impl Process {
    /// The part of a module that has the code at an address, which was looked at last; where it lies in none, its bytes.
    pub fn around(&self, at: u64, bytes: u64) -> (u64, u64) {
        let (from, end) = self.known;
        if (from..end).contains(&at) { self.known } else { (at, at.saturating_add(bytes)) }
    }
}

impl Source for Process {
    fn has_code(&mut self, at: u64) -> bool {
        if (self.added.0..self.added.1).contains(&at) {
            return true;
        }
        if !(self.known.0..self.known.1).contains(&at) {
            self.known = modules::code_around(at).unwrap_or_default();
        }
        self.takes_all || self.known.1 != 0
    }

    fn bytes(&self, at: u64, into: &mut [u8; LONGEST], crosses: bool) -> usize {
        if crosses {
            return peek(at, into);
        }
        let len = LONGEST.min(PAGE_BYTES - at as usize % PAGE_BYTES);
        // SAFETY: the program runs there next.
        unsafe { into.as_mut_ptr().copy_from_nonoverlapping(at as *const u8, len) };
        len
    }

    fn has_sequence(&self, at: u64) -> bool {
        restartable::is_descriptor(at)
    }
}

/// Reads the process's own memory, which may not be there: the number of bytes.
pub fn peek(at: u64, into: &mut [u8]) -> usize {
    let to = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let from = libc::iovec { iov_base: at as *mut _, iov_len: into.len() };
    // SAFETY: one local buffer, and one that the kernel looks at before it reads.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &to, 1, &from, 1, 0) };
    usize::try_from(read).unwrap_or(0)
}
