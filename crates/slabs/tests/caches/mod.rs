//! Caches of processors for a test.

use spandrel_os::rseq;
use spandrel_slabs as slabs;

/// Starts the heap with caches of processors; false: there are none here.
pub fn start() -> bool {
    rseq::start();
    assert!(slabs::start());
    slabs::start_cpu_caches();
    let has_them = rseq::area().is_some();
    if !has_them {
        eprintln!("skipped: needs glibc 2.35 and Linux 5.10");
    }
    has_them
}
