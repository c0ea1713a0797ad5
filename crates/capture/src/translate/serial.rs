//! Code that another processor has written is run after an instruction that serializes (Intel's manual, volume 3, 9.1.3): a thread that has seen less changes than there were
//! begins with one.

use core::arch::x86_64::__cpuid;
use core::hint::black_box;

/// Threads that are remembered.
const THREADS: usize = 32;

/// How many changes each thread has seen.
#[derive(Clone, Copy, Debug)]
pub struct Seen([(usize, u64); THREADS]);

impl Default for Seen {
    fn default() -> Self {
        Self([(0, 0); THREADS])
    }
}

fn me() -> usize {
    // SAFETY: no preconditions.
    unsafe { libc::pthread_self() as usize }
}

impl Seen {
    fn place(&mut self) -> (usize, &mut (usize, u64)) {
        let me = me();
        let [first, rest @ ..] = &mut self.0;
        // Thread descriptors are pages apart.
        (me, rest.get_mut((me >> 12) % THREADS).unwrap_or(first))
    }

    /// Has the calling thread see that number of changes.
    pub fn see(&mut self, changes: u64) {
        let (me, place) = self.place();
        if *place != (me, changes) {
            *place = (me, changes);
            #[allow(unused_unsafe, reason = "unsafe before Rust 1.94")]
            // SAFETY: each processor of 64 bits has it.
            black_box(unsafe { __cpuid(0) });
        }
    }

    /// The calling thread has made all changes up to that number since it has seen the others.
    pub fn note(&mut self, changes: u64) {
        let (me, place) = self.place();
        *place = (me, changes);
    }
}
