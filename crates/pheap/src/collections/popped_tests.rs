//! What is removed beside the rollbacks of another thread is what was there.

use std::prelude::v1::*;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

use spandrel_pmem::simulator::Memory;

use super::tests::{BYTES, UUID};
use super::*;
use crate::{Error, Heap};

/// What transactions add, and take back.
const TAKEN_BACK: u64 = u64::MAX;
const ROUNDS: u64 = 3000;

#[test]
fn none_that_a_transaction_takes_back_is_popped_and_no_other_in_its_place() {
    let memory = Memory::new(BYTES);
    let heap = Heap::create(&memory, UUID, 0, 0).unwrap();
    let vector = Mutex::new(Vector::<u64>::open(&heap, "v").unwrap());
    let is_over = AtomicBool::new(false);
    let popped = thread::scope(|scope| {
        let popper = scope.spawn(|| {
            let mut popped = Vec::<u64>::new();
            while !is_over.load(SeqCst) {
                let mut vector = vector.lock().unwrap();
                let index = vector.len().saturating_sub(1);
                let removed = match popped.len() % 2 {
                    0 => vector.pop(),
                    _ => vector.remove(index).map(Some),
                };
                match removed {
                    Err(Error::InTransaction | Error::Size(_)) => {}
                    removed => popped.extend(removed.unwrap()),
                }
            }
            popped
        });
        for round in 0..ROUNDS {
            vector.lock().unwrap().push(round).unwrap();
            let outcome = heap.transaction(|| {
                vector.lock().unwrap().push(TAKEN_BACK)?;
                thread::yield_now();
                Err::<(), _>(Error::Full)
            });
            assert_eq!(outcome, Err(Error::Full));
        }
        is_over.store(true, SeqCst);
        popper.join().unwrap()
    });
    let mut all: Vec<u64> = vector.into_inner().unwrap().iter().chain(popped).collect();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..ROUNDS));
}
