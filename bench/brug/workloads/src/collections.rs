//! Fig. 3 and 9: what is inserted into the standard library's collections, one by one, and then
//! dropped. Keys come in random order. Maps and sets that hash do so with a fixed seed: the order
//! of their requests must not depend on the run.

use crate::checksum::Checksum;
use crate::random::Random;
use std::collections::{
    BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet, LinkedList, VecDeque, hash_map::DefaultHasher,
};
use std::hash::BuildHasherDefault;
use std::hint::black_box;

/// SipHash as the standard library's maps have it, without the seed of the process.
type Hasher = BuildHasherDefault<DefaultHasher>;

const SEED: u64 = 1;

fn keys(count: usize) -> impl Iterator<Item = u64> {
    let mut random = Random::new(SEED);
    (0..count).map(move |_| random.next())
}

/// The sum of a collection whose order means something.
fn in_order(items: impl Iterator<Item = u64>) -> Result<u64, String> {
    let mut sum = Checksum::new();
    items.for_each(|item| sum.add(item));
    Ok(sum.value())
}

/// The sum of one whose order does not.
fn in_any_order(items: impl Iterator<Item = u64>) -> Result<u64, String> {
    Ok(items.fold(0, |sum: u64, item| sum.wrapping_add(item.rotate_left(17))))
}

/// `VecDeque`: two behind for each one before.
pub fn deque(count: usize) -> Result<u64, String> {
    let mut deque = VecDeque::new();
    for (at, key) in keys(count).enumerate() {
        match at % 3 {
            2 => deque.push_front(key),
            _ => deque.push_back(key),
        }
    }
    in_order(black_box(&deque).iter().copied())
}

/// `LinkedList`.
pub fn list(count: usize) -> Result<u64, String> {
    let mut list = LinkedList::new();
    keys(count).for_each(|key| list.push_back(key));
    in_order(black_box(&list).iter().copied())
}

/// `HashMap`.
pub fn hash_map(count: usize) -> Result<u64, String> {
    let mut map: HashMap<u64, u64, Hasher> = HashMap::default();
    for (at, key) in keys(count).enumerate() {
        map.insert(key, at as u64);
    }
    in_any_order(black_box(&map).iter().map(|(key, value)| key ^ value))
}

/// `BTreeMap`.
pub fn tree_map(count: usize) -> Result<u64, String> {
    let mut map = BTreeMap::new();
    for (at, key) in keys(count).enumerate() {
        map.insert(key, at as u64);
    }
    in_order(black_box(&map).iter().map(|(key, value)| key ^ value))
}

/// `HashSet`.
pub fn hash_set(count: usize) -> Result<u64, String> {
    let mut set: HashSet<u64, Hasher> = HashSet::default();
    set.extend(keys(count));
    in_any_order(black_box(&set).iter().copied())
}

/// `BTreeSet`.
pub fn tree_set(count: usize) -> Result<u64, String> {
    let mut set = BTreeSet::new();
    for key in keys(count) {
        set.insert(key);
    }
    in_order(black_box(&set).iter().copied())
}

/// `BinaryHeap`: the heap's order is the keys' alone.
pub fn heap(count: usize) -> Result<u64, String> {
    let mut heap = BinaryHeap::new();
    keys(count).for_each(|key| heap.push(key));
    in_order(black_box(&heap).iter().copied())
}
