//! The processor's watchpoints, by `perf_event_open`: which instructions of a thread store at an address. Systems often forbid them.

use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering::*};

use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use spandrel_pages::PAGE_BYTES;

/// Watchpoints of a thread: a processor has four.
pub const MOST: usize = 4;

// `linux/perf_event.h`.
const TYPE_BREAKPOINT: u32 = 5;
const SAMPLE_IP: u64 = 1;
const EXCLUDES_KERNEL: u64 = 1 << 5 | 1 << 6;
const ON_WRITE: u32 = 2;
const CLOSES_ON_EXEC: u64 = 8;
const RECORD_SAMPLE: u32 = 9;
const HEAD: usize = 1024;
const TAIL: usize = 1032;

/// `struct perf_event_attr` of a watchpoint.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    bytes: u32,
    config: u64,
    period: u64,
    sample: u64,
    read: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    at: u64,
    len: u64,
    rest: [u64; 7],
}

/// Eight bytes that are watched in a thread.
#[derive(Debug)]
pub struct Watchpoint {
    ring: *mut u8,
    _file: OwnedFd,
}

impl Watchpoint {
    /// Watches the word at an address in the thread of that number. `None`: the system does not allow it, or the thread has [`MOST`] already.
    pub fn new(thread: i32, at: usize) -> Option<Self> {
        let attributes = Attributes {
            kind: TYPE_BREAKPOINT,
            bytes: u32::try_from(size_of::<Attributes>()).ok()?,
            period: 1,
            sample: SAMPLE_IP,
            flags: EXCLUDES_KERNEL,
            wakeup: 1,
            breakpoint: ON_WRITE,
            at: at as u64 & !7,
            len: 8,
            ..Attributes::default()
        };
        // SAFETY: the attributes are those of the call; the mapping is a new one.
        unsafe {
            let file = libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                thread,
                -1,
                -1,
                CLOSES_ON_EXEC,
            );
            let file = i32::try_from(file).ok().filter(|file| *file >= 0)?;
            let file = OwnedFd::from_raw_fd(file);
            let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
            let ring =
                libc::mmap(ptr::null_mut(), 2 * PAGE_BYTES, access, kind, file.as_raw_fd(), 0);
            (ring != libc::MAP_FAILED).then(|| Self { ring: ring.cast(), _file: file })
        }
    }

    /// Calls `see` with the address behind each instruction that has stored there since the last call. Of very many some are missing.
    pub fn each(&self, see: &mut dyn FnMut(usize)) {
        // SAFETY: the first page of the ring, and the one behind it. The kernel writes up to the head.
        unsafe {
            let (head, tail) = (self.ring.add(HEAD).cast(), self.ring.add(TAIL).cast());
            let (head, tail) = (AtomicU64::from_ptr(head), AtomicU64::from_ptr(tail));
            let (end, mut at) = (head.load(Acquire), tail.load(Relaxed));
            let word = |at: u64| {
                let place = self.ring.add(PAGE_BYTES + at as usize % PAGE_BYTES);
                // Records are whole words.
                place.cast::<u64>().read_volatile()
            };
            while at < end {
                let header = word(at);
                if header as u32 == RECORD_SAMPLE {
                    see(word(at + 8) as usize);
                }
                at += (header >> 48).max(8);
            }
            tail.store(end, Release);
        }
    }
}

// SAFETY: the ring belongs to the value.
unsafe impl Send for Watchpoint {}

impl Drop for Watchpoint {
    fn drop(&mut self) {
        // SAFETY: this value's own mapping.
        unsafe { libc::munmap(self.ring.cast(), 2 * PAGE_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::hint::black_box;
    use std::vec::Vec;

    #[test]
    fn the_instruction_that_stores_is_named() {
        #[inline(never)]
        fn store(at: *mut u64) {
            // SAFETY: the test's own.
            unsafe { at.write_volatile(7) };
        }
        let mut places = [0u64; 8];
        let at = places.as_mut_ptr();
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        let Some(watchpoint) = Watchpoint::new(thread, at.wrapping_add(3) as usize) else { return };
        let named = || {
            let mut all = Vec::new();
            watchpoint.each(&mut |at| all.push(at));
            all
        };
        store(black_box(at.wrapping_add(2)));
        assert!(named().is_empty());
        (0..2).for_each(|_| store(black_box(at.wrapping_add(3))));
        let (all, function) = (named(), store as *const () as usize);
        assert!(all.len() == 2 && all.iter().all(|at| (function..function + 256).contains(at)));
        assert!(named().is_empty());
    }
}
