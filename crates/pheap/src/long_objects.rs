//! Damage of a heap in which an object is longer than a region: a header that is another makes metadata of what are bytes of the object.

use std::prelude::v1::*;

use super::*;
use crate::layout::{REGION_BYTES, first_block};
use crate::plain::Plain;
use crate::sums::{LINE_WORDS, region_line};

/// One bit of this number is flipped; all with `SPANDREL_EVERY_BIT=1`.
const STRIDE: usize = 61;

fn word(plain: &Plain, at: usize) -> u64 {
    u64::from_le_bytes(*plain.all()[at..].first_chunk().unwrap())
}

/// Regions of which the second and the third are those of one object, whose bytes look like anything where metadata would be.
fn heap() -> Plain {
    let plain = Plain::new(&vec![0; 3 * REGION_BYTES]);
    let heap = Heap::create(&plain, [7, 8], 0, 0).unwrap();
    let small = heap.alloc(64).unwrap();
    heap.set_root(0, Some(small)).unwrap();
    let long = heap.alloc(100 << 20).unwrap();
    heap.set_root(1, Some(long)).unwrap();
    let at = heap.core().offset(long.as_ptr());
    assert_eq!(at, first_block(1).start());
    for word in 0..8192u64 {
        let bytes = crate::sums::mix(5, word + 1).to_le_bytes();
        // SAFETY: within the object.
        unsafe { heap.medium().store(2 * REGION_BYTES + word as usize * 8, &bytes) };
    }
    heap.close().unwrap();
    plain
}

#[test]
fn each_bit_that_tells_of_a_long_object_is_put_right() {
    let mut plain = heap();
    let sound = |plain: &Plain| check(plain, &[], &mut |_| ()).unwrap().damaged == 0;
    assert!(sound(&plain));
    let (header, lines) = (first_block(1).header(), [region_line(0), region_line(1)]);
    let of_lines =
        lines.into_iter().flat_map(|line| (0..LINE_WORDS).map(move |word| line + word * 8));
    let places: Vec<usize> = [header, header + 8].into_iter().chain(of_lines).collect();
    let bits = places.iter().flat_map(|at| (0..64).map(move |bit| (*at, bit)));
    let stride = if std::env::var_os("SPANDREL_EVERY_BIT").is_some() { 1 } else { STRIDE };
    for (at, bit) in bits.step_by(stride) {
        let right = word(&plain, at);
        plain.all_mut()[at..at + 8].copy_from_slice(&(right ^ 1 << bit).to_le_bytes());
        let opened = Heap::open(&plain, 0, Some(&[])).map(drop);
        assert!(matches!(opened, Err(Error::Damaged { .. })), "{at:#x} bit {bit}: {opened:?}");
        let repaired = repair(&plain, &mut |_| ()).unwrap();
        assert!(repaired.is_closed && repaired.exact == 1, "{at:#x} bit {bit}: {repaired:?}");
        assert_eq!(word(&plain, at), right, "{at:#x} bit {bit}");
    }
    assert!(sound(&plain));
    let (heap, opened) = Heap::open(&plain, 0, None).unwrap();
    assert!(opened.was_clean);
    let long = heap.get_root(1).unwrap().unwrap();
    assert!(heap.usable_bytes(long).unwrap() >= 100 << 20);
    heap.close().unwrap();
}
