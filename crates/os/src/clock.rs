//! A cheap monotonic clock.

/// Milliseconds since an arbitrary start; as coarse as the kernel's tick (1 to
/// 10 ms), read through the vDSO without a system call.
pub fn coarse_ms() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid, writable timespec.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut now) } != 0;
    if failed { 0 } else { now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000 }
}
