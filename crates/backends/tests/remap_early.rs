//! Slots for objects that are expected to grow: what a thread learns, and how it
//! forgets. In a program of its own: there is one slot at hand for the process.

use std::sync::Mutex;

use spandrel_backends::remap;

const PAGE: usize = 4096;
const SLOT: usize = 32 * PAGE;

static TURN: Mutex<()> = Mutex::new(());

/// What a new thread sees, which has learnt nothing yet.
fn in_new_thread(body: impl FnOnce() + Send) {
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    remap::trim();
    std::thread::scope(|scope| scope.spawn(body).join().unwrap());
}

/// Puts a slot of `bytes` warm bytes at hand; its first page.
fn leave_a_slot(bytes: usize) -> *mut u8 {
    let at = remap::alloc(bytes, 1);
    free(at);
    first_page(at)
}

/// Objects begin at different lines of the first page of their slot.
fn first_page(object: *mut u8) -> *mut u8 {
    object.map_addr(|at| at & !(PAGE - 1))
}

/// The slot at hand for a page or more. Ten times a second a slot goes the usual way
/// instead of staying at hand.
fn early(size: usize) -> *mut u8 {
    let object = remap::alloc_early(size);
    if object.is_null() {
        leave_a_slot(SLOT);
        return remap::alloc_early(size);
    }
    object
}

fn free(object: *mut u8) {
    assert!(!object.is_null());
    // SAFETY: every caller hands in its only pointer to a live object.
    unsafe { remap::free(object) }
}

fn grow(object: *mut u8, size: usize) {
    // SAFETY: a live object of the caller's.
    assert!(unsafe { remap::grow_warm(object, size) });
}

/// Notes copies until objects are expected to grow; how many it took.
fn learn() -> u32 {
    (1..).find(|_| remap::note_late()).unwrap_or(0)
}

#[test]
fn a_thread_that_copied_a_few_objects_gets_the_slot_at_hand_from_then_on() {
    in_new_thread(|| {
        let slot = leave_a_slot(SLOT);
        assert!(remap::alloc_early(PAGE).is_null(), "nothing is known yet");
        assert_eq!(learn(), 4);
        let mut given = 0;
        for _ in 0..100 {
            let object = remap::alloc_early(PAGE);
            if object.is_null() {
                // Ten times a second it goes the usual way.
                assert_eq!(leave_a_slot(SLOT), slot);
                continue;
            }
            assert_eq!(first_page(object), slot);
            assert!(remap::alloc_early(PAGE).is_null(), "there is one");
            grow(object, SLOT);
            free(object);
            given += 1;
        }
        assert!(given >= 90, "{given}");
    });
}

#[test]
fn what_one_thread_learnt_another_does_not_know() {
    in_new_thread(|| {
        learn();
        leave_a_slot(SLOT);
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(early(PAGE).is_null()));
        });
        free(early(PAGE));
    });
}

#[test]
fn objects_that_are_freed_as_they_were_are_given_slots_ever_more_seldom() {
    in_new_thread(|| {
        let mut needed = Vec::new();
        for _ in 0..6 {
            needed.push(learn());
            leave_a_slot(SLOT);
            let object = early(PAGE);
            // A few bytes more are no growth that would have been a copy.
            grow(object, PAGE + 100);
            // Any thread may free it.
            let at = object as usize;
            std::thread::scope(|scope| scope.spawn(|| free(at as *mut u8)).join().unwrap());
            leave_a_slot(SLOT);
            assert!(remap::alloc_early(PAGE).is_null(), "the last one has not grown");
            leave_a_slot(SLOT);
            assert!(remap::alloc_early(PAGE).is_null(), "nor is it expected any more");
        }
        assert_eq!(needed, [4, 8, 16, 32, 64, 128]);
    });
}

#[test]
fn while_one_object_has_not_grown_there_is_no_second() {
    in_new_thread(|| {
        learn();
        leave_a_slot(SLOT);
        let open = early(PAGE);
        leave_a_slot(SLOT);
        for _ in 0..3 {
            assert!(early(PAGE).is_null());
        }
        grow(open, 2 * PAGE);
        let second = early(PAGE);
        assert!(!second.is_null(), "nothing was wrong");
        // One that never grows while as many others do is given up.
        assert_eq!((1..).find(|_| !remap::note_late()), Some(4));
        assert_eq!(learn(), 8);
        free(open);
        free(second);
    });
}

#[test]
fn another_threads_object_in_the_same_slot_is_not_held_against_a_thread() {
    in_new_thread(|| {
        learn();
        let same = (0..10).any(|_| {
            let mine = early(PAGE);
            grow(mine, SLOT);
            free(mine);
            let slot = mine as usize;
            let theirs = std::thread::scope(|scope| {
                let other = scope.spawn(|| {
                    learn();
                    // It stays as it is; another slot comes to hand.
                    let theirs = early(PAGE) as usize;
                    leave_a_slot(SLOT);
                    theirs
                });
                other.join().unwrap()
            });
            let next = early(PAGE);
            assert!(!next.is_null(), "the last one did grow");
            grow(next, SLOT);
            free(next);
            theirs == slot
        });
        assert!(same, "they never had the same slot");
    });
}

#[test]
fn a_slot_with_few_pages_to_grow_into_or_very_many_is_not_given() {
    in_new_thread(|| {
        learn();
        leave_a_slot(2 * PAGE);
        assert!(remap::alloc_early(PAGE).is_null());
        leave_a_slot(257 * PAGE);
        assert!(remap::alloc_early(PAGE).is_null(), "nor is so much for one page");
        remap::trim();
        leave_a_slot(SLOT);
        assert!(remap::alloc_early(16 * PAGE).is_null());
        free(early(8 * PAGE));
    });
}
