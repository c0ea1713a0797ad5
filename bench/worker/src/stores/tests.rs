//! Every store does the same. One whose library is not installed is left out.

use super::{NAMES, open};
use crate::random::Random;
use spandrel_stores::{Key, Opened, Session, key};
use std::collections::BTreeMap;
use std::path::Path;

type Model = BTreeMap<Key, Vec<u8>>;

/// Keys that there are at most, and those of a part.
const KEYS: usize = 1500;
const PART: usize = 400;
const ROUNDS: usize = 60;
/// Of values.
const LENGTHS: [usize; 4] = [1, 100, 1000, 10_000];
/// Room in a store.
const BYTES: u64 = 32 << 20;

/// Opens a store; nothing where its library is missing.
fn opened(name: &str, directory: &Path) -> Option<Box<dyn spandrel_stores::Store>> {
    let opened: Opened = open(name, directory, BYTES);
    match opened {
        Ok(store) => Some(store),
        Err(why) if why.contains("cannot open shared object file") => {
            eprintln!("{name} is left out: {why}");
            None
        }
        Err(why) => panic!("{name}: {why}"),
    }
}

fn value(random: &mut Random) -> Vec<u8> {
    vec![random.next() as u8; LENGTHS[random.below(LENGTHS.len())]]
}

/// Changes a store and a model of it: some keys anywhere, and all of a part, which are set in any order or removed.
fn change(round: usize, random: &mut Random, session: &mut dyn Session, model: &mut Model) {
    for _ in 0..5 {
        let (key, value) = (key(random.below(KEYS) as u64), value(random));
        session.put(&key, &value).unwrap();
        model.insert(key, value);
    }
    let (first, len) = match round % 10 {
        9 => (0, KEYS),
        _ => (random.below(KEYS), random.below(PART)),
    };
    let part = (first..(first + len).min(KEYS)).map(|number| key(number as u64));
    if round.is_multiple_of(2) {
        let mut records: Vec<_> = part.map(|key| (random.next(), (key, value(random)))).collect();
        records.sort_unstable();
        let records: Vec<_> = records.into_iter().map(|(_, record)| record).collect();
        session.load(&records).unwrap();
        model.extend(records);
    } else {
        let gone: Vec<Key> = part.filter(|key| model.remove(key).is_some()).collect();
        session.remove(&gone).unwrap();
    }
}

/// Holds a store against the model.
fn compare(name: &str, random: &mut Random, session: &mut dyn Session, model: &Model) {
    for falling in [false, true] {
        let mut all = Vec::new();
        session.scan(falling, &mut |key, value| all.push((key.to_vec(), value.to_vec()))).unwrap();
        if falling {
            all.reverse();
        }
        let expected = model.iter().map(|(key, value)| (key.to_vec(), value.clone()));
        assert!(all.into_iter().eq(expected), "{name}, falling: {falling}");
    }
    for _ in 0..50 {
        let from = key(random.below(KEYS + 10) as u64);
        let mut value = None;
        let found = session.get(&from, &mut |bytes| value = Some(bytes.to_vec())).unwrap();
        assert_eq!(
            (found, value.as_ref()),
            (model.contains_key(&from), model.get(&from)),
            "{name}"
        );
        let (mut some, most) = (Vec::new(), random.below(30));
        session
            .range(&from, most, &mut |key, value| some.push((key.to_vec(), value.len())))
            .unwrap();
        let expected = model.range(from..).take(most);
        assert!(
            some.into_iter().eq(expected.map(|(key, value)| (key.to_vec(), value.len()))),
            "{name}"
        );
    }
}

#[test]
fn every_store_does_what_a_map_does() {
    for name in NAMES {
        let place = tempfile::tempdir().unwrap();
        let Some(mut store) = opened(name, place.path()) else { continue };
        let (mut random, mut model) = (Random::new(1), Model::new());
        for round in 0..ROUNDS {
            let mut session = store.session().unwrap();
            change(round, &mut random, &mut *session, &mut model);
            compare(name, &mut random, &mut *session, &model);
            drop(session);
            if round % 16 == 15 && name != "memory" {
                store.close().unwrap();
                store = open(name, place.path(), BYTES).unwrap();
            }
        }
        let all: Vec<Key> = model.keys().copied().collect();
        let mut session = store.session().unwrap();
        session.remove(&all).unwrap();
        compare(name, &mut random, &mut *session, &Model::new());
        drop(session);
        store.close().unwrap();
    }
}
