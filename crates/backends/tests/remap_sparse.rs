//! Large objects of which little is used take little, and those that are filled come in huge pages.

use std::time::Duration;

use spandrel_backends::remap;
use spandrel_slabs::fresh;

const MIB: usize = 1 << 20;

/// KiB of one figure of the process.
fn figure(file: &str, name: &str) -> usize {
    let text = std::fs::read_to_string(file).expect(file);
    let line = text.lines().find(|line| line.starts_with(name)).expect(name);
    line.split_whitespace().nth(1).and_then(|word| word.parse().ok()).expect("a number")
}

fn resident_mib() -> usize {
    figure("/proc/self/status", "VmRSS:") / 1024
}

fn huge_mib() -> usize {
    figure("/proc/self/smaps_rollup", "AnonHugePages:") / 1024
}

fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").expect("maps").lines().count()
}

/// Whether there are huge pages, advised or not.
fn has_huge_pages() -> bool {
    let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    setting.is_ok_and(|setting| !setting.contains("[never]"))
}

/// Stores to each page of an object.
fn fill(object: *mut u8, bytes: usize) {
    // SAFETY: the test's object has `bytes` bytes.
    (0..bytes).step_by(4096).for_each(|at| unsafe { object.add(at).write(1) });
}

/// One test: its parts have what the process learns in common.
#[test]
fn memory_follows_use() {
    if !has_huge_pages() {
        return;
    }
    // A table of zeros of which few places are used.
    let before = resident_mib();
    let table = remap::alloc_zeroed(1024 * MIB, 16);
    for place in 0..2000 {
        // SAFETY: within the table.
        unsafe { table.add(place * 500_009).write(1) };
    }
    assert!(resident_mib() < before + 20, "{} MiB after {before}", resident_mib());
    // SAFETY: an object of this test's.
    unsafe { remap::free(table) };
    // The next one is as the first: nothing of it was kept, to be cleared as a whole.
    let table = remap::alloc_zeroed(1024 * MIB, 16);
    assert!((0..1024).all(|at| {
        // SAFETY: within the table.
        unsafe { table.add(at * MIB).read() == 0 }
    }));
    assert!(resident_mib() < before + 20, "{} MiB after {before}", resident_mib());
    // SAFETY: as above.
    unsafe { remap::free(table) };

    // Buffers of which the first page is used: some are tried with huge pages.
    let (before, maps) = (resident_mib(), mappings());
    let buffers: Vec<_> = (0..4000).map(|_| remap::alloc(3 * MIB, 16)).collect();
    buffers.iter().for_each(|buffer| fill(*buffer, 1));
    assert!(resident_mib() < before + 16 + 60, "{} MiB after {before}", resident_mib());
    assert!(mappings() < maps + 200, "{} mappings after {maps}", mappings());
    for buffer in buffers {
        // SAFETY: as above.
        unsafe { remap::free(buffer) };
    }
    remap::trim();

    // Objects that are filled. The first begins with small pages, as the sparse ones before it were of its kind.
    let before = huge_mib();
    let objects: Vec<_> = (0..20)
        .map(|_| {
            let object = remap::alloc(4 * MIB, 16);
            fill(object, 4 * MIB);
            // The coarse clock ticks.
            std::thread::sleep(Duration::from_millis(10));
            object
        })
        .collect();
    let huge = huge_mib() - before;
    // Where one huge page was slow, the next ones stay small.
    assert!(huge <= 76, "{huge} MiB of 80");
    assert!(huge >= 8 || fresh::are_slow(), "{huge} MiB of 80");
    for object in objects {
        // SAFETY: as above.
        unsafe { remap::free(object) };
    }

    // An object that grows and is filled is dense, whatever is known of new ones.
    let before = huge_mib();
    let mut object = remap::alloc(MIB, 16);
    for doubling in 0..6 {
        fill(object, MIB << doubling);
        // SAFETY: as above.
        object = unsafe { remap::realloc(object, MIB << (doubling + 1)) };
    }
    fill(object, 64 * MIB);
    let huge = huge_mib();
    assert!(huge >= before + 8 || fresh::are_slow(), "{huge} MiB after {before}");
    // SAFETY: as above.
    unsafe { remap::free(object) };

    // One that grows and is not filled is not.
    remap::trim();
    let mut object = remap::alloc(2 * MIB, 16);
    let before = resident_mib();
    for doubling in 1..8 {
        // SAFETY: as above.
        object = unsafe { remap::realloc(object, MIB << (doubling + 1)) };
        fill(object, 1);
    }
    assert!(resident_mib() < before + 8, "{} MiB after {before}", resident_mib());
    // SAFETY: as above.
    unsafe { remap::free(object) };
}
