//! Loads on key-value stores whose puts are durable when they return.
//!
//! A program that has a store gives it to [`run`], with the words of its command line, and prints what that returns. Two programs do: the worker of the
//! benchmarks, and one among the peers for stores that are Rust packages.
//!
//! Rules that keep the numbers honest:
//! - each store has the same keys and values in the same order: they are drawn before the clock starts;
//! - a put is durable when it returns, by whatever the store calls that;
//! - what is read is checked: the first eight bytes of a value are its key's number.

mod batches;
mod job;
mod keys;
mod load;
mod memory;
mod reopen;

pub use keys::{KEY_BYTES, Key, key};
pub use memory::InMemory;

use job::{Args, Job};
use serde_json::{Map, Value};
use std::path::Path;

/// What a run tells.
pub type Report = Map<String, Value>;

/// A key-value store, sorted by key.
pub trait Store: Sync {
    /// What one thread uses it with.
    ///
    /// # Errors
    /// Why the store has no place for another thread.
    fn session(&self) -> Result<Box<dyn Session + '_>, String>;

    /// Adds what the store counts.
    fn record(&self, _: &mut Report) {}

    /// Ends the store in good order.
    ///
    /// # Errors
    /// Why it could not be ended.
    fn close(self: Box<Self>) -> Result<(), String> {
        Ok(())
    }
}

/// A thread's use of a store.
pub trait Session {
    /// Sets the value of a key, durable on return.
    ///
    /// # Errors
    /// The store's, in words.
    fn put(&mut self, key: &Key, value: &[u8]) -> Result<(), String>;

    /// Sets the values of many keys, durable on return, in the fastest way that the store has.
    ///
    /// # Errors
    /// The store's, in words.
    fn load(&mut self, records: &[(Key, Vec<u8>)]) -> Result<(), String>;

    /// Shows the value of a key; false: there is none.
    ///
    /// # Errors
    /// The store's, in words.
    fn get(&mut self, key: &Key, see: &mut dyn FnMut(&[u8])) -> Result<bool, String>;

    /// Shows all pairs by rising keys, or by falling ones.
    ///
    /// # Errors
    /// The store's, in words.
    fn scan(&mut self, falling: bool, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), String>;

    /// Shows `most` pairs at most, by rising keys, from a key on.
    ///
    /// # Errors
    /// The store's, in words.
    fn range(
        &mut self,
        from: &Key,
        most: usize,
        see: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), String>;

    /// Removes keys that are there, durable on return, in the fastest way that the store has.
    ///
    /// # Errors
    /// The store's, in words.
    fn remove(&mut self, keys: &[Key]) -> Result<(), String>;
}

/// An open store, or why there is none.
pub type Opened = Result<Box<dyn Store>, String>;

/// Opens a store in a directory, with room for this number of bytes of keys and values.
pub type Open<'o> = &'o dyn Fn(&Path, u64) -> Opened;

/// Runs a job, as the words `--name value` choose it, on a store.
///
/// # Errors
/// What is wrong with the words or with the store.
pub fn run(words: &[String], open: Open<'_>) -> Result<Report, String> {
    let args = Args::parse(words)?;
    let directory = Path::new(&args.directory);
    match args.job {
        Job::Crash => reopen::crash(&args, open(directory, args.bytes())?),
        Job::Reopen => reopen::reopen(&args, &|| open(directory, args.bytes())),
        _ => load::run(&args, open(directory, args.bytes())?),
    }
}
