//! Target A3 and the paper's Fig. 7 and 8: a Rust `Vec` to which integers, or
//! whole pages, are pushed. With `--floor` the vector has all its memory
//! beforehand, and only the pushing of integers is left.

use super::Report;
use crate::args::Args;
use crate::meter::{self, Meter};
use std::hint::black_box;

pub fn run(mut args: Args) -> Result<Report, String> {
    let pushes = args.count("pushes", 100_000_000)?;
    let pages = args.flag("pages");
    let floor = args.flag("floor");
    let mut report = args.begin()?;

    let mut numbers: Vec<u64> = Vec::new();
    if floor {
        numbers.reserve_exact(pushes);
        meter::ask_huge(numbers.as_ptr().addr(), pushes * size_of::<u64>());
        numbers.resize(pushes, 0);
        numbers.clear();
    }
    let meter = Meter::start();
    let rss = if pages { push_pages(pushes)? } else { push_integers(numbers, pushes)? };
    let cost = meter.stop();

    cost.record(&mut report);
    report.insert("rss".into(), rss.into());
    Ok(report)
}

fn push_integers(mut numbers: Vec<u64>, pushes: usize) -> Result<u64, String> {
    for number in 0..pushes {
        numbers.push(number as u64);
    }
    let numbers = black_box(numbers);
    let rss = meter::rss();
    let intact = (0..pushes).step_by(4099).all(|at| numbers[at] == at as u64);
    intact.then_some(rss).ok_or_else(|| "the vector lost numbers".into())
}

fn push_pages(pushes: usize) -> Result<u64, String> {
    let mut page = [0u8; 4096];
    let mut bytes: Vec<u8> = Vec::new();
    for number in 0..pushes {
        page[..8].copy_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(black_box(&page));
    }
    let rss = meter::rss();
    let intact =
        (0..pushes).step_by(63).all(|at| bytes[at * page.len()..][..8] == at.to_le_bytes());
    intact.then_some(rss).ok_or_else(|| "the vector lost pages".into())
}
