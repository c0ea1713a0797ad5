//! What the process has used, as the kernel has counted it.

/// Of all threads, those that have ended among them; of no other process.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Usage {
    /// Microseconds of processor time.
    pub cpu_us: u64,
    /// The most that was ever resident, in bytes.
    pub peak_bytes: u64,
    /// Page faults, with and without reading from a device.
    pub faults: u64,
}

/// What the process has used so far: a system call. Zeroes where it is refused.
pub fn of_process() -> Usage {
    // SAFETY: an all-zero `rusage` is a valid value.
    let mut usage: libc::rusage = unsafe { core::mem::zeroed() };
    // SAFETY: `usage` is a valid place for the answer.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) } != 0 {
        return Usage::default();
    }
    let micros = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    Usage {
        cpu_us: micros(usage.ru_utime) + micros(usage.ru_stime),
        peak_bytes: usage.ru_maxrss as u64 * 1024,
        faults: (usage.ru_minflt + usage.ru_majflt) as u64,
    }
}

/// The name of the host, in `buffer`; empty where it is longer.
pub fn host(buffer: &mut [u8; 256]) -> &[u8] {
    // SAFETY: the pointer and length describe the buffer.
    if unsafe { libc::gethostname(buffer.as_mut_ptr().cast(), buffer.len()) } != 0 {
        return &[];
    }
    let len = buffer.iter().position(|byte| *byte == 0).unwrap_or(0);
    buffer.get(..len).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_used_something_and_its_host_has_a_name() {
        let used = of_process();
        assert!(used.peak_bytes > 1 << 16 && used.faults > 10, "{used:?}");
        assert!(!host(&mut [0; 256]).is_empty());
    }
}
