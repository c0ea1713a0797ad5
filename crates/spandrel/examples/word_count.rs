//! Counts words into a heap, and goes on where it was when it is started again, however it ended.
//!
//!     cargo run --release --example word_count -- words.heap FILE…
//!
//! Kill it with `kill -9` in the middle and start it again: no word is counted twice, and none is missed. On an ordinary
//! file the counts and the place in the text become durable together, with each checkpoint.

use spandrel::heap::collections::{HashMap, Key, MapHead, Vector, VectorHead};
use spandrel::heap::{Choice, Heap, Opened, Options, RootType, Trace, Tracer};
use std::io::{BufRead, BufReader, Seek, SeekFrom};

/// A word: up to 24 bytes of it.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
struct Word([u8; 24]);

// SAFETY: any bytes are one, and it holds nothing.
unsafe impl Trace for Word {
    const LAYOUT: u64 = <[u8; 24]>::LAYOUT;
    const HAS_POINTERS: bool = false;

    fn trace(&self, _: &mut Tracer<'_>) {}
}

impl Key for Word {
    fn code(&self) -> u64 {
        self.0.code()
    }
}

impl Word {
    fn new(text: &str) -> Self {
        let mut bytes = [0; 24];
        let text = text.as_bytes();
        let len = text.len().min(bytes.len());
        bytes[..len].copy_from_slice(&text[..len]);
        Self(bytes)
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0).trim_end_matches('\0').to_string()
    }
}

const TYPES: &[RootType<'_>] =
    &[RootType::of::<MapHead<Word, u64>>("counts"), RootType::of::<VectorHead<u64>>("places")];

/// Lines between two checkpoints.
const LINES: usize = 2000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let Some(path) = words.next() else { return Err("word_count HEAP FILE…".into()) };
    // With a log also where the file lies in memory: what counts is that both change together.
    let options = Options::new().roots(TYPES).medium(Choice::Logged);
    let (heap, opened) = match std::path::Path::new(&path).exists() {
        true => options.open(&path)?,
        false => (options.size(1 << 20).create(&path)?, Opened::default()),
    };
    if let Some(collected) = opened.collected {
        eprintln!("recovered: {} objects, {} given back", collected.live, collected.freed);
    }
    for (number, file) in words.enumerate() {
        count(&heap, number, &file)?;
    }
    let counts = HashMap::<Word, u64>::open(&heap, "counts")?;
    let mut all: Vec<(u64, String)> =
        counts.iter().map(|(word, count)| (count, word.text())).collect();
    all.sort_unstable_by(|one, two| two.cmp(one));
    for (count, word) in all.iter().take(10) {
        println!("{count:>9} {word}");
    }
    println!(
        "{:>9} words, {} of them different",
        all.iter().map(|(count, _)| count).sum::<u64>(),
        all.len()
    );
    heap.close()?;
    Ok(())
}

/// Counts the words of a file from where it was left.
fn count(heap: &Heap, number: usize, file: &str) -> Result<(), Box<dyn std::error::Error>> {
    let mut counts = HashMap::<Word, u64>::open(heap, "counts")?;
    let mut places = Vector::<u64>::open(heap, "places")?;
    while places.len() <= number {
        places.push(0)?;
    }
    let mut place = places.get(number).unwrap_or(0);
    let mut text =
        BufReader::new(std::fs::File::open(file).map_err(|why| format!("{file}: {why}"))?);
    text.seek(SeekFrom::Start(place))?;
    let mut line = Vec::new();
    for lines in 1.. {
        line.clear();
        let read = text.read_until(b'\n', &mut line)?;
        for word in String::from_utf8_lossy(&line).split(|c: char| !c.is_alphanumeric()) {
            if !word.is_empty() {
                let word = Word::new(&word.to_lowercase());
                counts.insert(word, counts.get(&word).unwrap_or(0) + 1)?;
            }
        }
        place += read as u64;
        if read == 0 || lines % LINES == 0 {
            places.set(number, place)?;
            heap.checkpoint()?;
        }
        if read == 0 {
            return Ok(());
        }
    }
    Ok(())
}
