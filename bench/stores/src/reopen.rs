//! What is left after a crash is opened, beside a copy of as many bytes in memory.

use crate::job::Args;
use crate::load::{cpu_time, load_all, look};
use crate::{Opened, Report, Store};
use std::ptr;
use std::time::{Duration, Instant};

/// Bytes of a huge page.
const HUGE: usize = 2 << 20;

/// Loads a store and ends the process as a crash does, without a word to the store.
pub fn crash(args: &Args, store: Box<dyn Store>) -> Result<Report, String> {
    load_all(args, &*store)?;
    // SAFETY: no preconditions; nothing that is buffered is written, and no destructor runs.
    unsafe { libc::_exit(0) }
}

/// Opens a store that was left, looks at a part of it, and says how long the opening took, and how long a copy takes. With one thread the process has one processor.
pub fn reopen(args: &Args, open: &dyn Fn() -> Opened) -> Result<Report, String> {
    if args.threads == 1 {
        keep_one_processor()?;
    }
    let begun = Instant::now();
    let cpu = cpu_time();
    let store = open()?;
    let (wall, cpu) = (begun.elapsed(), cpu_time().saturating_sub(cpu));
    look(args, &*store, u64::from(args.keys))?;
    let mut report = Report::new();
    report.insert("bytes".into(), args.bytes().into());
    report.insert("wall_ns".into(), (wall.as_nanos() as u64).into());
    report.insert("cpu_ns".into(), (cpu.as_nanos() as u64).into());
    store.record(&mut report);
    store.close()?;
    let bytes = usize::try_from(args.bytes()).map_err(|why| why.to_string())?;
    let copied = copy(bytes.next_multiple_of(HUGE), args.threads)?;
    report.insert("copy_ns".into(), (copied.as_nanos() as u64).into());
    Ok(report)
}

/// Has the process run on one of its processors.
fn keep_one_processor() -> Result<(), String> {
    // SAFETY: a set of processors is numbers, and the calls have room for one.
    let done = unsafe {
        let (mut all, mut one) = (std::mem::zeroed::<libc::cpu_set_t>(), std::mem::zeroed());
        let size = size_of::<libc::cpu_set_t>();
        libc::sched_getaffinity(0, size, &raw mut all) == 0 && {
            let first = (0..8 * size).find(|number| libc::CPU_ISSET(*number, &all));
            libc::CPU_SET(first.unwrap_or(0), &mut one);
            libc::sched_setaffinity(0, size, &raw const one) == 0
        }
    };
    if done { Ok(()) } else { Err(format!("a processor: {}", std::io::Error::last_os_error())) }
}

/// Memory of zeroes, in huge pages where the system has them.
struct Fresh(*mut u8, usize);

impl Fresh {
    fn new(bytes: usize) -> Result<Self, String> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: at an address that the kernel chooses.
        let at = unsafe { libc::mmap(ptr::null_mut(), bytes, access, how, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(format!("{bytes} bytes: {}", std::io::Error::last_os_error()));
        }
        // SAFETY: the mapping is this value's. A refusal costs time only.
        unsafe { libc::madvise(at, bytes, libc::MADV_HUGEPAGE) };
        Ok(Self(at.cast(), bytes))
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's.
        unsafe { libc::munmap(self.0.cast(), self.1) };
    }
}

/// How long it takes to copy that many bytes to fresh memory, in as many threads.
fn copy(bytes: usize, threads: usize) -> Result<Duration, String> {
    let (from, to) = (Fresh::new(bytes)?, Fresh::new(bytes)?);
    // SAFETY: the mapping has the bytes.
    unsafe { from.0.write_bytes(1, bytes) };
    let part = bytes.div_ceil(threads.max(1));
    let (source, target) = (from.0 as usize, to.0 as usize);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for begin in (0..bytes).step_by(part) {
            let len = part.min(bytes - begin);
            // SAFETY: both mappings have the bytes, and each thread has its own.
            scope.spawn(move || unsafe {
                let source = ptr::with_exposed_provenance::<u8>(source + begin);
                ptr::with_exposed_provenance_mut::<u8>(target + begin)
                    .copy_from_nonoverlapping(source, len);
            });
        }
    });
    Ok(begun.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_takes_time() {
        for threads in [1, 3] {
            assert!(copy(3 * HUGE, threads).unwrap() > Duration::ZERO);
        }
    }
}
