//! Several threads mark: what one has too much of, others take.

use core::ffi::c_void;

use spandrel_sync::{Pool, thread};

use crate::mark::Item;

/// Items that are handed over at once.
pub const SHARED: usize = 64;

/// The items that wait for a thread that has none.
pub type Items = Pool<Item, SHARED>;

/// Threads that mark at most.
pub const MOST: usize = 16;

/// Runs `work` on `threads` threads, at most [`MOST`], the calling one among them. Calls `is_missing` for each thread that the kernel
/// refuses.
pub fn run(threads: usize, work: &(dyn Fn() + Sync), is_missing: impl Fn()) {
    struct Start<'a>(&'a (dyn Fn() + Sync));
    extern "C" fn begin(start: *mut c_void) -> *mut c_void {
        // SAFETY: it lives until the thread has been joined.
        let Start(work) = unsafe { &*start.cast::<Start<'_>>() };
        work();
        core::ptr::null_mut()
    }
    let start = Start(work);
    let mut handles = [const { None }; MOST];
    for handle in handles.iter_mut().take(threads.min(MOST) - 1) {
        // SAFETY: what it is given lives until it is joined below.
        match unsafe { thread::start(begin, core::ptr::from_ref(&start).cast_mut().cast(), 0) } {
            Ok(thread) => *handle = Some(thread),
            Err(_) => is_missing(),
        }
    }
    work();
    for thread in handles.into_iter().flatten() {
        // SAFETY: made above, and not joined yet.
        unsafe { thread::join(thread) };
    }
}

/// How many threads are worth it: one for each processor that the process may use.
pub fn processors() -> usize {
    spandrel_os::processors::usable()
}
