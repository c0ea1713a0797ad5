//! More heaps than a process may have open.

use spandrel_pheap::{Error, Heap, Media, Options};

/// Where the tie of the log lies, in the superblock.
const TIE: std::ops::Range<usize> = 589_824 + 53_248..589_824 + 61_440;

#[test]
fn a_heap_that_is_one_too_many_stays_as_it_was() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = |number: usize| {
        let path = place.path().join(format!("{number}.heap"));
        path.to_str().unwrap().to_string()
    };
    let options = Options::new().size(1 << 20).limit(1 << 20);
    options.create(path(0)).unwrap().close().unwrap();
    let before = std::fs::read(path(0)).unwrap();
    let mut heaps: Vec<Heap<Media>> =
        (1..=64).map(|number| options.create(path(number)).unwrap()).collect();
    let refused = Options::new().limit(1 << 20).open(path(0)).map(drop);
    assert_eq!(refused, Err(Error::TooManyHeaps(64)));
    // The log's tie names the state that a log would continue, and says nothing of the heap.
    let after = std::fs::read(path(0)).unwrap();
    let is_same = |range: std::ops::Range<usize>| after[range.clone()] == before[range];
    assert!(is_same(0..TIE.start) && is_same(TIE.end..before.len()), "nothing was written");
    // A heap that is made is refused as well, and leaves no file.
    assert_eq!(options.create(path(65)).map(drop), Err(Error::TooManyHeaps(64)));
    assert!(std::fs::metadata(path(65)).is_err());
    drop(heaps.pop());
    let (_, opened) = Options::new().limit(1 << 20).open(path(0)).unwrap();
    assert!(opened.was_clean);
}
