//! Experiments: no text is a panic, and whoever is on the variant stays there when its part grows.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spandrel_policy::Experiment;

fuzz_target!(|input: (&str, &[u8], &[u8])| {
    let (text, host, program) = input;
    let experiment = match Experiment::parse(text) {
        Ok(experiment) => experiment,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    assert!(text.starts_with(experiment.name) && experiment.part <= 10_000);
    let all = Experiment { part: 10_000, ..experiment };
    let none = Experiment { part: 0, ..experiment };
    assert!(all.is_variant(host, program) && !none.is_variant(host, program));
    let more = Experiment { part: experiment.part.saturating_add(1), ..experiment };
    assert!(!experiment.is_variant(host, program) || more.is_variant(host, program));
});
