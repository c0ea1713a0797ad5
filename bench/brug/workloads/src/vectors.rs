//! Fig. 7 and 8: a `Vec` that integers, or pages, are pushed to one by one.

use crate::checksum::Checksum;
use std::hint::black_box;

/// A page, as the paper writes it.
pub const PAGE_BYTES: usize = 4096;

/// Fig. 7.
pub fn integers(count: usize) -> Result<u64, String> {
    let mut numbers: Vec<i32> = Vec::new();
    for number in 0..count {
        numbers.push(number as i32);
    }
    let numbers = black_box(numbers);
    let mut sum = Checksum::new();
    // A sample of all pages, and the last: to read all would be another workload.
    numbers.iter().step_by(1021).for_each(|number| sum.add(*number as u64));
    sum.add(numbers.len() as u64);
    sum.add(*numbers.last().ok_or("the vector is empty")? as u64);
    Ok(sum.value())
}

/// Fig. 8.
pub fn pages(count: usize) -> Result<u64, String> {
    let mut page = [0u8; PAGE_BYTES];
    let mut bytes: Vec<u8> = Vec::new();
    for number in 0..count {
        page[..8].copy_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(black_box(&page));
    }
    sum_of_pages(black_box(&bytes))
}

/// The numbers that pages begin with, of each 61st, and how many bytes there are.
pub fn sum_of_pages(bytes: &[u8]) -> Result<u64, String> {
    let mut sum = Checksum::new();
    for page in bytes.chunks_exact(PAGE_BYTES).step_by(61) {
        let number = page.first_chunk::<8>().ok_or("a page is too short")?;
        sum.add(u64::from_le_bytes(*number));
    }
    sum.add(bytes.len() as u64);
    Ok(sum.value())
}
