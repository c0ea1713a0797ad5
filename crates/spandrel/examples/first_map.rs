//! A first map: how often each name has visited, in all runs of the program.
//!
//!     cargo run --example first_map -- visits.heap NAME…
//!
//! It is killed with `kill -9` while it waits, or ends with the Enter key: the visits are there the next time.

use spandrel::heap::collections::{HashMap, MapHead};
use spandrel::heap::{Error, Heap, Options, RootType};

/// A name, up to 24 bytes of it.
type Name = [u8; 24];

/// The types of the roots: recovery follows their pointers.
const TYPES: &[RootType<'_>] = &[RootType::of::<MapHead<Name, u64>>("visits")];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("first_map HEAP NAME…")?;
    let (heap, _) = Options::new().size(1 << 20).roots(TYPES).open_or_create(&path)?;
    for name in arguments {
        println!("{name} {}", visit(&heap, &name)?);
    }
    heap.checkpoint()?; // durable from here on, on every medium
    println!("durable");
    std::io::stdin().read_line(&mut String::new())?;
    heap.close()?;
    Ok(())
}

/// Counts a visit: how many there are now.
fn visit(heap: &Heap, name: &str) -> Result<u64, Error> {
    let mut visits = HashMap::<Name, u64>::open(heap, "visits")?;
    let mut key = Name::default();
    key.iter_mut().zip(name.bytes()).for_each(|(place, byte)| *place = byte);
    let count = visits.get(&key).unwrap_or(0) + 1;
    visits.insert(key, count)?; // all or nothing
    Ok(count)
}
