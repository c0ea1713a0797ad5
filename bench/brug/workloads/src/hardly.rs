//! A program that hardly allocates: it counts, for many numbers, the steps of the Collatz series,
//! and keeps a small histogram. What a global allocator costs a program that does not need one.

use crate::checksum::Checksum;
use std::hint::black_box;

/// Lengths beyond the histogram's end count in its last place.
const PLACES: usize = 512;

/// Does it for the numbers from 1 to `count`.
pub fn run(count: usize) -> Result<u64, String> {
    let mut histogram = vec![0u64; PLACES];
    for start in 1..=count as u64 {
        let (mut number, mut steps) = (start, 0);
        while number != 1 {
            number = if number % 2 == 0 { number / 2 } else { 3 * number + 1 };
            steps += 1;
        }
        histogram[steps.min(PLACES - 1)] += 1;
    }
    let mut sum = Checksum::new();
    black_box(&histogram).iter().for_each(|places| sum.add(*places));
    Ok(sum.value())
}
