//! All that translated commands change is noted: what they change is compared with a copy.
//!
//! `SPANDREL_SOAK` has ten million blocks be changed.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet, LinkedList, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use spandrel::durable::{Options, Plain, Stores};

trait Shape: Send + Sync {
    fn grow(&mut self, by: u64) -> u64;
}

struct Square(u64);
struct Row(Vec<u64>);

impl Shape for Square {
    fn grow(&mut self, by: u64) -> u64 {
        self.0 = self.0.wrapping_add(by);
        self.0.wrapping_mul(self.0)
    }
}

impl Shape for Row {
    fn grow(&mut self, by: u64) -> u64 {
        self.0.push(by);
        self.0.iter().fold(0, |sum, number| sum ^ number)
    }
}

enum Leaf {
    Empty,
    Text(String),
    Pair(Box<(Leaf, Leaf)>),
}

/// Memory that the allocator clears.
fn zeroed(len: usize) -> Option<Box<[Line]>> {
    let layout = std::alloc::Layout::array::<Line>(len).ok().filter(|layout| layout.size() > 0)?;
    // SAFETY: of that layout; all zero is a line.
    unsafe {
        let at = std::alloc::alloc_zeroed(layout).cast::<Line>();
        assert!(!at.is_null());
        Some(Box::from_raw(std::ptr::slice_from_raw_parts_mut(at, len)))
    }
}

#[derive(Default)]
struct All {
    names: HashMap<String, Vec<u64>>,
    seen: HashSet<u32>,
    order: BTreeMap<u64, String>,
    set: BTreeSet<(u8, u64)>,
    heap: BinaryHeap<u64>,
    list: LinkedList<Box<str>>,
    queue: VecDeque<Option<Box<[u16]>>>,
    bytes: Vec<u8>,
    text: String,
    shapes: Vec<Box<dyn Shape>>,
    leaf: Option<Leaf>,
    shared: Vec<Arc<AtomicU64>>,
    numbers: Vec<f64>,
    lines: Vec<Line>,
    fields: Vec<Box<[Line]>>,
}

/// Of a line of the cache.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Line([u64; 8]);

impl All {
    /// One of many changes.
    fn change(&mut self, kind: u8, number: u64) {
        let small = (number % 97) as usize;
        match kind % 22 {
            0 => self.names.entry(format!("name {small}")).or_default().push(number),
            1 => drop(self.names.remove(&format!("name {small}"))),
            2 => _ = self.seen.insert(number as u32 % 5000),
            3 => drop(self.order.insert(number % 3000, format!("{number:>small$}"))),
            4 => drop(self.order.remove(&(number % 3000))),
            5 => _ = self.set.insert((kind, number % 1000)),
            6 => self.set.retain(|(_, number)| !number.is_multiple_of(small as u64 + 2)),
            7 => self.heap.push(number),
            8 => _ = self.heap.pop(),
            9 => self.list.push_front(format!("{number:x}").into()),
            10 => drop(self.list.pop_back()),
            11 => self.queue.push_back(Some(vec![number as u16; small * 7].into())),
            12 => drop(self.queue.pop_front()),
            13 => {
                let len = self.bytes.len();
                self.bytes.extend((0..small * 50).map(|at| (at as u64 ^ number) as u8));
                self.bytes.truncate(20_000);
                self.bytes.copy_within(len / 2..len, 0);
                let middle = self.bytes.len() / 3;
                self.bytes.rotate_left(middle);
                self.bytes[middle..].fill(number as u8);
            }
            14 => {
                self.text += &number.to_string();
                self.text = self.text.replace(&small.to_string(), "-");
                self.text.truncate(2000);
                self.text.make_ascii_uppercase();
            }
            15 => match small % 2 {
                0 => self.shapes.push(Box::new(Square(number))),
                _ => self.shapes.push(Box::new(Row(vec![number]))),
            },
            16 => self.shapes.iter_mut().for_each(|shape| assert!(shape.grow(number) < u64::MAX)),
            17 => {
                let old = self.leaf.take().unwrap_or(Leaf::Empty);
                self.leaf = match old {
                    Leaf::Text(text) if text.len() > 1000 => None,
                    Leaf::Pair(pair) if number.is_multiple_of(5) => Some(pair.0),
                    old => Some(Leaf::Pair((old, Leaf::Text(number.to_string())).into())),
                };
            }
            19 => {
                self.lines.push(Line([number; 8]));
                self.lines.truncate(200);
                self.lines.shrink_to_fit();
            }
            20 => {
                self.fields.push(vec![Line::default(); small].into());
                self.fields.extend(zeroed(small % 7));
                self.fields.truncate(30 - small % 20);
            }
            18 => {
                self.shared.push(Arc::default());
                self.shared.extend(self.shared.get(small).cloned());
                for count in &self.shared {
                    count.fetch_add(number, Relaxed);
                }
                self.shared.truncate(50);
            }
            _ => {
                self.numbers.extend((0..small).map(|at| (number as f64 / at as f64).sin()));
                self.numbers.sort_by(f64::total_cmp);
                self.numbers.dedup();
                self.numbers.truncate(1000);
            }
        }
        self.shapes.truncate(60);
    }

