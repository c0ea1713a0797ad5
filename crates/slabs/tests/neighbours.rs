//! Passive false sharing: threads that were handed objects of one cache line, and give them back, do not go
//! on with them side by side. The heap is the process's: this test is alone in its file.

use std::collections::HashSet;
use std::sync::Barrier;

use spandrel_os::rseq;
use spandrel_slabs as slabs;

const LINE_BYTES: usize = 64;

/// Two processors that this process may use, whose caches have different homes.
fn processors() -> Option<[usize; 2]> {
    // SAFETY: the set is plain data, and the calls read and write it alone.
    unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &mut set);
        let mut all = (0..libc::CPU_SETSIZE as usize).filter(|cpu| libc::CPU_ISSET(*cpu, &set));
        let first = all.next()?;
        Some([first, all.find(|other| other % 8 != first % 8)?])
    }
}

fn stay_on(processor: usize) {
    // SAFETY: as above; only the calling thread is moved.
    unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}

/// Objects side by side, each second one given back and another taken for it by either of two threads; the
/// lines of what each has then.
fn lines(size: usize, processors: [usize; 2]) -> [HashSet<usize>; 2] {
    let objects: Vec<usize> = (0..64).map(|_| slabs::alloc(size) as usize).collect();
    let turns = Barrier::new(2);
    let lines = std::thread::scope(|scope| {
        let threads = [0, 1].map(|which| {
            let (objects, turns) = (&objects, &turns);
            scope.spawn(move || {
                stay_on(processors[which]);
                turns.wait();
                let own = objects.iter().skip(which).step_by(2);
                let again = own.map(|object| {
                    // SAFETY: a live object, of which this thread alone knows.
                    unsafe { slabs::free(*object as *mut u8) };
                    slabs::alloc(size) as usize
                });
                again.collect::<Vec<_>>()
            })
        });
        threads.map(|thread| thread.join().expect("no thread panics"))
    });
    lines.map(|objects| {
        let lines = objects.iter().map(|object| object / LINE_BYTES).collect();
        // SAFETY: live objects, freed once.
        objects.into_iter().for_each(|object| unsafe { slabs::free(object as *mut u8) });
        lines
    })
}

#[test]
fn handed_neighbours_are_not_used_again() {
    let Some(processors) = processors() else { return };
    assert!(slabs::start());
    // At first with caches of threads.
    for with_caches_of_processors in [false, true] {
        if with_caches_of_processors {
            rseq::start();
            slabs::start_cpu_caches();
        }
        for size in [1, 16, 24, 32, 40, 48] {
            let [first, second] = lines(size, processors);
            let shared = first.intersection(&second).count();
            assert_eq!(shared, 0, "{size} B, {with_caches_of_processors}");
        }
    }
}
