//! Byte strings of any length in a durable state, beside a model.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use spandrel::durable::collections::{Open as _, SortedBytes};
use spandrel::durable::{Arena, Durable};

use super::{expect_panics, places, small};

struct State {
    map: SortedBytes,
    arena: Arc<Arena>,
}

/// Numbers that look drawn.
struct Drawn(u64);

impl Drawn {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % end
    }

    /// Of 0 to 40 bytes, or with a long beginning that many have.
    fn key(&mut self) -> Vec<u8> {
        let number = self.below(300);
        match number % 3 {
            0 => format!("{number:016}").into_bytes(),
            1 => vec![b'k'; number % 40],
            _ => [&[b'p'; 200][..], &number.to_le_bytes()].concat(),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        let len = if self.below(60) == 0 { 100_000 } else { self.below(300) };
        vec![self.below(256) as u8; len]
    }
}

#[test]
fn byte_strings_of_any_length_are_there_again() {
    expect_panics();
    for (_place, path) in places() {
        let (mut model, mut drawn) = (BTreeMap::<Vec<u8>, Vec<u8>>::new(), Drawn(7));
        for round in 0..4 {
            let db = Durable::open(&path, small(), |arena| {
                Ok(State { map: SortedBytes::open(arena, "map")?, arena: Arc::clone(arena) })
            })
            .unwrap();
            db.read(|state| {
                assert_eq!(state.map.len(), model.len());
                let all = model.iter().map(|(key, value)| (&key[..], &value[..]));
                assert!(state.map.iter().eq(all.clone()) && state.map.iter().rev().eq(all.rev()));
            });
            for _ in 0..500 {
                let (key, value, other) = (drawn.key(), drawn.value(), drawn.key());
                match drawn.below(12) {
                    0..3 => {
                        let was_there = db.write(|state| state.map.remove(&key)).unwrap().unwrap();
                        assert_eq!(was_there, model.remove(&key).is_some());
                    }
                    3 => {
                        let panicked = catch_unwind(AssertUnwindSafe(|| {
                            db.write(|state| {
                                state.map.insert(&key, &value).unwrap();
                                state.map.remove(&other).unwrap();
                                std::panic::panic_any("on purpose");
                            })
                        }));
                        assert!(panicked.is_err(), "the command is undone");
                    }
                    4 => {
                        let outcome = db.write(|State { map, arena }| {
                            arena.transaction(|| {
                                map.insert(&key, &value)?;
                                map.insert(&other, b"never")?;
                                assert_eq!(map.get(&other), Some(&b"never"[..]));
                                Err::<(), _>(spandrel::heap::Error::Full)
                            })
                        });
                        assert!(outcome.unwrap().is_err());
                    }
                    _ => {
                        let was_there =
                            db.write(|state| state.map.insert(&key, &value)).unwrap().unwrap();
                        assert_eq!(was_there, model.insert(key.clone(), value).is_some());
                    }
                }
                db.read(|state| {
                    assert_eq!(state.map.get(&key), model.get(&key).map(|value| &value[..]));
                    let from = (Bound::Excluded(&key[..]), Bound::Unbounded);
                    let next = model.range::<[u8], _>(from).next();
                    let found = state.map.range(from).next();
                    assert_eq!(found, next.map(|(key, value)| (&key[..], &value[..])));
                });
            }
            if round == 2 {
                db.write(|state| state.map.clear()).unwrap().unwrap();
                model.clear();
            }
            if round % 2 == 0 {
                db.close().unwrap();
            }
        }
    }
}

#[test]
fn a_state_of_many_pieces_is_read_whole() {
    let place = tempfile::tempdir().unwrap();
    let options = small().log_size(16 << 20);
    let open = || {
        Durable::open(place.path().join("large"), options, |arena| SortedBytes::open(arena, "map"))
    };
    let value = |number: u64| vec![number as u8 | 1; 100_000 + number as usize];
    let db = open().unwrap();
    for number in 0..400u64 {
        db.write(|map| map.insert(&number.to_be_bytes(), &value(number))).unwrap().unwrap();
    }
    db.close().unwrap();
    let db = open().unwrap();
    let is_there =
        |number: &u64| db.read(|map| map.get(&number.to_be_bytes()) == Some(&value(*number)));
    assert_eq!((0..400).filter(is_there).count(), 400);
}
