//! Which signals a thread takes.

/// Signals of the calling thread are blocked until this is dropped. Threads that it starts meanwhile have them blocked for good: signals are the program's.
pub struct Blocked(libc::sigset_t);

impl Blocked {
    /// All that can be.
    pub fn all() -> Self {
        // SAFETY: both sets are local variables, and all zeroes is a valid set.
        unsafe {
            let (mut all, mut before) = (core::mem::zeroed(), core::mem::zeroed());
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            Self(before)
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set is the valid mask that was in force before.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, core::ptr::null_mut())
        };
    }
}