    /// Of what it has.
    fn number(&self) -> u64 {
        let mut all: Vec<u64> = self.names.values().flatten().copied().collect();
        all.sort_unstable();
        let leaf = |leaf: &Leaf| match leaf {
            Leaf::Empty => 0,
            Leaf::Text(text) => text.len() as u64,
            Leaf::Pair(_) => 1,
        };
        all.extend(self.order.keys());
        all.extend(self.set.iter().map(|(_, number)| number));
        all.extend(self.heap.iter().max());
        all.extend(self.list.iter().map(|text| text.len() as u64));
        all.extend(self.queue.iter().flatten().map(|part| part.len() as u64));
        all.extend(self.bytes.iter().chain(self.text.as_bytes()).map(|byte| u64::from(*byte)));
        all.extend(self.leaf.iter().map(leaf));
        all.extend(self.shared.iter().map(|count| count.load(Relaxed)));
        all.extend(self.numbers.iter().map(|number| number.to_bits()));
        all.extend(self.lines.iter().chain(self.fields.iter().flatten()).flat_map(|line| line.0));
        all.push(self.seen.len() as u64);
        all.iter().fold(7, |sum, number| sum.wrapping_mul(31).wrapping_add(*number))
    }
}

/// Also commands that panic, which are undone; and a model outside of the state has the same.
pub fn what_commands_change_is_noted() {
    let least = if std::env::var_os("SPANDREL_SOAK").is_some() { 10_000_000 } else { 200_000 };
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("state");
    let open =
        || Plain::open(&path, Options::new().stores(Stores::Verified), All::default).unwrap();
    let (mut model, mut blocks) = (All::default(), 0);
    let mut random = fastrand::Rng::with_seed(7);
    while blocks < least {
        let db = open();
        for _ in 0..400 {
            let (count, seed) = (random.u64(1..40), random.u64(..));
            let change = |all: &mut All| {
                let mut random = fastrand::Rng::with_seed(seed);
                (0..count).for_each(|_| all.change(random.u8(..), random.u64(..)));
            };
            if seed.is_multiple_of(17) {
                let undone = catch_unwind(AssertUnwindSafe(|| {
                    db.write(|all| {
                        change(all);
                        assert!(all.bytes.len() > 1 << 30, "on purpose");
                    })
                }));
                assert!(undone.is_err());
            } else {
                db.write(change).unwrap();
                change(&mut model);
            }
        }
        assert_eq!(db.read(All::number), model.number());
        let verdict = db.verdict().unwrap();
        assert_eq!(verdict.missed, 0, "{verdict:?}");
        blocks += verdict.changed / 32;
        db.close().unwrap();
    }
    assert_eq!(open().read(All::number), model.number());
    println!("{blocks} blocks changed, none missed");
}
