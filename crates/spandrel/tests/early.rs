//! Objects that are expected to grow, through the whole layer. In a program of its own:
//! other tests' objects would take the slot at hand.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::Mutex;

use spandrel::{AllocatorId, Spandrel};

const PAGE: usize = 4096;
static ALLOC: Spandrel = Spandrel::new();
/// The tests take turns at the slot.
static TURN: Mutex<()> = Mutex::new(());

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 16).unwrap()
}

fn new(size: usize) -> *mut u8 {
    // SAFETY: the size is not zero.
    let object = unsafe { ALLOC.alloc(layout(size)) };
    assert!(!object.is_null());
    object
}

fn free(object: *mut u8, size: usize) {
    // SAFETY: the callers' only pointer to an object of that size.
    unsafe { ALLOC.dealloc(object, layout(size)) }
}

/// Doubles an object from a page to 32, full of bytes of the round; whether it was in a
/// slot from the start.
fn double_and_free(round: usize) -> bool {
    let fill = round as u8 | 1;
    let mut object = new(PAGE);
    let early = spandrel::owner(object) == AllocatorId::Mmap;
    let mut size = PAGE;
    // SAFETY: a live object of `size` bytes; its address is replaced when it grows.
    unsafe {
        object.write_bytes(fill, size);
        while size < 32 * PAGE {
            object = ALLOC.realloc(object, layout(size), 2 * size);
            assert!(
                (0..size).step_by(256).all(|i| object.add(i).read() == fill),
                "{round}: {size}"
            );
            size *= 2;
            object.add(size / 2).write_bytes(fill, size / 2);
        }
    }
    free(object, size);
    early
}

#[test]
fn who_doubles_objects_has_them_in_slots_and_who_keeps_them_does_not() {
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let early = (0..1000).filter(|round| double_and_free(*round)).count();
    // The others: the first ones, and those for which the slot had gone back to the
    // lists, ten times a second.
    assert!(early >= 900, "{early} of 1000");
    // Now the object after each that grew is one that stays as it is.
    let kept: Vec<_> = (0..2000)
        .map(|round| {
            double_and_free(round);
            new(PAGE)
        })
        .collect();
    let wrong = kept.iter().filter(|at| spandrel::owner(**at) == AllocatorId::Mmap).count();
    // Each wrong expectation has the next one wait for twice as many copies: 8, 12 of 24, 24 of 48 rounds and so on,
    // eight in 2000 rounds. On a fast machine fewer, as looks rest for some milliseconds after
    // they were for nothing; a right expectation in between makes up for one in 64.
    assert!(wrong <= 12, "{wrong} of 2000 objects that never grew are in slots");
    kept.into_iter().for_each(|object| free(object, PAGE));
}

#[test]
fn zeroed_and_aligned_objects_are_what_they_were() {
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    // Another test may have ended the looks for a few milliseconds.
    assert!((0..100_000).any(double_and_free));
    // SAFETY: the sizes are not zero; each object is freed once.
    unsafe {
        let zeroed = ALLOC.alloc_zeroed(layout(2 * PAGE));
        assert!((0..2 * PAGE).all(|i| zeroed.add(i).read() == 0));
        assert_ne!(spandrel::owner(zeroed), AllocatorId::Mmap);
        free(zeroed, 2 * PAGE);
        let wide = Layout::from_size_align(PAGE, PAGE).unwrap();
        let aligned = ALLOC.alloc(wide);
        assert!((aligned as usize).is_multiple_of(PAGE));
        assert_ne!(spandrel::owner(aligned), AllocatorId::Mmap);
        ALLOC.dealloc(aligned, wide);
    }
}
