//! A cache of a processor grows for a program that frees much at once and takes it again at once.

mod caches;

use spandrel_pages::Figure;
use spandrel_slabs as slabs;

const OBJECTS: usize = 20_000;

fn figure(figure: Figure) -> u64 {
    slabs::figures().expect("the heap is there")[figure as usize]
}

fn refills() -> u64 {
    figure(Figure::TransferHits) + figure(Figure::TransferMisses)
}

#[test]
fn what_ebbs_and_floods_stays_in_the_cache() {
    if !caches::start() {
        return;
    }
    let mut objects = vec![std::ptr::null_mut(); OBJECTS];
    let mut tides = |count| {
        let before = refills();
        for _ in 0..count {
            for object in &mut objects {
                *object = slabs::alloc(64);
                assert!(!object.is_null());
                // SAFETY: it has 64 bytes.
                unsafe { object.cast::<usize>().write(OBJECTS) };
            }
            for object in &objects {
                // SAFETY: live until here.
                unsafe {
                    assert_eq!(object.cast::<usize>().read(), OBJECTS);
                    slabs::free(*object);
                }
            }
        }
        (refills() - before) / count
    };
    let first = tides(1);
    assert!(first >= OBJECTS as u64 / 256, "{first} refills");
    // Wherever the scheduler puts the thread: processors each learn it.
    let learnt = (0..100).any(|_| tides(20) <= first / 10);
    assert!(learnt, "{} refills, {first} at first", tides(1));
    assert!(figure(Figure::InCaches) >= OBJECTS as u64 * 64);
    slabs::trim();
    assert_eq!((figure(Figure::InCaches), figure(Figure::Live)), (0, 0));
}
