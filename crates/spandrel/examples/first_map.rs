//! A first map: how often each name has visited, in all runs of the program.
//!
//!     cargo run -p spandrel --example first_map -- visits.heap NAME…
//!
//! It is killed with `kill -9` while it waits, or ends with the Enter key: the visits are there the next time.

use spandrel::heap::collections::{HashMap, MapHead, Str};
use spandrel::heap::{Options, RootType};

/// A name of up to 40 bytes.
type Name = Str<40>;

/// The types of the roots: recovery follows their pointers.
const TYPES: &[RootType<'_>] = &[RootType::of::<MapHead<Name, u64>>("visits")];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("first_map HEAP NAME…")?;
    let (heap, _) = Options::new().size(1 << 20).roots(TYPES).open_or_create(&path)?;
    let mut visits = HashMap::<Name, u64>::open(&heap, "visits")?;
    for name in arguments {
        let count = visits.update(Name::new(&name)?, |count| count.unwrap_or(0) + 1)?; // all or nothing
        println!("{name} {count}");
    }
    heap.checkpoint()?; // durable from here on, on every medium
    println!("durable");
    std::io::stdin().read_line(&mut String::new())?;
    drop(visits); // a handle borrows the heap
    heap.close()?;
    Ok(())
}
