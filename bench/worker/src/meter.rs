//! What a stretch of code cost this process, and how much memory it holds.
//! Nothing here allocates: files of `/proc` are read into the stack.

use serde_json::{Map, Value};

/// Costs between [`Meter::start`] and [`Meter::stop`].
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// CPU time of all threads of the process, user and system.
    pub cpu_ns: u64,
    /// Elapsed time.
    pub wall_ns: u64,
    /// Page faults served without I/O.
    pub minor_faults: u64,
}

impl Cost {
    /// Adds the three figures to a result.
    pub fn record(&self, into: &mut Map<String, Value>) {
        into.insert("cpu_ns".into(), self.cpu_ns.into());
        into.insert("wall_ns".into(), self.wall_ns.into());
        into.insert("minor_faults".into(), self.minor_faults.into());
    }
}

/// A running measurement.
pub struct Meter {
    cpu_ns: u64,
    wall_ns: u64,
    minor_faults: u64,
}

impl Meter {
    /// Starts measuring.
    pub fn start() -> Self {
        Self { minor_faults: minor_faults(), cpu_ns: cpu_ns(), wall_ns: wall_ns() }
    }

    /// What happened since the start.
    pub fn stop(&self) -> Cost {
        let (wall, cpu) = (wall_ns(), cpu_ns());
        Cost {
            cpu_ns: cpu - self.cpu_ns,
            wall_ns: wall - self.wall_ns,
            minor_faults: minor_faults() - self.minor_faults,
        }
    }
}

fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the result, and both clocks used here exist.
    unsafe { libc::clock_gettime(id, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Elapsed time since some fixed moment.
pub fn wall_ns() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// CPU time of the whole process.
pub fn cpu_ns() -> u64 {
    clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// CPU time of this thread.
pub fn thread_ns() -> u64 {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// The time stamp counter; zero where there is none.
#[inline]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: RDTSC has no preconditions in user mode.
        unsafe { std::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        0
    }
}

fn minor_faults() -> u64 {
    // SAFETY: an all-zero `rusage` is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a valid place for the result.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    usage.ru_minflt as u64
}

/// Reads the start of a file into `buffer`, without allocating.
fn read<'b>(path: &std::ffi::CStr, buffer: &'b mut [u8]) -> &'b str {
    // SAFETY: `path` ends in NUL.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if fd < 0 {
        return "";
    }
    let mut filled = 0;
    while filled < buffer.len() {
        let rest = &mut buffer[filled..];
        // SAFETY: `rest` is writable for its whole length.
        let got = unsafe { libc::read(fd, rest.as_mut_ptr().cast(), rest.len()) };
        if got <= 0 {
            break;
        }
        filled += got as usize;
    }
    // SAFETY: `fd` was opened above and is closed once.
    unsafe { libc::close(fd) };
    std::str::from_utf8(&buffer[..filled]).unwrap_or("")
}

/// The value in bytes of a `Name:   123 kB` line.
fn kilobytes(text: &str, name: &str) -> u64 {
    text.lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .find_map(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
        .unwrap_or(0)
        << 10
}

/// Bytes resident now.
pub fn rss() -> u64 {
    let mut buffer = [0; 256];
    let pages = read(c"/proc/self/statm", &mut buffer)
        .split_whitespace()
        .nth(1)
        .and_then(|field| field.parse::<u64>().ok());
    pages.unwrap_or(0) * page_size() as u64
}

/// The most bytes that were ever resident since this program was loaded.
pub fn peak_rss() -> u64 {
    let mut buffer = [0; 4096];
    kilobytes(read(c"/proc/self/status", &mut buffer), "VmHWM")
}

/// Bytes of anonymous memory that lie on huge pages now.
pub fn huge() -> u64 {
    memory().huge
}

/// Resident memory by kind, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// All of it.
    pub resident: u64,
    /// What belongs to no file.
    pub anonymous: u64,
    /// The part of that which lies on huge pages.
    pub huge: u64,
}

impl Memory {
    /// What came on top of `before`.
    pub fn beyond(self, before: Self) -> Self {
        Self {
            resident: self.resident.saturating_sub(before.resident),
            anonymous: self.anonymous.saturating_sub(before.anonymous),
            huge: self.huge.saturating_sub(before.huge),
        }
    }
}

impl Memory {
    /// The part of anonymous memory that lies on huge pages.
    pub fn coverage(self) -> f64 {
        self.huge as f64 / self.anonymous.max(1) as f64
    }
}

/// Memory that is resident now.
pub fn memory() -> Memory {
    let mut buffer = [0; 4096];
    let text = read(c"/proc/self/smaps_rollup", &mut buffer);
    Memory {
        resident: kilobytes(text, "Rss"),
        anonymous: kilobytes(text, "Anonymous"),
        huge: kilobytes(text, "AnonHugePages"),
    }
}

/// Asks for huge pages under memory that has not been touched yet, so that a
/// floor is one: with small pages it would still pay for address translation.
pub fn ask_huge(start: usize, len: usize) {
    let page = page_size();
    let first = start.next_multiple_of(page);
    let end = (start + len) / page * page;
    if first < end {
        let start = std::ptr::with_exposed_provenance_mut(first);
        // SAFETY: advice on whole pages inside memory of ours; it changes no contents.
        unsafe { libc::madvise(start, end - first, libc::MADV_HUGEPAGE) };
    }
}

/// Bytes per page of this machine.
pub fn page_size() -> usize {
    // SAFETY: a query without side effects.
    (unsafe { libc::sysconf(libc::_SC_PAGESIZE) }) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_plausible() {
        let meter = Meter::start();
        let data = std::hint::black_box(vec![1u8; 64 << 20]);
        let cost = meter.stop();
        assert!(cost.cpu_ns > 0 && cost.wall_ns > 0 && cost.minor_faults > 0);
        assert!(rss() >= data.len() as u64);
        assert!(peak_rss() >= data.len() as u64);
    }

    #[test]
    fn smaps_line() {
        let text = "Rss:  12 kB\nAnonHugePages:      2048 kB\n";
        assert_eq!(kilobytes(text, "AnonHugePages"), 2 << 20);
        assert_eq!(kilobytes(text, "Nothing"), 0);
    }
}
