//! Caches of processors: what one thread has cached another gives back, and what
//! nobody has touched for a while goes by itself. The heap is the process's: this
//! test is alone in its file.

use std::sync::Barrier;

use spandrel_os::rseq;
use spandrel_slabs as slabs;

fn churn() {
    for round in 0..20 {
        for size in [16, 64, 500, 4000, 30_000] {
            let objects: Vec<usize> = (0..300).map(|_| slabs::alloc(size) as usize).collect();
            for at in &objects {
                // SAFETY: a live object of at least 16 bytes.
                unsafe { (*at as *mut usize).write(at ^ round) };
            }
            for at in objects {
                // SAFETY: as above, freed once.
                unsafe {
                    assert_eq!((at as *const usize).read(), at ^ round);
                    slabs::free(at as *mut u8);
                }
            }
        }
    }
}

#[test]
fn others_caches_are_emptied() {
    assert!(slabs::start());
    rseq::start();
    slabs::start_cpu_caches();
    let (churned, trimmed) = (Barrier::new(5), Barrier::new(5));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                churn();
                churned.wait();
                trimmed.wait();
                churn();
            });
        }
        churned.wait();
        slabs::trim();
        let stats = slabs::stats().unwrap();
        // Without restartable sequences each thread has a cache that it alone may touch.
        if rseq::area().is_some() {
            assert_eq!((stats.spans, stats.resident().0), (0, 0));
        }
        trimmed.wait();
    });
    slabs::trim();
    let stats = slabs::stats().unwrap();
    assert_eq!((stats.spans, stats.resident().0), (0, 0));
}
