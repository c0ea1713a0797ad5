//! The page heap: random calls on a kernel that may refuse, everything counted again after each.
#![no_main]

#[path = "../../crates/pageheap/tests/common/mod.rs"]
mod common;

use common::calls::{Call, run};
use libfuzzer_sys::arbitrary::{self, Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use spandrel_pageheap::{Order, Settings};
use spandrel_pages::{HugeLength, Length};

/// Every call is followed by a count over all records.
const MOST_CALLS: usize = 400;

#[derive(Debug)]
struct Input {
    settings: Settings,
    refuse: (u32, u32, u32),
    begins_small: u32,
    calls: Vec<Call>,
}

fn pages(input: &mut Unstructured<'_>) -> arbitrary::Result<u32> {
    Ok(match input.int_in_range(0..=9u8)? {
        0..=4 => input.int_in_range(1..=4)?,
        5..=6 => input.int_in_range(1..=128)?,
        7 => input.int_in_range(120..=270)?,
        8 => input.int_in_range(256..=2000)?,
        _ => *input.choose(&[256, 512, 2048, 131_072, 131_073])?,
    })
}

fn call(input: &mut Unstructured<'_>) -> arbitrary::Result<Call> {
    Ok(match input.int_in_range(0..=31u8)? {
        0..=13 => Call::Allocate {
            pages: pages(input)?,
            align: if input.ratio(1, 5)? { 1 << input.int_in_range(0..=11)? } else { 1 },
            objects: *input.choose(&[1, 2, 16, 17, 500])?,
        },
        14..=23 => Call::Free(input.arbitrary()?),
        24 => Call::FreeWrong {
            first: input.int_in_range(0..=40_000)?,
            pages: input.int_in_range(0..=600)?,
        },
        25..=27 => Call::Grow { which: input.arbitrary()?, by: input.int_in_range(1..=700)? },
        28 => Call::Release {
            pages: if input.arbitrary()? { u32::MAX } else { input.int_in_range(1..=600)? },
            asked: input.arbitrary()?,
        },
        29..=30 => Call::Step {
            after_ms: input.int_in_range(0..=20_000)?,
            per_s: input.int_in_range(0..=50_000)?,
        },
        _ => Call::Restore,
    })
}

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(input: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let orders = [
            Order::RangeThenAllocations,
            Order::RangeThenPages,
            Order::AllocationsThenRange,
            Order::BestFit,
        ];
        let slack = if input.arbitrary()? { u32::MAX } else { input.int_in_range(0..=400)? };
        let settings = Settings {
            order: *input.choose(&orders)?,
            region_slack: Length(slack),
            cache_least: HugeLength(input.int_in_range(0..=20)?),
            ..Settings::DEFAULT
        };
        let refuse = if input.arbitrary()? {
            (input.int_in_range(0..=5)?, input.int_in_range(0..=5)?, input.int_in_range(0..=2)?)
        } else {
            (0, 0, 0)
        };
        let begins_small = input.int_in_range(0..=2)?;
        let mut calls = Vec::new();
        while !input.is_empty() && calls.len() < MOST_CALLS {
            calls.push(call(input)?);
        }
        Ok(Self { settings, refuse, begins_small, calls })
    }
}

fuzz_target!(|input: Input| {
    run(input.settings, input.refuse, input.begins_small, &input.calls);
});
