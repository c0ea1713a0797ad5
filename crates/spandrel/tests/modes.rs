//! Modes, scopes and handles of a Rust program on Spandrel.

use allocator_api2::vec::Vec as VecIn;
use spandrel::{AllocatorId, Mode, scope, set_allocator_mode, try_scope};

#[global_allocator]
static ALLOC: spandrel::Spandrel = spandrel::Spandrel::new();

fn owner<T>(vec: &[T]) -> AllocatorId {
    spandrel::owner(vec.as_ptr().cast())
}

fn heap(len: usize) -> Vec<u8> {
    vec![1; len]
}

#[test]
fn large_vectors_are_page_mapped_and_small_ones_are_not() {
    assert_eq!(owner(&heap(1 << 20)), AllocatorId::Mmap);
    assert_ne!(owner(&heap(100)), AllocatorId::Mmap);
}

#[test]
fn a_scope_is_nestable_and_ends() {
    scope(Mode::Mmap, || {
        assert_eq!(owner(&heap(100)), AllocatorId::Mmap);
        scope("sys", || assert_eq!(owner(&heap(1 << 20)), AllocatorId::Sys));
        assert_eq!(owner(&heap(100)), AllocatorId::Mmap);
    });
    assert_eq!(owner(&heap(1 << 20)), AllocatorId::Mmap);
    assert_ne!(owner(&heap(100)), AllocatorId::Mmap);
}

#[test]
fn a_scope_ends_when_its_body_panics() {
    let outcome = std::panic::catch_unwind(|| scope(Mode::Mmap, || panic!("on purpose")));
    assert!(outcome.is_err());
    assert_ne!(owner(&heap(100)), AllocatorId::Mmap);
}

#[test]
fn a_scope_is_its_threads_alone() {
    scope(Mode::Mmap, || {
        std::thread::spawn(|| assert_ne!(owner(&heap(100)), AllocatorId::Mmap)).join().unwrap();
    });
}

#[test]
fn a_mode_that_cannot_be_entered_is_told_and_harmless() {
    assert!(try_scope("fast", || ()).is_err());
    assert_eq!(scope("fast", || 7), 7);
    #[cfg(not(feature = "tcmalloc"))]
    assert!(try_scope("tcmalloc", || ()).unwrap_err().to_string().contains("tcmalloc"));
}

#[test]
fn objects_outlive_the_scope_that_made_them() {
    let mut vec: Vec<u32> = set_allocator_mode!(Mode::Mmap, (0..1000).collect());
    vec.extend(1000..200_000);
    assert!(vec.iter().enumerate().all(|(i, v)| i == *v as usize));
    set_allocator_mode!("sys", vec.shrink_to(10));
    vec.truncate(5);
    set_allocator_mode!("sys", vec.shrink_to_fit());
    assert_eq!(vec, [0, 1, 2, 3, 4]);
}

#[test]
fn a_handle_places_one_data_structure() {
    let mut vec = VecIn::new_in(spandrel::Mmap);
    let mut moves = 0;
    let mut at = std::ptr::null();
    for i in 0..1_000_000u64 {
        vec.push(i);
        moves += usize::from(at != vec.as_ptr());
        at = vec.as_ptr();
    }
    assert!(moves <= 4, "{moves} moves while growing to 8 MiB");
    assert_eq!(owner(&vec), AllocatorId::Mmap);
    assert!(vec.iter().enumerate().all(|(i, v)| i as u64 == *v));
    vec.truncate(10);
    vec.shrink_to_fit();
    assert_eq!(&vec[..], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);

    let mut map = hashbrown::HashMap::<u32, String, std::hash::RandomState, _>::with_hasher_in(
        std::hash::RandomState::new(),
        spandrel::Sys,
    );
    for i in 0..10_000 {
        map.insert(i, i.to_string());
    }
    assert!((0..10_000).all(|i| map[&i] == i.to_string()));
}

#[test]
fn over_aligned_layouts_keep_their_alignment_while_they_grow() {
    use std::alloc::{Layout, alloc, dealloc, realloc};
    for align in [32, 4096, 1 << 16, 1 << 21] {
        let mut layout = Layout::from_size_align(100, align).unwrap();
        // SAFETY: the block is used within its current layout and freed once.
        unsafe {
            let mut at = alloc(layout);
            at.write_bytes(0x5a, 100);
            for size in [5_000, 100_000, 3_000_000, 20_000_000, 200] {
                at = realloc(at, layout, size);
                layout = Layout::from_size_align(size, align).unwrap();
                assert_eq!(at as usize % align, 0);
                assert!((0..100).all(|i| at.add(i).read() == 0x5a));
            }
            dealloc(at, layout);
        }
    }
}

#[test]
fn statistics_count_when_asked() {
    spandrel::count_requests(true);
    let vec = vec![1u8; 3 << 20];
    let stats = spandrel::stats();
    assert!(stats.counting);
    assert!(stats.requests().any(|row| {
        row.allocator == AllocatorId::Mmap && row.from <= 3 << 20 && 3 << 20 <= row.to
    }));
    drop(vec);
    assert!(spandrel::stats().frees(AllocatorId::Mmap) > 0);
    spandrel::count_requests(false);
}
