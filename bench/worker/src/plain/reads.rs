//! Reads of a hash table: of an ordinary map, of one behind a lock of readers and writers, and of a plain state whose commands are translated. Each read is a call.

use serde_json::Value;
use spandrel::durable::Stores;
use spandrel_commands::clock::{Limits, measure};
use spandrel_commands::{Args, Command, Table};
use std::hint::black_box;
use std::sync::{PoisonError, RwLock};

use crate::logged::{open, told};

/// Reads the values of all numbers.
#[inline(always)]
fn each(numbers: &[u64], mut read: impl FnMut(u64) -> u64) -> Result<(), String> {
    numbers.iter().for_each(|number| _ = black_box(read(*number)));
    Ok(())
}

/// Measures them.
///
/// # Errors
/// There is no such way; those of the state.
pub fn run(args: &Args) -> Result<Value, String> {
    let limits = Limits::of(args.millis, args.keys, 0.0);
    let filled = || {
        let mut table = Table::new(args.keys);
        table.fill(0..args.keys);
        table
    };
    let times = match args.way.as_str() {
        "native" => {
            let table = filled();
            measure(limits, |numbers| each(numbers, |number| black_box(&table).look(number)))
        }
        "locked" => {
            let table = RwLock::new(filled());
            let read = |number| table.read().unwrap_or_else(PoisonError::into_inner).look(number);
            measure(limits, |numbers| each(numbers, read))
        }
        "translated" => {
            let db = open::<Table>(args, Stores::Translated)?;
            let mut client = db.client();
            let mut read = |number| client.read(|table| table.look(number));
            let times = measure(limits, |numbers| each(numbers, &mut read));
            drop(client);
            db.close().map_err(|why| why.to_string())?;
            times
        }
        _ => return Err(args.unknown(&["native", "locked", "translated"])),
    };
    Ok(told(&times?))
}
