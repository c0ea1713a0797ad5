//! The parts of the page heap, each against its own model.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spandrel_pageheap::Order;
use spandrel_pageheap::components::{Component, Instruction, run};

/// Everything is compared after every step.
const MOST_STEPS: usize = 400;

const COMPONENTS: [Component; 7] = [
    Component::HugeAllocator,
    Component::HugeCache,
    Component::HugeFiller(Order::RangeThenAllocations),
    Component::HugeFiller(Order::RangeThenPages),
    Component::HugeFiller(Order::AllocationsThenRange),
    Component::HugeFiller(Order::BestFit),
    Component::HugeRegion,
];

fuzz_target!(|input: (u8, Vec<(u8, u16, u16)>)| {
    let (component, steps) = input;
    let steps: Vec<Instruction> = steps
        .into_iter()
        .take(MOST_STEPS)
        .map(|(what, first, second)| Instruction { what, first, second })
        .collect();
    run(COMPONENTS[usize::from(component) % COMPONENTS.len()], &steps);
});
