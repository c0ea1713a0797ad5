//! Two decoders on any bytes: what the translator's own says of an instruction, the second one says as well.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spandrel_capture::translate::trial::Pair;
use std::cell::RefCell;

thread_local!(static PAIR: RefCell<Pair> = RefCell::default());

fuzz_target!(|bytes: &[u8]| {
    PAIR.with_borrow_mut(|pair| {
        if let Err(difference) = pair.compare(bytes) {
            panic!("{difference}");
        }
    });
});
