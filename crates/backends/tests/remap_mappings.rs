//! Page-mapped objects that shrank do not use up the mappings that a process may have.

use spandrel_backends::remap;

const MIB: usize = 1 << 20;
const OBJECTS: usize = 10_000;

fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").expect("maps").lines().count()
}

#[test]
fn objects_that_shrank_take_few_mappings_and_leave_none() {
    let first = mappings();
    let mut objects = Vec::new();
    for index in 0..OBJECTS {
        // SAFETY: an object that only this test knows.
        let object = unsafe { remap::realloc(remap::alloc(3 * MIB, 1), MIB) };
        assert!(!object.is_null(), "object {index}");
        objects.push(object);
        if index % 16 == 0 {
            remap::trim();
        }
    }
    remap::trim();
    let most = mappings();
    assert!(most < first + 3 * OBJECTS, "{first} mappings, then {most}");
    // The budget for what is not one with its neighbours is 8192, each with a rest behind it.
    assert!(most < first + 2 * 8192 + 100, "{first} mappings, then {most}");
    for object in objects {
        // SAFETY: live until here.
        unsafe { remap::free(object) };
    }
    remap::trim();
    let last = mappings();
    assert!(last < first + 100, "{first} mappings, {most} at most, {last} in the end");
}
