//! Byte counts: no text is a panic, and what is accepted prints to what parses back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spandrel_pages::ByteSize;

fuzz_target!(|text: &str| {
    match ByteSize::parse(text) {
        Ok(size) => assert_eq!(ByteSize::parse(&size.to_string()), Ok(size), "{text:?}"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
