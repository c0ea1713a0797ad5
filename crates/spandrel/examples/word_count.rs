//! Counts words into a heap, and continues where it stopped when it is started again, however it ended.
//!
//!     cargo run --release -p spandrel --example word_count -- words.heap FILE…
//!
//! Kill it with `kill -9` in the middle and start it again: no word is counted twice, and none is missed. On tmpfs and DAX a line is
//! durable when its transaction has ended; on an ordinary file all lines become durable together, with each checkpoint.
//!
//!     cargo run --release -p spandrel --features simulator --example word_count -- --power-failure
//!
//! does the same with every image of a short count that a power failure may leave.

use spandrel::heap::collections::{HashMap, MapHead, Str, Vector, VectorHead};
use spandrel::heap::{Error, Heap, Medium, Options, RootType};
use std::io::{BufRead, BufReader, Seek, SeekFrom};

type Failure = Box<dyn std::error::Error>;
/// A word: up to 24 bytes of it.
type Word = Str<24>;

const TYPES: &[RootType<'_>] =
    &[RootType::of::<MapHead<Word, u64>>("counts"), RootType::of::<VectorHead<u64>>("places")];

/// Lines between two checkpoints.
const LINES: usize = 2000;

fn main() -> Result<(), Failure> {
    let mut words = std::env::args().skip(1);
    let Some(path) = words.next() else { return Err("word_count HEAP FILE…".into()) };
    if path == "--power-failure" {
        return power_failure();
    }
    let (heap, opened) = Options::new().roots(TYPES).size(1 << 20).open_or_create(&path)?;
    if let Some(collected) = opened.collected {
        eprintln!("recovered: {} objects, {} given back", collected.live, collected.freed);
    }
    for (number, file) in words.enumerate() {
        let text = std::fs::File::open(&file).map_err(|why| format!("{file}: {why}"))?;
        count(&heap, number, &mut BufReader::new(text), LINES, |_| ())?;
    }
    let all = most_often(&heap)?;
    for (times, word) in all.iter().take(10) {
        println!("{times:>9} {word}");
    }
    let sum: u64 = all.iter().map(|(times, _)| times).sum();
    println!("{sum:>9} words, {} of them different", all.len());
    heap.close()?;
    Ok(())
}

/// All words, those first that were seen most often.
fn most_often<M: Medium>(heap: &Heap<M>) -> Result<Vec<(u64, String)>, Error> {
    let counts = HashMap::<Word, u64>::open(heap, "counts")?;
    let mut all: Vec<_> = counts.iter().map(|(word, times)| (times, word.to_string())).collect();
    all.sort_unstable_by(|one, two| two.cmp(one));
    Ok(all)
}

/// Counts the words of a text from where it was left. `done` is called with the place behind each line.
fn count<M: Medium>(
    heap: &Heap<M>,
    number: usize,
    text: &mut (impl BufRead + Seek),
    lines: usize,
    done: impl Fn(u64),
) -> Result<(), Failure> {
    let mut counts = HashMap::<Word, u64>::open(heap, "counts")?;
    let mut places = Vector::<u64>::open(heap, "places")?;
    while places.len() <= number {
        places.push(0)?;
    }
    let mut place = places.get(number).unwrap_or(0);
    text.seek(SeekFrom::Start(place))?;
    let mut line = Vec::new();
    for lines_read in 1.. {
        line.clear();
        let read = text.read_until(b'\n', &mut line)?;
        place += read as u64;
        // The words of a line are counted together with the place behind it.
        heap.transaction(|| {
            for word in String::from_utf8_lossy(&line).split(|c: char| !c.is_alphanumeric()) {
                if !word.is_empty() {
                    let word = Word::cut(&word.to_lowercase());
                    counts.update(word, |times| times.unwrap_or(0) + 1)?;
                }
            }
            places.set(number, place)
        })?;
        if read == 0 || lines_read % lines == 0 {
            heap.checkpoint()?;
        }
        done(place);
        if read == 0 {
            break;
        }
    }
    Ok(())
}

/// Counts a few lines on simulated memory, and goes on from every image that a failure of power may leave.
#[cfg(feature = "simulator")]
fn power_failure() -> Result<(), Failure> {
    use spandrel::heap::Opened;
    use spandrel::heap::simulator::{Bounds, Memory, Point};
    use std::io::Cursor;

    const TEXT: &str = "the heap is the file\nthe file is the heap\nand the heap is there again\n";
    let count_all = |heap: &Heap<&Memory>, memory: &Memory| {
        count(heap, 0, &mut Cursor::new(TEXT), 1, |place| memory.note(place))
    };
    let memory = Memory::new(2 << 20);
    let heap = Heap::create(&memory, [1, 2], 0, 0)?;
    count_all(&heap, &memory)?;
    let expected = most_often(&heap)?;
    heap.close()?;
    let check = |image: &[u8], point: &Point<'_>| -> Result<(), String> {
        let after = Memory::from_image(image);
        let opened = match Heap::open(&after, 0, Some(TYPES)) {
            // There was no heap yet.
            Err(Error::NotAHeap | Error::Unfinished) if point.notes.is_empty() => return Ok(()),
            opened => opened,
        };
        let go_on = |(heap, _): (Heap<&Memory>, Opened)| {
            count_all(&heap, &after)?;
            most_often(&heap).map_err(Failure::from)
        };
        match opened.map_err(Failure::from).and_then(go_on) {
            Ok(all) if all == expected => Ok(()),
            Ok(all) => Err(format!("{all:?} instead of {expected:?}")),
            Err(why) => Err(why.to_string()),
        }
    };
    let seen = memory.journal().images(&Bounds { most: 64, ..Bounds::default() }, check);
    let seen = seen.map_err(|found| found.to_string())?;
    println!(
        "{} moments, {} images: from each of them the same {} words were counted",
        seen.points,
        seen.images,
        expected.iter().map(|(times, _)| times).sum::<u64>()
    );
    Ok(())
}

#[cfg(not(feature = "simulator"))]
fn power_failure() -> Result<(), Failure> {
    Err("--power-failure: this example was built without the simulator; add --features simulator"
        .into())
}
