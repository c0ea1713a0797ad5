//! `spandrel-bench-worker SUITE [--option value]…`: one measurement in one
//! fresh process. `spandrel-bench-worker tree …` measures another program (see [`tree`]), `spandrel-bench-worker store …` a durable store (see
//! [`stores`]), `spandrel-bench-worker capture …` what capturing stores costs (see [`capture`]).
//!
//! The program calls `malloc`, `realloc`, `calloc` and `free` of the C library
//! by their plain names, so whatever `LD_PRELOAD` names is what is measured; the
//! Rust suites use the default `System` allocator, which calls the same names.
//! It measures itself and prints one JSON object:
//!
//! ```json
//! {"suite":"realloc","args":{"to":"1MiB"},"cpu_ns":1,"wall_ns":1,"minor_faults":1,
//!  "rss":1,"peak_rss":1, …what the suite adds…}
//! ```
//!
//! Rules that keep the numbers honest:
//! - nothing but the measured operations allocates between start and stop;
//! - the peak is `VmHWM`, not `ru_maxrss`, because the latter survives `exec` and
//!   so contains the size of whoever started us;
//! - CPU time is that of the whole process, so work that an allocator hands to a
//!   thread of its own is charged to it;
//! - contents are checked: an allocator that loses bytes is not fast but wrong.

mod args;
mod buffer;
mod capture;
mod heap;
mod library;
mod meter;
mod pages;
mod random;
mod size;
mod stores;
mod suites;
mod table;
mod tree;

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some((suite, rest)) = words.split_first() else {
        return refused(&format!("which suite? One of: {}, tree, store, capture", suites::names()));
    };
    if suite == "tree" {
        return match tree::run(rest) {
            Ok(()) => ExitCode::SUCCESS,
            Err(message) => refused(&message),
        };
    }
    let result = match suite.as_str() {
        "store" => stores::run(rest),
        "capture" => capture::run(rest),
        _ => suites::run(suite, rest),
    };
    match result {
        Ok(result) => {
            println!("{result}");
            ExitCode::SUCCESS
        }
        Err(message) => refused(&message),
    }
}

fn refused(message: &str) -> ExitCode {
    eprintln!("spandrel-bench-worker: {message}");
    ExitCode::from(2)
}
