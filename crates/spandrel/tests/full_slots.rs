//! Where all slots of page-mapped objects are in use, the native heap serves, and not glibc: what is unused of such objects stays with the
//! kernel, also where it has huge pages wherever one fits.

use spandrel::{AllocatorId, Mode, scope};

#[global_allocator]
static ALLOC: spandrel::Spandrel = spandrel::Spandrel::new();

const KIB: usize = 1 << 10;
const GIB: usize = 1 << 30;
/// Only the largest slots hold it, of which there are 16.
const SIZE: usize = 9 * GIB;

fn owner(vec: &[u8]) -> AllocatorId {
    spandrel::owner(vec.as_ptr())
}

fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("statm");
    text.split_whitespace()
        .nth(1)
        .and_then(|pages| pages.parse().ok())
        .map_or(0, |pages: usize| pages << 12)
}

/// Room for `size` bytes, of which the first is used.
fn sparse(size: usize) -> Vec<u8> {
    let mut vec = Vec::new();
    vec.try_reserve_exact(size).expect("address space");
    vec.push(1);
    vec
}

#[test]
fn the_native_heap_serves_when_slots_are_full() {
    let before = resident_bytes();
    let mapped: Vec<_> = (0..20).map(|_| sparse(SIZE)).collect();
    let slots = mapped.iter().take_while(|vec| owner(vec) == AllocatorId::Mmap).count();
    assert!((1..20).contains(&slots), "{slots} slots of the largest class");
    let is_native = |vec: &Vec<u8>| owner(vec) == AllocatorId::Native;
    assert!(mapped[slots..].iter().all(is_native));
    let zeroed = vec![0u8; SIZE];
    assert_eq!((owner(&zeroed), zeroed[SIZE - 1]), (AllocatorId::Native, 0));
    drop(zeroed);
    assert!(is_native(&scope(Mode::Mmap, || sparse(SIZE))));

    // An object that outgrows its slot and finds no larger one.
    let mut grown = scope(Mode::Mmap, || sparse(300 * KIB));
    assert_eq!(owner(&grown), AllocatorId::Mmap);
    grown.try_reserve_exact(SIZE).expect("address space");
    assert_eq!((owner(&grown), grown[0]), (AllocatorId::Native, 1));
    let used = resident_bytes() - before;
    // Of 200 GiB. The tables of the native heap's objects take some tens of MiB each until the thread beside the program releases them.
    assert!(used < GIB, "{} MiB for one page of each object", used >> 20);

    // A size that no slot has is glibc's, which asks the kernel whether the machine can hold it.
    assert!(Vec::<u8>::new().try_reserve_exact(100 << 40).is_err());

    // What became free is taken again.
    drop(mapped);
    assert_eq!(owner(&sparse(SIZE)), AllocatorId::Mmap);
}
