//! Unmapping of mappings that no thread uses any more. The kernel removes one page at a time from the page table, 20 ms for a gibibyte.
//! For a large mapping a thread of its own calls the kernel, so that the closing thread need not wait. It does so piece by piece: during
//! a call no other thread of the process can map anything.

use core::ffi::c_void;
use core::sync::atomic::{AtomicI32, AtomicUsize, Ordering::*};

use spandrel_os::{env, vm};
use spandrel_sync::{linger, thread};

/// Of fewer bytes it takes longer to make a thread.
const LARGE_BYTES: usize = 32 << 20;
/// Half a millisecond's work.
const PIECE_BYTES: usize = 16 << 20;
/// It calls the kernel, and nothing else.
const STACK_BYTES: usize = 64 << 10;

/// What a thread unmaps.
struct Job {
    /// The process whose thread does it; 0: there is no job. A child of a fork has none of its parent's threads, and takes their jobs' places.
    owner: AtomicI32,
    at: AtomicUsize,
    reserved: AtomicUsize,
    mapped: AtomicUsize,
}

impl Job {
    const fn new() -> Self {
        Self {
            owner: AtomicI32::new(0),
            at: AtomicUsize::new(0),
            reserved: AtomicUsize::new(0),
            mapped: AtomicUsize::new(0),
        }
    }

    /// Takes the job's place for the process. False: a job of the process has it.
    fn claim(&self, process: i32) -> bool {
        let owner = self.owner.load(Relaxed);
        owner != process && self.owner.compare_exchange(owner, process, AcqRel, Relaxed).is_ok()
    }
}

/// Without a free one the releasing thread calls the kernel itself.
static JOBS: [Job; 16] = [const { Job::new() }; 16];

/// Unmaps a reservation, of which the first `mapped` bytes were in use. Its address space may be free somewhat later: see [`wait`].
///
/// # Safety
/// The reservation belongs to the caller, and no thread uses it any more.
pub unsafe fn release(at: *mut u8, reserved: usize, mapped: usize) {
    if mapped < LARGE_BYTES || !beside(at, reserved, mapped) {
        // SAFETY: promised by the caller.
        unsafe { vm::release(at, reserved) };
    }
}

/// Waits until the address space of all that was released is free. False: there was nothing to wait for.
pub fn wait() -> bool {
    let process = env::pid();
    let is_busy = || JOBS.iter().any(|job| job.owner.load(Acquire) == process);
    if !is_busy() {
        return false;
    }
    let mut looks = 0;
    while is_busy() {
        linger(looks);
        looks += 1;
    }
    true
}

/// Starts a thread that unmaps the range. False: there is none.
fn beside(at: *mut u8, reserved: usize, mapped: usize) -> bool {
    let process = env::pid();
    let Some(job) = JOBS.iter().find(|job| job.claim(process)) else { return false };
    job.at.store(at as usize, Relaxed);
    job.reserved.store(reserved, Relaxed);
    job.mapped.store(mapped, Relaxed);
    let argument = core::ptr::from_ref(job).cast_mut().cast();
    // SAFETY: a job, which is static.
    match unsafe { thread::start(run, argument, STACK_BYTES) } {
        Ok(thread) => {
            // SAFETY: just made.
            unsafe { thread::detach(thread) };
            true
        }
        Err(_) => {
            job.owner.store(0, Release);
            false
        }
    }
}

extern "C" fn run(job: *mut c_void) -> *mut c_void {
    // SAFETY: one of the jobs.
    let job = unsafe { &*job.cast::<Job>() };
    let (at, reserved) = (job.at.load(Relaxed) as *mut u8, job.reserved.load(Relaxed));
    let mapped = job.mapped.load(Relaxed);
    for from in (0..mapped).step_by(PIECE_BYTES) {
        // SAFETY: the caller of `release` has promised that no thread uses the range; what is in a file stays there.
        unsafe { vm::discard(at.wrapping_add(from), PIECE_BYTES.min(mapped - from)) };
    }
    // SAFETY: as above.
    unsafe { vm::release(at, reserved) };
    job.owner.store(0, Release);
    core::ptr::null_mut()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::room;

    #[test]
    fn address_space_that_is_taken_away_beside_the_program_can_be_had_again() {
        for mapped in [4096, LARGE_BYTES] {
            let (first, bytes) = room::reserve(LARGE_BYTES, None).unwrap();
            let base = first.as_ptr() as usize;
            // SAFETY: just reserved.
            unsafe {
                assert!(vm::open(first.as_ptr(), bytes));
                first.as_ptr().write_bytes(1, bytes);
                release(first.as_ptr(), bytes, mapped);
            }
            // Another test may have been given the place meanwhile, and then it is not there again: try elsewhere.
            if let Ok((again, bytes)) = room::reserve(LARGE_BYTES, Some(base)) {
                assert_eq!(again, first);
                // SAFETY: just reserved.
                unsafe { release(again.as_ptr(), bytes, 0) };
            }
        }
        wait();
        assert!(!wait());
    }
}
