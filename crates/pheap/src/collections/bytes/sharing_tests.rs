//! What other threads read while a transaction that has changed the map is rolled back.

use std::prelude::v1::*;
use std::sync::RwLock;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use spandrel_pmem::simulator::Memory;

use super::*;
use crate::collections::tests::{BYTES, UUID};

const ROUNDS: usize = 30;

fn key(number: usize) -> Vec<u8> {
    format!("{number:016}").into_bytes()
}

#[test]
fn readers_of_other_threads_see_whole_values_beside_rollbacks() {
    let memory = Memory::new(BYTES);
    let heap = Heap::create(&memory, UUID, 0, 0).unwrap();
    let map = RwLock::new(SortedBytes::open(&heap, "b").unwrap());
    for number in 0..200 {
        map.write().unwrap().insert(&key(number), &[b'o'; 40]).unwrap();
    }
    let (round, copied) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while round.load(SeqCst) < ROUNDS {
                let map = map.read().unwrap();
                let mut lent = Vec::new();
                for (key, value) in map.iter() {
                    assert!(value == [b'o'; 40] || value == [b'n'; 55], "{key:?}: {value:?}");
                    lent.push((key, value, value.to_vec()));
                    copied.fetch_add(usize::from(value.len() == 55), SeqCst);
                }
                assert!(lent.len() >= 100 && lent.windows(2).all(|pair| pair[0].0 < pair[1].0));
                thread::sleep(Duration::from_millis(1));
                // Also after the rollback, when others have what the transaction had allocated.
                assert!(lent.iter().all(|(_, value, was)| value == was));
            }
        });
        let begin = Instant::now();
        // Until a reader has met a transaction, too.
        while round.load(SeqCst) < ROUNDS {
            let outcome = heap.transaction(|| {
                let mut map = map.write().unwrap();
                for number in 0..100 {
                    map.insert(&key(number * 2), &[b'n'; 55])?;
                    map.insert(&[&key(number)[..], b"+"].concat(), &[b'n'; 55])?;
                }
                drop(map);
                thread::sleep(Duration::from_millis(2));
                Err::<(), _>(Error::Full)
            });
            assert_eq!(outcome, Err(Error::Full));
            let others: Vec<_> = (0..100).map(|_| heap.alloc(80).unwrap()).collect();
            for object in others {
                // SAFETY: the object has 80 bytes, and is this test's.
                unsafe {
                    object.as_ptr().write_bytes(0xee, 80);
                    heap.free(object).unwrap();
                }
            }
            let is_enough = copied.load(SeqCst) > 0 || begin.elapsed() > Duration::from_secs(20);
            round.fetch_add(usize::from(is_enough), SeqCst);
        }
        reader.join().unwrap();
    });
    assert!(copied.into_inner() > 0, "a reader has met a transaction");
    let map = map.into_inner().unwrap();
    assert!(map.iter().map(|(_, value)| value).eq([[b'o'; 40]; 200].iter()));
}
