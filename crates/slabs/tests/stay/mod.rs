//! A processor for a test.

/// Has the calling thread stay on the processor that it is on: what another one's cache keeps takes a span more.
pub fn stay() {
    // SAFETY: a set of processors with one in it, and its size.
    unsafe {
        let mut here: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut here);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&here), &here), 0);
    }
}
