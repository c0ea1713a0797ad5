//! Any bytes as a program: its translation is code that has a note before each store. Instructions that can run do the same natively and translated, and each change is noted.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spandrel_capture::translate::trial::{Machine, Trial};
use std::cell::RefCell;

/// Instructions of a program that runs, at most.
const MOST: usize = 8;

thread_local!(static TRIAL: RefCell<(Trial, Machine)> = RefCell::default());

fuzz_target!(|bytes: &[u8]| {
    TRIAL.with_borrow_mut(|(trial, machine)| {
        trial.check(bytes);
        machine.run(bytes, MOST);
    });
});
