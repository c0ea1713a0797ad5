//! A cheap monotonic clock.

use core::mem::transmute;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::call::call;
use crate::modules::Module;

/// Two looks at the processor's counter of ticks are this far apart at least where a debugger executes the thread an instruction at a time: each instruction takes
/// two switches of processes, which are microseconds. Else they are some tens of ticks apart, unless the thread has just lost its processor.
#[cfg(target_arch = "x86_64")]
const STEPPED_TICKS: u64 = 10_000;

/// Whether a debugger executes the thread an instruction at a time, or records what it executes. The vDSO reads a clock in a loop that ends when the kernel has not
/// advanced the clock meanwhile: where that loop takes longer than a tick of the kernel it never ends. And a recording debugger does not know its instructions.
/// Sometimes true without reason.
#[cfg(target_arch = "x86_64")]
#[inline]
fn is_stepped() -> bool {
    if IS_COUNTER_FORBIDDEN.load(Relaxed) {
        return false;
    }
    // SAFETY: reads a counter, which the program has not forbidden.
    let (first, second) = unsafe { (core::arch::x86_64::_rdtsc(), core::arch::x86_64::_rdtsc()) };
    second.wrapping_sub(first) >= STEPPED_TICKS
}

#[cfg(not(target_arch = "x86_64"))]
fn is_stepped() -> bool {
    false
}

/// Whether a thread of the program has forbidden the counter of ticks to itself: to read it is a SIGSEGV there.
static IS_COUNTER_FORBIDDEN: AtomicBool = AtomicBool::new(false);

/// The counter of ticks is not read any more; or it is again.
pub fn forbid_counter(forbids: bool) {
    IS_COUNTER_FORBIDDEN.store(forbids, Relaxed);
}

/// Milliseconds since an arbitrary start; as coarse as the kernel's tick (1 to
/// 10 ms), read through the vDSO without a system call.
///
/// The clock stands still for a thread that a debugger executes an instruction at a time. What is due now and then is due all the time where each instruction takes
/// tens of microseconds: the thread would do nothing else.
pub fn coarse_ms() -> u64 {
    if is_stepped() {
        return LAST_MS.load(Relaxed);
    }
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid, writable timespec, and stays zero on failure.
    let _ = unsafe { through_vdso(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
    let ms = now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000;
    // Threads read the word much more often than it changes.
    if LAST_MS.load(Relaxed) != ms {
        LAST_MS.store(ms, Relaxed);
    }
    ms
}

/// The tick of the machine, counted since it has started, in which a time of [`coarse_ms`] lies, or the tick before: `/proc` says in ticks when a thread has begun.
pub fn tick_of(ms: u64) -> u64 {
    let boot = read(libc::CLOCK_BOOTTIME);
    // SAFETY: a number goes in, and one comes out.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    let boot_ms = boot.tv_sec as u64 * 1000 + boot.tv_nsec as u64 / 1_000_000;
    let at = boot_ms.saturating_sub(coarse_ms().saturating_sub(ms));
    (at * per_second / 1000).saturating_sub(1)
}

/// What [`coarse_ms`] has returned last.
static LAST_MS: AtomicU64 = AtomicU64::new(0);

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
    let of = |who: libc::c_int| {
        // SAFETY: all zero is a valid value, and stays on failure.
        let mut usage: libc::rusage = unsafe { core::mem::zeroed() };
        // SAFETY: it is writable.
        let _ = unsafe {
            call(libc::SYS_getrusage, [who as usize, (&raw mut usage).expose_provenance()])
        };
        usage.ru_nivcsw as u64
    };
    of(libc::RUSAGE_SELF).saturating_sub(of(libc::RUSAGE_THREAD))
}

fn taken(clock: libc::clockid_t) -> u64 {
    let now = read(clock);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
}

/// A clock; zero where there is none.
fn read(clock: libc::clockid_t) -> libc::timespec {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid, writable timespec, and stays zero on failure.
    unsafe { gettime(clock, &raw mut now) };
    now
}

/// As `clock_gettime`, through the vDSO itself: that function may be another library's (`faketime`), which allocates, or reads variables that the
/// thread does not have. Not through the vDSO where that may never end, or may not read the counter of ticks. `errno` stays as it is.
///
/// # Safety
/// As there.
pub unsafe fn gettime(clock: libc::clockid_t, now: *mut libc::timespec) -> i32 {
    if !is_stepped() && !IS_COUNTER_FORBIDDEN.load(Relaxed) {
        // SAFETY: passed on from the caller.
        return unsafe { through_vdso(clock, now) };
    }
    // SAFETY: passed on from the caller.
    unsafe { by_call(clock, now) }
}

/// The vDSO's function; 0: not looked up yet; [`NONE`]: there is none.
static VDSO: AtomicUsize = AtomicUsize::new(0);
const NONE: usize = 1;

/// # Safety
/// As for `clock_gettime`.
#[inline]
unsafe fn through_vdso(clock: libc::clockid_t, now: *mut libc::timespec) -> i32 {
    type Gettime = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> i32;
    let mut function = VDSO.load(Relaxed);
    if function == 0 {
        function = look_up();
    }
    if function == NONE {
        // SAFETY: passed on from the caller.
        return unsafe { by_call(clock, now) };
    }
    // SAFETY: `look_up` has found it under the name of such a function; the rest is passed on.
    let outcome = unsafe { transmute::<usize, Gettime>(function)(clock, now) };
    if outcome == 0 { 0 } else { -1 }
}

#[cold]
fn look_up() -> usize {
    let kernel = Module::of_the_kernel();
    let function = kernel.and_then(|kernel| kernel.function(c"__vdso_clock_gettime"));
    let function = function.map_or(NONE, |function| function.as_ptr().expose_provenance());
    VDSO.store(function, Relaxed);
    function
}

/// # Safety
/// As for `clock_gettime`.
unsafe fn by_call(clock: libc::clockid_t, now: *mut libc::timespec) -> i32 {
    let arguments = [clock as usize, now.expose_provenance()];
    // SAFETY: passed on from the caller.
    if unsafe { call(libc::SYS_clock_gettime, arguments) }.is_ok() { 0 } else { -1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_tell_the_same_time() {
        assert_ne!(look_up(), NONE, "a kernel without a vDSO");
        for clock in [libc::CLOCK_MONOTONIC, libc::CLOCK_REALTIME, libc::CLOCK_BOOTTIME] {
            let mut times = [libc::timespec { tv_sec: 0, tv_nsec: 0 }; 3];
            let [first, second, third] = times.each_mut();
            // SAFETY: each place is a valid one.
            let outcomes = unsafe {
                [by_call(clock, first), through_vdso(clock, second), by_call(clock, third)]
            };
            assert_eq!(outcomes, [0; 3]);
            let times = times.map(|time| (time.tv_sec, time.tv_nsec));
            assert!(times.is_sorted(), "{times:?}");
        }
        let mut none = libc::timespec { tv_sec: 7, tv_nsec: 7 };
        // SAFETY: as above; there is no such clock.
        assert_eq!(unsafe { gettime(1_000, &raw mut none) }, -1);
    }
}
