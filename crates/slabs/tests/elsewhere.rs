//! What another allocator takes goes back here, as long as the heap does not want it again. The heap is the process's: this test is alone in
//! its file.

use spandrel_pages::MIB;
use spandrel_slabs as slabs;

/// An object: four of them fill a huge page.
const SIZE: usize = 500_000;

/// Filled objects.
fn make(mebibytes: usize) -> Vec<*mut u8> {
    let make_one = |_| {
        let at = slabs::alloc(SIZE);
        assert!(!at.is_null());
        // SAFETY: an object of this size.
        unsafe { at.write_bytes(1, SIZE) };
        at
    };
    (0..2 * mebibytes).map(make_one).collect()
}

fn free(objects: Vec<*mut u8>) {
    // SAFETY: live objects of this test's, freed once.
    objects.into_iter().for_each(|at| unsafe { slabs::free(at) });
}

/// Mebibytes that the heap has from the kernel.
fn backed() -> usize {
    slabs::stats().unwrap().resident().0 as usize * spandrel_pages::HEAP_PAGE_BYTES / MIB
}

/// Another allocator takes as much, a mebibyte at a time.
fn takes(mebibytes: usize) {
    (0..mebibytes).for_each(|_| slabs::note_elsewhere(MIB));
}

#[test]
fn free_pages_go_back_as_another_allocator_takes_memory() {
    assert!(slabs::start());
    slabs::set_release_rate(0);
    let kept = make(16);
    free(make(200));
    let first = backed();
    assert!(first >= 200, "{first}");
    takes(20);
    let gone = first - backed();
    assert!((36..=48).contains(&gone), "twice as much as is taken: {gone}");
    takes(200);
    let left = backed();
    assert!((16..=40).contains(&left), "half of what is in use, and some: {left}");

    // What is wanted again soon stays for a while.
    free(make(200));
    takes(200);
    assert!(backed() >= 200, "{}", backed());
    // After a while it goes again.
    std::thread::sleep(std::time::Duration::from_millis(1200));
    takes(200);
    assert!(backed() <= 40, "{}", backed());
    free(kept);
}
