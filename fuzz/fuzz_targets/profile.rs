//! Profiles: no bytes are a panic, a refusal names a line that there is, and an
//! accepted mode prints to what parses back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spandrel_policy::{parse_mode, profile};

fuzz_target!(|bytes: &[u8]| {
    match profile::parse(bytes) {
        Ok(profile) => {
            let printed = profile.mode.to_string();
            assert_eq!(parse_mode(&printed), Ok(profile.mode));
            let again = format!("version = 1\nmode = \"{printed}\"\n");
            assert_eq!(profile::parse(again.as_bytes()).map(|again| again.mode), Ok(profile.mode));
            assert!(profile.is_of("", "madvise"));
            profile.is_of("x", "never");
        }
        Err(error) => {
            let lines = 1 + bytes.iter().filter(|byte| **byte == b'\n').count();
            assert!((1..=lines).contains(&error.line), "line {} of {lines}", error.line);
            assert!(!error.to_string().is_empty());
        }
    }
});
