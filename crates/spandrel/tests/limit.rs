//! A limit holds for a program that uses Spandrel by its handles alone.

use allocator_api2::vec::Vec;
use spandrel::{Auto, Mmap};

const MIB: usize = 1 << 20;

#[test]
fn handles_obey_the_environments_limit() {
    // SAFETY: the only test of this program; nobody else reads the environment now.
    unsafe { std::env::set_var("SPANDREL_LIMIT", "64MiB") };
    let mut large: Vec<u8, Mmap> = Vec::new_in(Mmap);
    assert!(large.try_reserve_exact(200 * MIB).is_err());
    assert!(large.try_reserve_exact(30 * MIB).is_ok());
    drop(large);
    // What was never held is not taken from what is.
    for size in [MIB, 4 * MIB, 48 * MIB] {
        let mut other: Vec<u8, Auto> = Vec::new_in(Auto);
        assert!(other.try_reserve_exact(size).is_ok(), "{size}");
        let mut mapped: Vec<u8, Mmap> = Vec::new_in(Mmap);
        assert!(mapped.try_reserve_exact(60 * MIB - size).is_ok(), "{size}");
    }
}
