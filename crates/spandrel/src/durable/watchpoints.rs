//! Which instructions store at an address, in whatever thread.

use std::fs;
use std::prelude::v1::*;

use spandrel_os::watchpoint::{MOST, Watchpoint};

/// Threads that are watched.
const MOST_THREADS: usize = 64;

/// Watched addresses. It belongs to the thread that runs a batch.
#[derive(Default)]
pub(super) struct Watchpoints {
    threads: Vec<i32>,
    addresses: Vec<usize>,
    all: Vec<Watchpoint>,
}

impl Watchpoints {
    /// Watches the first of these addresses, in all threads that there are now.
    pub fn watch(&mut self, addresses: &[usize]) {
        let addresses = addresses.get(..MOST).unwrap_or(addresses);
        let entries = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let threads: Vec<i32> = numbers.take(MOST_THREADS).collect();
        if threads == self.threads && addresses == self.addresses {
            return;
        }
        self.all.clear();
        for thread in &threads {
            self.all.extend(addresses.iter().filter_map(|at| Watchpoint::new(*thread, *at)));
        }
        (self.threads, self.addresses) = (threads, addresses.to_vec());
    }

    /// The addresses behind the instructions that have stored there since the last call, each once.
    pub fn take(&mut self) -> Vec<usize> {
        let mut all = Vec::new();
        self.all.iter().for_each(|watchpoint| watchpoint.each(&mut |at| all.push(at)));
        all.sort_unstable();
        all.dedup();
        all
    }
}
