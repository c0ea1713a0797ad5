//! The parts of the native allocator, each against its own model, and the whole of it on a kernel that may refuse.
#![no_main]

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

fuzz_target!(|input: (u8, [u8; 3], Vec<(u8, u16, u16)>)| {
    let (which, one_in, steps) = input;
    let steps: Vec<Instruction> = steps
        .into_iter()
        .take(MOST_STEPS)
        .map(|(what, first, second)| Instruction { what, first, second })
        .collect();
    run(component(which, one_in), &steps);
});
