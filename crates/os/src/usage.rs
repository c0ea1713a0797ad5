//! What the process has used, as the kernel has counted it.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use spandrel_pages::PAGE_BYTES;

use crate::call::call;

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
    let told = unsafe {
        call(
            libc::SYS_getrusage,
            [libc::RUSAGE_SELF as usize, (&raw mut usage).expose_provenance()],
        )
    };
    if told.is_err() {
        return Usage::default();
    }
    let micros = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    Usage {
        cpu_us: micros(usage.ru_utime) + micros(usage.ru_stime),
        peak_bytes: usage.ru_maxrss as u64 * 1024,
        faults: (usage.ru_minflt + usage.ru_majflt) as u64,
    }
}

/// Whether the calling thread is the only one of the process, so that only this thread can make another. False where the kernel gives no
/// answer.
pub fn is_one_thread() -> bool {
    // A directory has a link from itself, one from its parent, and one from each directory in it: here one for each thread.
    let status = crate::image::retry(|| rustix::fs::stat(c"/proc/self/task"));
    status.is_ok_and(|status| status.st_nlink == 3)
}

/// The model of the processors, as `/proc/cpuinfo` has it; empty: it does not say.
pub fn processor_model(buffer: &mut [u8; 1024]) -> &str {
    let text = crate::env::read_beginning(c"/proc/cpuinfo", buffer);
    // What was cut off within a letter is beyond the first lines.
    let valid = text.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    let line = valid.lines().find_map(|line| line.strip_prefix("model name"));
    line.and_then(|line| line.split_once(':')).map_or("", |(_, model)| model.trim())
}

/// Resident bytes of the process as it is: some microseconds. 0: not known.
pub fn resident_bytes() -> usize {
    pages_told(1) * PAGE_BYTES
}

/// Bytes of address space that the process has mapped, as [`resident_bytes`].
pub fn mapped_bytes() -> usize {
    pages_told(0) * PAGE_BYTES
}

/// A number of `/proc/self/statm`; 0: not known.
fn pages_told(place: usize) -> usize {
    let mut buffer = [0; 128];
    let Ok(text) = crate::env::read_file(c"/proc/self/statm", &mut buffer) else { return 0 };
    let text = core::str::from_utf8(text).unwrap_or_default();
    text.split(' ').nth(place).and_then(|pages| pages.parse().ok()).unwrap_or(0)
}

/// Nanoseconds that the first touch of a fresh page takes: as measured on a few, once.
pub fn fault_nanos() -> u64 {
    static NANOS: AtomicU64 = AtomicU64::new(0);
    const PAGES: usize = 16;
    const USUAL_NANOS: u64 = 1000;
    let known = NANOS.load(Relaxed);
    if known > 0 {
        return known;
    }
    let len = PAGES * spandrel_pages::PAGE_BYTES;
    let measured = crate::vm::map_wiped_on_fork(len).map_or(USUAL_NANOS, |at| {
        let before = crate::clock::nanos();
        for page in 0..PAGES {
            // SAFETY: the mapping is fresh, has `PAGES` pages, and no other thread has its address.
            unsafe { at.as_ptr().add(page * spandrel_pages::PAGE_BYTES).write_volatile(1) };
        }
        let nanos = crate::clock::nanos().saturating_sub(before) / PAGES as u64;
        // SAFETY: as above; it is not used any more.
        unsafe { libc::munmap(at.as_ptr().cast(), len) };
        nanos
    });
    // Bounds: a thread that was preempted meanwhile has measured the wait, not the faults.
    let nanos = measured.clamp(USUAL_NANOS / 4, USUAL_NANOS * 10);
    NANOS.store(nanos, Relaxed);
    nanos
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
        let resident = resident_bytes() as u64;
        assert!(resident > 1 << 16 && resident <= of_process().peak_bytes, "{resident}");
        assert!((250..=10_000).contains(&fault_nanos()));
        assert_eq!(fault_nanos(), fault_nanos());
        assert!(!host(&mut [0; 256]).is_empty());
    }
}
