//! Where memory is charged when it is opened, slots are opened one by one, and
//! each is a mapping of its own. The limit that makes it so is the process's:
//! this test is alone in its file.

use spandrel_backends::remap;

const MIB: usize = 1 << 20;

fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").unwrap().lines().count()
}

#[test]
fn the_backend_leaves_mappings_for_the_rest_of_the_process() {
    let limit = libc::rlimit { rlim_cur: 64 << 30, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a valid limit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_DATA, &limit) }, 0);
    let objects: Vec<_> =
        (0..40_000).map(|_| remap::alloc(140_000, 1)).filter(|at| !at.is_null()).collect();
    assert!(objects.len() > 10_000 && objects.len() < 20_000, "{}", objects.len());
    assert!(mappings() < 40_000, "{}", mappings());
    // What is there still grows, within its slot and out of it.
    // SAFETY: each address is the object's when it is used.
    unsafe {
        let at = remap::realloc(objects[0], MIB);
        at.write_bytes(1, MIB);
        assert!(remap::realloc(at, 3 * MIB).is_null(), "there is no other slot to be had");
        remap::free(at);
        objects[1..].iter().for_each(|at| remap::free(*at));
    }
    remap::trim();
    assert!(mappings() < 1_000, "{}", mappings());
    let at = remap::alloc(140_000, 1);
    assert!(!at.is_null(), "what was closed may be opened again");
    // SAFETY: the object is not used any more.
    unsafe { remap::free(at) };
}
