//! Any bytes as the file `figures` of a state: nothing, or figures that are written so that they are read again. Never a fault.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spandrel_durable::live::{BYTES, Figures, seal};

fuzz_target!(|input: (bool, [u8; BYTES])| {
    let (is_sealed, mut bytes) = input;
    if is_sealed {
        seal(&mut bytes);
    }
    let figures = Figures::parse(&bytes);
    assert!(figures.is_some() || !is_sealed);
    if let Some(figures) = figures {
        assert_eq!(Figures::parse(&figures.to_bytes()), Some(figures));
    }
});
