//! Any bytes as those of a client of `examples/kvserver`: a reply to each request, the same ones however the bytes are cut, and keys that are counted. Never a fault.
//!
//! Half of the inputs are bytes as they come, the others requests of words that commands know.
#![no_main]

use libfuzzer_sys::{arbitrary, fuzz_target};
use spandrel_kvserver::exercise::{WORDS, exercise, names};

#[derive(arbitrary::Arbitrary, Debug)]
enum Word<'a> {
    Known(u8),
    Any(&'a [u8]),
}

#[derive(arbitrary::Arbitrary, Debug)]
enum Input<'a> {
    Bytes(&'a [u8]),
    /// The number of a command, and words.
    Requests(Vec<(u8, Vec<Word<'a>>)>),
}

fn encoded(requests: &[(u8, Vec<Word<'_>>)]) -> Vec<u8> {
    let names = names();
    let mut bytes = Vec::new();
    let mut put = |words: &[&[u8]]| {
        bytes.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
    };
    for (name, words) in requests {
        let words = words.iter().take(8).map(|word| match word {
            Word::Known(number) => WORDS[usize::from(*number) % WORDS.len()].as_bytes(),
            Word::Any(bytes) => bytes,
        });
        let name = names[usize::from(*name) % names.len()].as_bytes();
        put(&std::iter::once(name).chain(words).collect::<Vec<_>>());
    }
    bytes
}

fuzz_target!(|input: (Input<'_>, Vec<u8>, bool)| {
    let (input, pieces, has_password) = input;
    match input {
        Input::Bytes(bytes) => exercise(bytes, &pieces, has_password),
        Input::Requests(requests) => exercise(&encoded(&requests), &pieces, has_password),
    }
});
