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
    let read = unsafe {
        // The program's own number of its last error stays.
        let error = libc::__errno_location();
        let before = *error;
        let read = libc::process_vm_readv(libc::getpid(), &to, 1, &from, 1, 0);
        *error = before;
        read
    };
    usize::try_from(read).unwrap_or_else(|_| peek_by_pages(at as usize, into))
}

/// The same where a sandbox forbids that call.
fn peek_by_pages(at: usize, into: &mut [u8]) -> usize {
    let mut count = 0;
    while let Some(rest) = into.get_mut(count..).filter(|rest| !rest.is_empty()) {
        let from = at + count;
        let len = rest.len().min(PAGE_BYTES - from % PAGE_BYTES);
        if !is_readable(from & !(PAGE_BYTES - 1)) {
            break;
        }
        // SAFETY: of a page that can be read, up to its end.
        unsafe { rest.as_mut_ptr().copy_from_nonoverlapping(from as *const u8, len) };
        count += len;
    }
    count
}

/// Whether the first word of a page can be read: the kernel reads a set of signals there, and does nothing with it, as there is no such way to use it.
fn is_readable(page: usize) -> bool {
    const NO_SUCH_WAY: libc::c_long = -1;
    const SET_BYTES: usize = 8;
    // SAFETY: the kernel looks at the address before it reads, and changes no mask; the number of the last error is the calling thread's own.
    unsafe {
        let error = libc::__errno_location();
        let before = *error;
        let none = core::ptr::null_mut::<u8>();
        let asked = libc::syscall(libc::SYS_rt_sigprocmask, NO_SUCH_WAY, page, none, SET_BYTES);
        let why = core::mem::replace(&mut *error, before);
        asked == -1 && why == libc::EINVAL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_up_to_where_there_is_none() {
        // SAFETY: two pages of this test's own, of which the second is taken away again.
        let pages = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let (read, none) = (libc::PROT_READ | libc::PROT_WRITE, core::ptr::null_mut());
            let pages = libc::mmap(none, 2 * PAGE_BYTES, read, flags, -1, 0);
            libc::mprotect(pages.byte_add(PAGE_BYTES), PAGE_BYTES, libc::PROT_NONE);
            pages.cast::<u8>().write_bytes(7, PAGE_BYTES);
            pages as usize
        };
        for read in
            [peek_by_pages as fn(usize, &mut [u8]) -> usize, |at, into| peek(at as u64, into)]
        {
            let mut into = [0; 16];
            assert_eq!(read(pages + PAGE_BYTES - 6, &mut into), 6);
            assert_eq!(into[..8], [7, 7, 7, 7, 7, 7, 0, 0]);
            assert_eq!(read(pages + PAGE_BYTES, &mut into), 0);
            assert_eq!(read(pages + 100, &mut into), 16);
        }
        // SAFETY: as above.
        unsafe { libc::munmap(pages as *mut _, 2 * PAGE_BYTES) };
    }
}
