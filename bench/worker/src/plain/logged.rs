//! What capturing costs with a log: each batch is a write of a durable state.

use serde_json::{Value, json};
use spandrel::durable::{Options, Plain, Stores};
use spandrel_commands::clock::{BATCHES, Limits, Times, measure};
use spandrel_commands::{Args, Command, Unnoted, Visit, batch, source, visit};
use std::path::Path;

use crate::{explicit, reads};

/// The ways, for commands that write and for reads.
const WAYS: [&str; 4] = ["native", "explicit", "translated", "pages"];
/// Address space of a state: for each key, and for the rest.
const ROOM_OF_KEY: usize = 512;
const ROOM: usize = 1 << 30;
/// Keys that a write adds before the clock starts.
const FILLED_AT_ONCE: usize = 10_000;

/// Measures what the words say, and returns what it tells as JSON.
///
/// # Errors
/// What is wrong with the words or the state.
pub fn run(words: &[String]) -> Result<Value, String> {
    let args = Args::parse(words)?;
    if args.directory.is_empty() && args.way != "native" {
        return Err("--directory: where the state is to lie".into());
    }
    match args.way.as_str() {
        _ if args.command == "read" => reads::run(&args),
        "explicit" => explicit::run(&args),
        way if WAYS.contains(&way) => visit(&args.command, Run(&args))?,
        _ => Err(args.unknown(&WAYS)),
    }
}

/// What was measured, as JSON.
pub fn told(times: &Times) -> Value {
    let mut told = json!({"commands": times.commands, "batches": times.batches});
    for (size, nanoseconds) in BATCHES.into_iter().zip(times.nanoseconds) {
        told[format!("ns_{size}")] = nanoseconds.into();
    }
    told
}

/// Options of a state for that many keys.
pub fn options(keys: u64) -> Options {
    Options::new().limit(keys as usize * ROOM_OF_KEY + ROOM)
}

/// Parts of the keys that are added at once.
pub fn parts(keys: u64) -> impl Iterator<Item = std::ops::Range<u64>> {
    let parts = (0..keys).step_by(FILLED_AT_ONCE);
    parts.map(move |from| from..keys.min(from + FILLED_AT_ONCE as u64))
}

/// Opens a plain state whose stores are found that way, with all keys.
pub fn open<C: Command + Send + Sync + 'static>(
    args: &Args,
    stores: Stores,
) -> Result<Plain<C>, String> {
    let options = options(args.keys).stores(stores);
    let place = Path::new(&args.directory).join("state");
    let db = Plain::open(place, options, || C::new(args.keys));
    let db = db.map_err(|why| why.to_string())?;
    for part in parts(args.keys) {
        db.write(|command| command.fill(part.clone())).map_err(|why| why.to_string())?;
    }
    Ok(db)
}

struct Run<'a>(&'a Args);

impl Visit for Run<'_> {
    type Out = Result<Value, String>;

    fn visit<C: Command + Send + Sync + 'static>(self) -> Self::Out {
        let Self(args) = self;
        let (from, limits) = (source(), Limits::of(args.millis, args.keys, C::GROWTH));
        let stores = match args.way.as_str() {
            "native" => {
                let mut command = C::new(args.keys);
                command.fill(0..args.keys);
                return Ok(told(&measure(limits, |numbers| {
                    batch(&mut command, numbers, &from, &mut Unnoted);
                    Ok(())
                })?));
            }
            "translated" => Stores::Translated,
            _ => Stores::Pages,
        };
        let db = open::<C>(args, stores)?;
        let mut client = db.client();
        let before = db.figures();
        let times = measure(limits, |numbers| {
            let run = |command: &mut C| batch(command, numbers, &from, &mut Unnoted);
            client.write(run).map_err(|why| why.to_string())
        })?;
        let (mut told, after) = (told(&times), db.figures());
        told["logged_bytes"] = (after.bytes - before.bytes).into();
        drop(client);
        db.close().map_err(|why| why.to_string())?;
        Ok(told)
    }
}
