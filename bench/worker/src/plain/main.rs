//! `spandrel-bench-plain store plain --job …` and `spandrel-bench-plain capture --command KIND --way WAY …`: measurements of plain states, in one fresh process each.
//!
//! A program of its own, for three reasons. Plain states need an allocator of theirs to be the program's: in `spandrel-bench-worker`, which is measured with whatever allocator is
//! preloaded, it would serve all that Rust's suites allocate. They need fixed addresses, for which the program starts again. And stores that lie in an allocator's
//! slices are no neighbours of those that the other program measures.

mod explicit;
mod logged;
mod reads;
mod store;

use serde_json::Value;
use spandrel::durable::{Allocator, fix_addresses};
use spandrel_stores::Open;
use std::process::ExitCode;

#[global_allocator]
static ALLOC: Allocator = Allocator::new();

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match fix_addresses().map_err(|why| why.to_string()).and_then(|()| run(&words)) {
        Ok(told) => {
            println!("{told}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("spandrel-bench-plain: {why}");
            ExitCode::from(2)
        }
    }
}

fn run(words: &[String]) -> Result<Value, String> {
    match words {
        [suite, rest @ ..] if suite == "capture" => logged::run(rest),
        [suite, name, rest @ ..] if suite == "store" && name == "plain" => {
            let open: Open<'_> =
                &|directory, bytes| Ok(Box::new(store::OnPlain::open(directory, bytes)?));
            spandrel_stores::run(rest, open).map(Value::Object)
        }
        _ => Err("there are: store plain, capture".into()),
    }
}
