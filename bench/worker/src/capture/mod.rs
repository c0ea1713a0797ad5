//! What capturing stores costs without a log: `spandrel-bench-worker capture --command KIND --way WAY …`.
//!
//! A batch runs between the begin of a capture and its end, which names what was stored; nothing becomes of that. The state lies in the C library's heap: that of
//! the hash table and of copies in a part of its own, that of the tree and of texts anywhere in what `brk` has given.

mod heap;
mod hooks;
mod ways;

use serde_json::{Value, json};
use spandrel_commands::clock::{BATCHES, Limits, Times, measure};
use spandrel_commands::{Args, Command, Unnoted, Visit, batch, source, visit};
use std::ops::Range;

/// The ways.
const WAYS: [&str; 6] = ["native", "explicit", "translated", "pages", "native-c", "hooks"];

/// Bytes of the heap for each key that is added, and for the rest: enough for a B-tree that grows by a half.
const ROOM_OF_KEY: usize = 32;
const ROOM: usize = 2 << 20;

/// Measures what the words say, and returns what it tells as JSON.
///
/// # Errors
/// What is wrong with the words or the system.
pub fn run(words: &[String]) -> Result<Value, String> {
    let args = Args::parse(words)?;
    match args.way.as_str() {
        "native-c" | "hooks" => hooks::run(&args),
        way if WAYS.contains(&way) => visit(&args.command, Run(&args))?,
        _ => Err(args.unknown(&WAYS)),
    }
}

/// What was measured, as JSON.
fn told(times: &Times) -> Value {
    let mut told = json!({"commands": times.commands, "batches": times.batches});
    for (size, nanoseconds) in BATCHES.into_iter().zip(times.nanoseconds) {
        told[format!("ns_{size}")] = nanoseconds.into();
    }
    told
}

struct Run<'a>(&'a Args);

impl Visit for Run<'_> {
    type Out = Result<Value, String>;

    fn visit<C: Command + Send + Sync + 'static>(self) -> Self::Out {
        let Self(args) = self;
        let mut command = C::new(args.keys);
        command.fill(0..args.keys);
        let from = source();
        let limits = Limits::of(args.millis, args.keys, C::GROWTH);
        let window = window(command.span(), args.keys)?;
        Ok(match args.way.as_str() {
            "native" => told(&measure(limits, |numbers| {
                batch(&mut command, numbers, &from, &mut Unnoted);
                Ok(())
            })?),
            "explicit" => ways::explicit(&mut command, window, limits, &from)?,
            "translated" => ways::translated(&mut command, window, limits, &from)?,
            _ => ways::pages(&mut command, window, limits, &from)?,
        })
    }
}

/// The whole pages that a state lies in, and will. They are mapped.
fn window(span: Option<Range<usize>>, keys: u64) -> Result<Range<usize>, String> {
    const PAGE: usize = spandrel_pages::PAGE_BYTES;
    let span = match span {
        Some(span) => span,
        None => heap::with_room(keys as usize * ROOM_OF_KEY + ROOM)?,
    };
    Ok(span.start & !(PAGE - 1)..span.end.next_multiple_of(PAGE))
}
