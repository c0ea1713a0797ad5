//! The same commands on the collections of a durable state, which note their own stores.

use serde_json::Value;
use spandrel::durable::collections::{HashMap, Open as _, SortedMap};
use spandrel::durable::{Arena, Durable};
use spandrel::heap::{Error, Medium as _};
use spandrel_commands::clock::{Limits, measure, mixed};
use spandrel_commands::{Args, Command, Copies, Tree, source};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::logged::{options, parts, told};

/// A state, and a command that changes it.
trait Collection: Sized + Send + Sync {
    /// As that of a command.
    const GROWTH: f64 = 0.0;

    /// An empty one, in the first batch of a state.
    fn open(arena: &Arc<Arena>, keys: u64) -> Result<Self, Error>;

    /// Adds keys.
    fn fill(&mut self, part: Range<u64>) -> Result<(), Error>;

    /// The command.
    fn run(&mut self, number: u64, from: &[u8]) -> Result<(), Error>;
}

struct Updates(HashMap<u64, [u64; 4]>, u64);

impl Collection for Updates {
    fn open(arena: &Arc<Arena>, keys: u64) -> Result<Self, Error> {
        Ok(Self(HashMap::open(arena, "table")?, keys))
    }

    fn fill(&mut self, mut part: Range<u64>) -> Result<(), Error> {
        part.try_for_each(|key| self.0.insert(key, [key; 4]).map(drop))
    }

    fn run(&mut self, number: u64, _: &[u8]) -> Result<(), Error> {
        let key = number % self.1;
        let changed = |value: Option<[u64; 4]>| {
            let mut value = value.unwrap_or_default();
            value[(key % 4) as usize] += 1;
            value
        };
        self.0.update(key, changed).map(drop)
    }
}

struct Insertions(SortedMap<u64, u64>);

impl Collection for Insertions {
    const GROWTH: f64 = Tree::GROWTH;

    fn open(arena: &Arc<Arena>, _: u64) -> Result<Self, Error> {
        Ok(Self(SortedMap::open(arena, "tree")?))
    }

    fn fill(&mut self, mut part: Range<u64>) -> Result<(), Error> {
        part.try_for_each(|number| self.0.insert(mixed(number), number).map(drop))
    }

    fn run(&mut self, number: u64, _: &[u8]) -> Result<(), Error> {
        self.0.insert(number, number).map(drop)
    }
}

/// An array: one object.
struct Array<const BYTES: usize> {
    arena: Arc<Arena>,
    /// Where it begins in the medium.
    at: usize,
    bytes: usize,
    keys: u64,
}

impl<const BYTES: usize> Collection for Array<BYTES> {
    fn open(arena: &Arc<Arena>, keys: u64) -> Result<Self, Error> {
        let bytes = Copies::<BYTES>::room(keys);
        let at = arena.alloc(bytes)?.as_ptr() as usize - arena.base().as_ptr() as usize;
        Ok(Self { arena: Arc::clone(arena), at, bytes, keys })
    }

    fn fill(&mut self, part: Range<u64>) -> Result<(), Error> {
        let place =
            |key: u64| (self.bytes as u128 * u128::from(key) / u128::from(self.keys)) as usize;
        let (from, to) = (place(part.start), place(part.end));
        // SAFETY: as in `run`.
        unsafe { self.arena.medium().store(self.at + from, &vec![1; to - from]) };
        Ok(())
    }

    fn run(&mut self, number: u64, from: &[u8]) -> Result<(), Error> {
        let (place, from) = Copies::<BYTES>::of(number, self.bytes, from);
        // SAFETY: within the object, which only the batch's thread uses.
        unsafe { self.arena.medium().store(self.at + place, from) };
        Ok(())
    }
}

struct Empty;

impl Collection for Empty {
    fn open(_: &Arc<Arena>, _: u64) -> Result<Self, Error> {
        Ok(Self)
    }

    fn fill(&mut self, _: Range<u64>) -> Result<(), Error> {
        Ok(())
    }

    fn run(&mut self, number: u64, _: &[u8]) -> Result<(), Error> {
        std::hint::black_box(number);
        Ok(())
    }
}

/// Measures it.
///
/// # Errors
/// There is no such command; those of the state.
pub fn run(args: &Args) -> Result<Value, String> {
    match args.command.as_str() {
        "table" => timed::<Updates>(args),
        "tree" => timed::<Insertions>(args),
        "copy-4k" => timed::<Array<4096>>(args),
        "copy-100k" => timed::<Array<100_000>>(args),
        "nothing" => timed::<Empty>(args),
        _ => Err(args.unknown(&["native", "translated", "pages"])),
    }
}

fn timed<C: Collection>(args: &Args) -> Result<Value, String> {
    let place = Path::new(&args.directory).join("state");
    let db = Durable::open(place, options(args.keys), |arena| C::open(arena, args.keys));
    let db = db.map_err(|why| why.to_string())?;
    let settled = |result: Result<Result<(), Error>, spandrel::durable::Error>| {
        result.map_err(|why| why.to_string())?.map_err(|why| why.to_string())
    };
    for part in parts(args.keys) {
        settled(db.write(|all| all.fill(part.clone())))?;
    }
    let (from, mut client, before) = (source(), db.client(), db.figures());
    let times = measure(Limits::of(args.millis, args.keys, C::GROWTH), |numbers| {
        settled(client.write(|all| numbers.iter().try_for_each(|number| all.run(*number, &from))))
    })?;
    let (mut told, after) = (told(&times), db.figures());
    told["logged_bytes"] = (after.bytes - before.bytes).into();
    drop(client);
    db.close().map_err(|why| why.to_string())?;
    Ok(told)
}
