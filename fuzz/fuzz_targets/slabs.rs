//! The parts of the native allocator, each against its own model, and the whole of it on a kernel that may refuse.
//!
//! `SPANDREL_FUZZ_COMPONENT=2` keeps to one of them, by its place in `component`; without it the input chooses.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use spandrel_slabs::components::{Caches, Component, Instruction, run};

/// Everything is counted again after every step.
const MOST_STEPS: usize = 300;

fn component(which: u8, one_in: [u8; 3]) -> Component {
    let caches = if which & 1 == 0 { Caches::OfThreads } else { Caches::OfProcessors };
    match which >> 1 & 7 {
        0 => Component::Span,
        1 => Component::Central,
        2 => Component::Transfer,
        3 => Component::Stacks(caches),
        4 => Component::Heap(caches, [0; 3]),
        _ => Component::Heap(caches, one_in.map(|one_in| one_in % 6)),
    }
}

static ONLY: LazyLock<Option<u8>> = LazyLock::new(|| {
    let only = std::env::var("SPANDREL_FUZZ_COMPONENT").ok()?;
    Some(only.parse().expect("SPANDREL_FUZZ_COMPONENT is a number"))
});

fuzz_target!(|input: (u8, [u8; 3], Vec<(u8, u16, u16)>)| {
    let (which, one_in, steps) = input;
    let which = ONLY.map_or(which, |only| only << 1 | which & 1);
    let steps: Vec<Instruction> = steps
        .into_iter()
        .take(MOST_STEPS)
        .map(|(what, first, second)| Instruction { what, first, second })
        .collect();
    run(component(which, one_in), &steps);
});
