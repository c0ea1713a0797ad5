//! How many processors a thread may run on.

use crate::call::call;

/// Processors that the mask has room for; the kernel supports 8192 at most.
const MOST: usize = 8192;

/// The processors that the calling thread, and threads that it makes, may run on: at least one. The set of all processors that are
/// online is larger in a container, or under `taskset`.
pub fn usable() -> usize {
    let mut mask = [0_u64; MOST / 64];
    let arguments = [0, size_of_val(&mask), mask.as_mut_ptr().expose_provenance()];
    // SAFETY: the kernel writes no more than the mask has.
    let written = unsafe { call(libc::SYS_sched_getaffinity, arguments) };
    let usable = match written {
        Ok(_) => mask.iter().map(|word| word.count_ones() as usize).sum(),
        Err(_) => {
            let errno = crate::env::errno();
            // SAFETY: no pointers are passed.
            let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
            crate::env::set_errno(errno);
            usize::try_from(online).unwrap_or(1)
        }
    };
    usable.max(1)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::usable;

    #[test]
    fn a_thread_that_is_bound_to_one_processor_counts_one() {
        let all = usable();
        assert!(all >= std::thread::available_parallelism().unwrap().get(), "quotas make it fewer");
        let bound = std::thread::spawn(|| {
            // SAFETY: an all-zero set is a valid value.
            let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
            // SAFETY: the set is as large as is said.
            let read = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) };
            assert_eq!(read, 0);
            // SAFETY: each number lies in the set.
            let first = (0..libc::CPU_SETSIZE as usize)
                .find(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) })
                .expect("a processor");
            // SAFETY: as above.
            let done = unsafe {
                libc::CPU_ZERO(&mut set);
                libc::CPU_SET(first, &mut set);
                libc::sched_setaffinity(0, size_of_val(&set), &set)
            };
            assert_eq!(done, 0);
            usable()
        });
        assert_eq!(bound.join().unwrap(), 1);
    }
}
