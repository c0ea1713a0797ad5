//! A cheap monotonic clock.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Read the clock by system calls.
static BY_CALLS: AtomicBool = AtomicBool::new(false);

/// From now on the clock is read by system calls: a debugger that records what a program executes
/// does not know the instruction by which the vDSO reads it.
pub fn avoid_vdso() {
    BY_CALLS.store(true, Relaxed);
}

/// Milliseconds since an arbitrary start; as coarse as the kernel's tick (1 to
/// 10 ms), read through the vDSO without a system call.
pub fn coarse_ms() -> u64 {
    let now = read(libc::CLOCK_MONOTONIC_COARSE);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// Microseconds since an arbitrary start, exactly: for what takes some.
pub fn micros() -> u64 {
    let now = read(libc::CLOCK_MONOTONIC);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
}

/// Nanoseconds since an arbitrary start, exactly.
pub fn nanos() -> u64 {
    let now = read(libc::CLOCK_MONOTONIC);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Nanoseconds since 1970 by the calendar.
pub fn calendar_nanos() -> u64 {
    let now = read(libc::CLOCK_REALTIME);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Microseconds of processor time that the calling thread has taken: a system call. Zero
/// where it is refused.
pub fn thread_micros() -> u64 {
    taken(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// The same of all threads of the process.
pub fn process_micros() -> u64 {
    taken(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Times that threads of the process other than the calling one had to leave a processor to others:
/// two system calls.
pub fn others_preempted() -> u64 {
    let errno = crate::env::errno();
    let of = |who| {
        // SAFETY: all zero is a valid value, and stays on failure.
        let mut usage: libc::rusage = unsafe { core::mem::zeroed() };
        // SAFETY: it is writable.
        unsafe { libc::getrusage(who, &mut usage) };
        usage.ru_nivcsw as u64
    };
    let others = of(libc::RUSAGE_SELF).saturating_sub(of(libc::RUSAGE_THREAD));
    crate::env::set_errno(errno);
    others
}

fn taken(clock: libc::clockid_t) -> u64 {
    let errno = crate::env::errno();
    let now = read(clock);
    crate::env::set_errno(errno);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
}

/// A clock; zero where there is none.
fn read(clock: libc::clockid_t) -> libc::timespec {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    if BY_CALLS.load(Relaxed) {
        let errno = crate::env::errno();
        // SAFETY: `now` is a valid, writable timespec, and stays zero on failure.
        unsafe { libc::syscall(libc::SYS_clock_gettime, clock, &raw mut now) };
        crate::env::set_errno(errno);
        return now;
    }
    // SAFETY: as above.
    unsafe { libc::clock_gettime(clock, &mut now) };
    now
}
