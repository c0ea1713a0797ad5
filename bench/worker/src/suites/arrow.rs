//! The paper's Fig. 10 and 11: Apache Arrow's `MutableBuffer`, the real one, to
//! which integers, or whole pages, are appended.
//!
//! Arrow aligns its buffers to 128 bytes. The C library has no aligned `realloc`,
//! so Rust's `System` allocator serves each growth as aligned allocation, copy
//! and free; a preloaded library sees exactly that.

use super::Report;
use crate::args::Args;
use crate::meter::{self, Meter};
use arrow_buffer::MutableBuffer;
use std::hint::black_box;

pub fn run(mut args: Args) -> Result<Report, String> {
    let pushes = args.count("pushes", 100_000_000)?;
    let pages = args.flag("pages");
    let mut report = args.begin()?;

    let meter = Meter::start();
    let mut buffer = MutableBuffer::new(0);
    let intact = if pages {
        let mut page = [0u8; 4096];
        for number in 0..pushes {
            page[..8].copy_from_slice(&number.to_le_bytes());
            buffer.extend_from_slice(black_box(&page[..]));
        }
        let bytes = buffer.as_slice();
        (0..pushes).step_by(63).all(|at| bytes[at * page.len()..][..8] == at.to_le_bytes())
    } else {
        for number in 0..pushes {
            buffer.push(number as i32);
        }
        black_box(buffer.as_ptr());
        let numbers: &[i32] = buffer.typed_data();
        (0..pushes).step_by(4099).all(|at| numbers[at] == at as i32)
    };
    let rss = meter::rss();
    drop(buffer);
    let cost = meter.stop();

    cost.record(&mut report);
    report.insert("rss".into(), rss.into());
    intact.then_some(report).ok_or_else(|| "the buffer lost data".into())
}
