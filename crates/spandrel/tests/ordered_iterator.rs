//! The iterator of the ordered store beside that of a map: any steps, at any snapshot, while the store changes.
#![cfg(feature = "durable")]

#[path = "../examples/ordered_store/iterator.rs"]
mod iterator;
#[path = "../examples/ordered_store/store.rs"]
#[allow(dead_code, reason = "the example has more uses")]
mod store;

use std::collections::BTreeMap;

use proptest::prelude::*;
use spandrel::durable::Options;

use iterator::Iter;
use store::Store;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Debug)]
enum Step {
    /// The value's length.
    Put(Vec<u8>, usize),
    Delete(Vec<u8>),
    /// Another iterator, of the store as it is now.
    Begin,
    /// The same by a snapshot that the test has taken.
    BeginOf,
    Seek(Vec<u8>),
    First,
    Last,
    Next(usize),
    Prev(usize),
}

/// Few bytes, so that keys meet and are prefixes of each other.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(vec![0, b'a', b'b', 255]), 0..4)
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![0usize..40, Just(40_000)];
    prop_oneof![
        6 => (key(), len).prop_map(|(key, len)| Step::Put(key, len)),
        2 => key().prop_map(Step::Delete),
        1 => Just(Step::Begin),
        1 => Just(Step::BeginOf),
        2 => key().prop_map(Step::Seek),
        1 => Just(Step::First),
        1 => Just(Step::Last),
        4 => (1usize..80).prop_map(Step::Next),
        4 => (1usize..80).prop_map(Step::Prev),
    ]
}

/// An iterator, what its snapshot has, and the key that it is at.
struct Pair<'s> {
    iter: Iter<'s>,
    model: Model,
    at: Option<Vec<u8>>,
}

impl Pair<'_> {
    fn take(&mut self, step: &Step) {
        let first = |range: Option<(&Vec<u8>, &Vec<u8>)>| range.map(|(key, _)| key.clone());
        match step {
            Step::Seek(key) => {
                self.iter.seek(key).unwrap();
                self.at = first(self.model.range(key.clone()..).next());
            }
            Step::First => {
                self.iter.seek_to_first().unwrap();
                self.at = first(self.model.iter().next());
            }
            Step::Last => {
                self.iter.seek_to_last().unwrap();
                self.at = first(self.model.iter().next_back());
            }
            Step::Next(count) => {
                for _ in 0..*count {
                    self.iter.next().unwrap();
                    let behind = |at: &Vec<u8>| {
                        (std::ops::Bound::Excluded(at.clone()), std::ops::Bound::Unbounded)
                    };
                    self.at =
                        self.at.as_ref().and_then(|at| first(self.model.range(behind(at)).next()));
                    self.compare();
                }
            }
            Step::Prev(count) => {
                for _ in 0..*count {
                    self.iter.prev().unwrap();
                    self.at = self
                        .at
                        .as_ref()
                        .and_then(|at| first(self.model.range(..at.clone()).next_back()));
                    self.compare();
                }
            }
            _ => {}
        }
        self.compare();
    }

    fn compare(&self) {
        let at = self.at.as_deref();
        assert_eq!((self.iter.valid(), self.iter.key()), (at.is_some(), at));
        assert!(self.iter.value() == at.and_then(|at| self.model.get(at)).map(|value| &value[..]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 60 } else { 600 }))]

    #[test]
    fn any_steps_lead_where_those_of_a_map_lead(
        filled in prop::collection::btree_set(key(), 0..90),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let place = tempfile::tempdir_in("/dev/shm").unwrap();
        let store = Store::open(&place.path().join("store"), Options::new()).unwrap();
        let mut model = Model::new();
        for key in filled {
            store.put(&key, b"first").unwrap();
            model.insert(key, b"first".to_vec());
        }
        let begin = |model: &Model| Pair { iter: Iter::new(&store).unwrap(), model: model.clone(), at: None };
        let mut pair = begin(&model);
        for (number, step) in steps.iter().enumerate() {
            match step {
                Step::Put(key, len) => {
                    let value = vec![number as u8; *len];
                    store.put(key, &value).unwrap();
                    model.insert(key.clone(), value);
                }
                Step::Delete(key) => {
                    assert_eq!(store.delete(key).unwrap(), model.remove(key).is_some());
                }
                Step::Begin => pair = begin(&model),
                Step::BeginOf => {
                    let iter = Iter::of(&store, store.snapshot().unwrap());
                    pair = Pair { iter, model: model.clone(), at: None };
                }
                _ => {}
            }
            pair.take(step);
        }
    }
}

/// An iterator whose snapshot was released says so, and is at no key then.
#[test]
fn a_snapshot_that_is_gone_is_an_error() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let store = Store::open(&place.path().join("store"), Options::new()).unwrap();
    store.put(b"key", b"value").unwrap();
    let snapshot = store.snapshot().unwrap();
    let mut iter = Iter::of(&store, snapshot);
    iter.seek_to_first().unwrap();
    assert_eq!((iter.key(), iter.value()), (Some(&b"key"[..]), Some(&b"value"[..])));
    store.release(snapshot).unwrap();
    assert!(iter.seek(b"a").unwrap_err().to_string().contains("there is no snapshot"));
    assert!(!iter.valid() && iter.key().is_none());
    // One that has a snapshot of its own releases it.
    let own = Iter::new(&store).unwrap();
    assert!(store.get(Some(snapshot + 1), b"key").is_ok());
    drop(own);
    assert!(store.get(Some(snapshot + 1), b"key").is_err());
}
