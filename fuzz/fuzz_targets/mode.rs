//! Modes: no text is a panic, what is accepted prints to what parses back, and
//! its compiled table decides as the mode itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spandrel_pages::AllocatorId;
use spandrel_policy::{Available, Decision, Mode, Operation, Table, exact, parse_mode};

fuzz_target!(|input: (&str, Vec<usize>)| {
    let (text, sizes) = input;
    let mode = match parse_mode(text) {
        Ok(mode) => mode,
        Err(error) => {
            assert!(error.to_string().contains(text));
            return;
        }
    };
    let printed = mode.to_string();
    assert_eq!(parse_mode(&printed), Ok(mode), "{text:?} printed as {printed:?}");
    let all = AllocatorId::ALL.into_iter().fold(Available::BASE, Available::with);
    assert!(mode.check(text, all).is_ok());
    let boundaries = match &mode {
        Mode::Template(template) => template.ranges().iter().map(|range| range.to).collect(),
        Mode::Switch(switch) => vec![switch.point],
        _ => Vec::new(),
    };
    let beside = |at: usize| [at.saturating_sub(1), at, at.saturating_add(1)];
    for available in [all, Available::BASE] {
        let table = Table::elsewhere();
        table.compile(&mode, available, false);
        for size in sizes.iter().copied().chain(boundaries.iter().copied().flat_map(beside)) {
            for operation in [Operation::Allocate, Operation::Grow] {
                let decided = table.decide(operation, size);
                let itself = exact(&mode, available, operation, size);
                let looks = decided.has(Decision::EXACT);
                assert!(looks || decided == itself, "{text:?} {operation:?} {size}");
                assert!(available.has(itself.allocator()));
            }
        }
    }
});
