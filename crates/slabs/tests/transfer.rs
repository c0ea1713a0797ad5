//! Objects that go from thread to thread in bulk come back to their spans in the
//! end. The heap is the process's: this test is alone in its file.

use spandrel_slabs as slabs;

fn free_all(objects: Vec<usize>) {
    for at in objects {
        // SAFETY: a live object of nobody else's, freed once.
        unsafe { slabs::free(at as *mut u8) };
    }
}

fn make(size: usize, count: usize) -> Vec<usize> {
    let make_one = |index: usize| {
        let at = slabs::alloc(size);
        assert!(!at.is_null());
        // SAFETY: a live object of that size.
        unsafe { at.cast::<usize>().write(index) };
        at as usize
    };
    (0..count).map(make_one).collect()
}

#[test]
fn nothing_is_left_behind() {
    assert!(slabs::start());
    for round in 0..20 {
        for (size, count) in [(16, 20_000), (100, 10_000), (1500, 3_000), (20_000, 200)] {
            let objects = make(size, count);
            let mut sorted = objects.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), count, "an object was handed out twice");
            for (index, at) in objects.iter().enumerate() {
                // SAFETY: a live object that holds a number.
                assert_eq!(unsafe { (*at as *const usize).read() }, index);
            }
            // In the order of allocation, of addresses, backwards; here or elsewhere.
            let order = match round % 3 {
                0 => objects,
                1 => sorted,
                _ => objects.into_iter().rev().collect(),
            };
            if round % 2 == 0 {
                free_all(order);
            } else {
                std::thread::spawn(|| free_all(order)).join().unwrap();
            }
        }
    }
    slabs::trim();
    let stats = slabs::stats().unwrap();
    assert_eq!((stats.spans, stats.live.0), (0, 0));
    assert_eq!(stats.resident().0, 0);
}
