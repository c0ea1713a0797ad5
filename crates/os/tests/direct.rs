//! The direct slice. It is the process's: this test is alone in its file.

use spandrel_os::slices::{self, GRANULE_BYTES, claim};
use spandrel_pages::{AllocatorId, MIN_ALIGN};

#[test]
fn objects_of_the_direct_slice_are_recognized_unless_frees_are_counted() {
    let len = 4 * GRANULE_BYTES;
    let slice = claim(AllocatorId::Native, len, len).expect("address space");
    let (base, len) = (slice.base, slice.len);
    let local = 0_u128;
    let outside = [0, base - MIN_ALIGN, base + len, usize::MAX - 15, &raw const local as usize];
    let is_direct = |address: usize| slices::direct(address).is_some();
    assert!(!is_direct(base), "before there is one");

    slices::set_direct(slice);
    assert_eq!(slices::direct(base), Some((base, 0)));
    assert_eq!(slices::direct(base + 5 * MIN_ALIGN), Some((base, 5)));
    assert!(is_direct(base + len - MIN_ALIGN));
    assert!((1..MIN_ALIGN).all(|low| !is_direct(base + low)), "misaligned");
    assert!(outside.iter().all(|address| !is_direct(*address)));

    slices::set_counted(true);
    assert!(!is_direct(base));
    slices::shorten_direct(base + GRANULE_BYTES);
    assert!(!is_direct(base), "still counted");
    slices::set_counted(false);
    assert!(is_direct(base + GRANULE_BYTES - MIN_ALIGN) && !is_direct(base + GRANULE_BYTES));

    slices::look_at_frees(true);
    assert!(!is_direct(base));
    slices::look_at_frees(false);
    assert!(is_direct(base));

    // Another thread switches while the slice becomes shorter: the last state counts.
    std::thread::scope(|scope| {
        scope.spawn(|| (0..100).for_each(|n| slices::set_counted(n % 2 == 0)));
        (0..100).for_each(|n| slices::shorten_direct(base + GRANULE_BYTES - n * MIN_ALIGN));
    });
    assert!(is_direct(base + GRANULE_BYTES - 100 * MIN_ALIGN));
    assert!(!is_direct(base + GRANULE_BYTES - 99 * MIN_ALIGN));
}
