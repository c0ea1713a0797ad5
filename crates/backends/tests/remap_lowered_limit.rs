//! A program lowers its own limit of the address space below what the
//! reservations take: `mremap` then fails after it has unmapped its target. The
//! limit is the process's: this test is alone in its file.

use spandrel_backends::remap;

const MIB: usize = 1 << 20;

#[test]
fn objects_grow_by_copying_when_the_address_space_is_below_its_limit() {
    let small = 400 << 10;
    // SAFETY: each address is the object's when it is used.
    unsafe {
        let objects: Vec<_> = (1..6u8)
            .map(|seed| {
                let at = remap::alloc(small, 1);
                at.write_bytes(seed, small);
                (at, seed)
            })
            .collect();
        let limit = libc::rlimit { rlim_cur: 1 << 30, rlim_max: libc::RLIM_INFINITY };
        assert_eq!(libc::setrlimit(libc::RLIMIT_AS, &limit), 0);
        for (at, seed) in objects {
            let grown = remap::realloc(at, 3 * MIB);
            assert!(!grown.is_null());
            assert!((0..small).all(|i| grown.add(i).read() == seed));
            grown.write_bytes(seed, 3 * MIB);
            remap::free(grown);
        }
        for size in 1..40 {
            let at = remap::alloc(size * MIB, 1);
            assert!(!at.is_null());
            at.write_bytes(1, size * MIB);
            remap::free(at);
        }
        remap::trim();
        let limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, ..limit };
        assert_eq!(libc::setrlimit(libc::RLIMIT_AS, &limit), 0);
    }
}
