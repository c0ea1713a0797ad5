//! Fig. 10 and 11: Apache Arrow's `MutableBuffer`, to which integers, or pages, are appended.
//!
//! Arrow aligns its buffers to 128 bytes. The C library has no aligned `realloc`, so Rust's `System`
//! serves each growth by an aligned allocation, a copy and a free.

use crate::checksum::Checksum;
use crate::vectors::{PAGE_BYTES, sum_of_pages};
use arrow_buffer::MutableBuffer;
use std::hint::black_box;

/// Fig. 10.
pub fn integers(count: usize) -> Result<u64, String> {
    let mut buffer = MutableBuffer::new(0);
    for number in 0..count {
        buffer.push(number as i32);
    }
    black_box(buffer.as_ptr());
    let numbers: &[i32] = buffer.typed_data();
    let mut sum = Checksum::new();
    numbers.iter().step_by(1021).for_each(|number| sum.add(*number as u64));
    sum.add(numbers.len() as u64);
    Ok(sum.value())
}

/// Fig. 11.
pub fn pages(count: usize) -> Result<u64, String> {
    let mut page = [0u8; PAGE_BYTES];
    let mut buffer = MutableBuffer::new(0);
    for number in 0..count {
        page[..8].copy_from_slice(&number.to_le_bytes());
        buffer.extend_from_slice(black_box(&page[..]));
    }
    sum_of_pages(black_box(buffer.as_slice()))
}
