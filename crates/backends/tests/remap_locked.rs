//! A program locks its memory (`mlockall`): what is opened is resident at once.
//! The lock is the process's: this test is alone in its file.

use spandrel_backends::remap;

const MIB: usize = 1 << 20;

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn objects_take_what_they_use_and_give_it_back() {
    // SAFETY: locking changes no contents.
    if unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) } != 0 {
        // Nobody but root may lock this much.
        return;
    }
    let before = resident_bytes();
    let sizes = [200 << 10, MIB, 9 * MIB, 20 * MIB];
    let objects = sizes.map(|size| remap::alloc(size, 1));
    let grown = resident_bytes() - before;
    assert!(grown < 50 * MIB, "{} MiB", grown / MIB);
    for (at, size) in objects.into_iter().zip(sizes) {
        // SAFETY: an object of that size, not used any more afterwards.
        unsafe {
            at.write_bytes(0xff, size);
            let at = remap::realloc(at, size / 2);
            remap::free(at);
        }
    }
    remap::trim();
    let left = resident_bytes().saturating_sub(before);
    assert!(left < 4 * MIB, "{} MiB", left / MIB);
    assert_eq!(remap::stats().warm_bytes, 0);
    for size in sizes {
        let at = remap::alloc_zeroed(size, 1);
        // SAFETY: an object of that size, not used any more afterwards.
        unsafe {
            assert!((0..size).all(|i| at.add(i).read() == 0));
            remap::free(at);
        }
    }
}
