//! Within one process: a state is closed and opened again.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use spandrel::durable::{Error, Options, Plain, Stores};

/// Whether this is the program `translated`, which has commands be translated; `plain` has pages be compared.
pub fn is_translated() -> bool {
    let program = std::env::current_exe().unwrap();
    let name = program.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("translated"))
}

/// How the tests open states.
pub fn options() -> Options {
    Options::new().stores(if is_translated() { Stores::Translated } else { Stores::Pages })
}

/// Of many kinds of the standard library's types.
#[derive(Default, Clone, PartialEq, Debug)]
pub struct Things {
    names: HashMap<String, Vec<u64>>,
    order: BTreeMap<u64, String>,
    queue: VecDeque<Option<Box<str>>>,
    whole: Vec<u8>,
}

#[derive(Clone, Debug)]
enum Step {
    Push(u8, u64),
    Forget(u8),
    Order(u64, String),
    Remove(u64),
    Queue(Option<String>),
    Dequeue,
    Extend(usize, u8),
    Truncate,
    Reopen,
}

impl Step {
    fn apply(&self, things: &mut Things) -> Option<String> {
        match self {
            Step::Push(name, number) => {
                things.names.entry(format!("name {name}")).or_default().push(*number);
            }
            Step::Forget(name) => {
                return things.names.remove(&format!("name {name}")).map(|all| format!("{all:?}"));
            }
            Step::Order(at, text) => return things.order.insert(*at, text.clone()),
            Step::Remove(at) => return things.order.remove(at),
            Step::Queue(text) => {
                things.queue.push_back(text.as_ref().map(|text| text.as_str().into()));
            }
            Step::Dequeue => return things.queue.pop_front().flatten().map(String::from),
            Step::Extend(bytes, with) => things.whole.resize(things.whole.len() + bytes, *with),
            Step::Truncate => {
                things.whole.truncate(things.whole.len() / 2);
                things.whole.shrink_to_fit();
            }
            Step::Reopen => {}
        }
        None
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u8..40, any::<u64>()).prop_map(|(name, number)| Step::Push(name, number)),
        1 => (0u8..40).prop_map(Step::Forget),
        6 => (0u64..200, ".{0,60}").prop_map(|(at, text)| Step::Order(at, text)),
        2 => (0u64..200).prop_map(Step::Remove),
        2 => proptest::option::of(".{0,200}").prop_map(Step::Queue),
        2 => Just(Step::Dequeue),
        1 => (0usize..20_000, any::<u8>()).prop_map(|(bytes, with)| Step::Extend(bytes, with)),
        1 => Just(Step::Truncate),
        1 => Just(Step::Reopen),
    ]
}

/// With a short log, which takes less time to make.
pub fn open<S: Send + Sync>(path: &Path, init: impl Fn() -> S) -> Plain<S> {
    Plain::open(path, options().log_size(1 << 20), init).unwrap()
}

pub fn ordinary_collections_are_durable() {
    behave_as_the_model("/tmp", 8);
    behave_as_the_model("/dev/shm", 8);
}

pub fn behave_as_the_model(place: &str, cases: u32) {
    let mut runner =
        TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let steps = proptest::collection::vec(step(), 1..150);
    let outcome = runner.run(&steps, |steps| {
        let directory = tempfile::tempdir_in(place).unwrap();
        let path = directory.path().join("state");
        let mut model = Things::default();
        let mut db = open(&path, Things::default);
        for step in &steps {
            if let Step::Reopen = step {
                db.close().unwrap();
                db = open(&path, Things::default);
            }
            let result = db.write(|things| step.apply(things)).unwrap();
            prop_assert_eq!(result, step.apply(&mut model));
        }
        prop_assert!(db.read(|things| *things == model));
        prop_assert_eq!(db.escaped(), None);
        drop(db);
        let db = open(&path, Things::default);
        prop_assert!(db.read(|things| *things == model));
        Ok(())
    });
    outcome.unwrap();
}

pub fn a_command_that_panics_is_undone() {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let path = directory.path().join("state");
    let db = open(&path, Things::default);
    for round in 0..20u64 {
        db.write(|things| Step::Order(round, format!("kept {round}")).apply(things)).unwrap();
        let before = db.read(Things::clone);
        let half = |things: &mut Things, how: u64| {
            // The state becomes longer, which is undone too.
            things.whole.extend(std::iter::repeat_n(1u8, 3 << 20));
            things.names.entry("half".repeat(round as usize + 1)).or_default().extend(0..1000);
            things.order.clear();
            match how % 3 {
                0 => panic!("round {round}"),
                1 => std::panic::panic_any(format!("any {round}")),
                _ => std::panic::panic_any(vec![round]),
            }
        };
        let run = || db.write(|things| half(things, round));
        let payload = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
        let text = payload.downcast_ref::<String>().cloned().unwrap_or_default();
        let wanted = [format!("round {round}"), format!("any {round}"), String::new()];
        assert_eq!(text, wanted[round as usize % 3]);
        assert!(db.read(|things| *things == before));
        // Where the undone command was, and fresh memory is now.
        if round % 5 == 4 {
            db.write(|things| things.whole = vec![round as u8; 2 << 20]).unwrap();
        }
    }
    drop(db);
    let db = open(&path, Things::default);
    assert_eq!(db.read(|things| (things.order.len(), things.names.len())), (20, 0));
    assert!(db.read(|things| things.whole == vec![19; 2 << 20]));
}

pub fn a_large_command_is_durable() {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let path = directory.path().join("state");
    let options = options().log_size(1 << 20);
    let db = Plain::open(&path, options, Vec::<u64>::new).unwrap();
    // Longer than the log, and the state grows meanwhile.
    db.write(|all| all.extend(0..1_000_000)).unwrap();
    db.write(|all| all.iter_mut().for_each(|number| *number += 1)).unwrap();
    db.write(|all| all.truncate(10)).unwrap();
    db.write(|all| all.extend(100..2_000_000)).unwrap();
    drop(db);
    let db = open(&path, Vec::<u64>::new);
    assert!(db.read(|all| all.iter().copied().eq((1..11).chain(100..2_000_000))));
}

pub fn what_leaves_a_command_is_freed_later() {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let path = directory.path().join("state");
    let db = open(&path, || Arc::new(vec![0u8; 1 << 20]));
    let mut longest = 0;
    for round in 0..200u8 {
        // The reader has the last owner of what the writer replaces.
        let kept = db.read(Arc::clone);
        db.write(|all| *all = Arc::new(vec![round; 1 << 20])).unwrap();
        assert_eq!(kept.first(), Some(&round.saturating_sub(1)));
        drop(kept);
        longest = longest.max(std::fs::metadata(path.join("state")).unwrap().len());
    }
    db.write(|_| ()).unwrap();
    assert!(longest < 16 << 20, "{longest} bytes for one mebibyte");
}

/// The allocator may want a thread for work beside the program, which no command starts. First of all in its process: before that there is one.
pub fn results_and_what_is_outside_may_be_long() {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let texts = |count: usize| (0..count).map(|number| format!("{number:0100}"));
    let db = open(&directory.path().join("state"), Vec::<String>::new);
    let outside =
        db.write(|_| spandrel::durable::outside(|| texts(30_000).collect::<Vec<_>>().len()));
    assert_eq!(outside, Ok(30_000));
    for _ in 0..3 {
        for _ in 0..20 {
            db.write(|all| all.extend(texts(1000))).unwrap();
        }
        let taken = db.write(std::mem::take).unwrap();
        assert_eq!(taken.len(), 20_000);
        assert!(taken.iter().zip(texts(1000)).all(|(is, was)| *is == was));
    }
    db.close().unwrap();
}

pub fn objects_of_the_program_stay_outside() {
    static SEEN: AtomicUsize = AtomicUsize::new(0);
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let path = directory.path().join("state");
    let db = open(&path, String::new);
    // A list of the program's own that a command makes longer.
    let own = std::sync::Mutex::new(vec![0u8; 16]);
    let result = db
        .write(|text| {
            own.lock().unwrap().resize(100_000, 7);
            text.push_str("in the state");
            SEEN.store(text.as_ptr() as usize, Relaxed);
            text.clone()
        })
        .unwrap();
    let window = 88usize << 40..104usize << 40;
    assert!(window.contains(&SEEN.load(Relaxed)));
    assert!(!window.contains(&(result.as_ptr() as usize)));
    let mut own = own.into_inner().unwrap();
    assert!(!window.contains(&(own.as_ptr() as usize)));
    drop(db);
    own.resize(200_000, 8);
    assert_eq!(result, "in the state");
}

pub fn clients_write_side_by_side() {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let path = directory.path().join("state");
    let db = open(&path, HashMap::<u64, Vec<String>>::new);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let db = &db;
            scope.spawn(move || {
                let mut client = db.client();
                for number in 0..300 {
                    let length = client.write(|all| {
                        let own = all.entry(thread).or_default();
                        own.push(format!("{thread} {number}"));
                        own.len()
                    });
                    assert_eq!(length.unwrap(), number + 1);
                    let last = client.read(|all| all[&thread].last().cloned());
                    assert_eq!(last, Some(format!("{thread} {number}")));
                    if number % 50 == 0 {
                        let panics = || {
                            client.write(|all| {
                                all.clear();
                                panic!("on purpose");
                            })
                        };
                        let _: Result<Result<(), Error>, _> =
                            catch_unwind(AssertUnwindSafe(panics));
                    }
                }
            });
        }
    });
    drop(db);
    let db = open(&path, HashMap::new);
    let whole = |all: &HashMap<u64, Vec<String>>| {
        (0..4).all(|thread| {
            all[&thread].iter().enumerate().all(|(n, text)| *text == format!("{thread} {n}"))
        }) && all.values().all(|own| own.len() == 300)
    };
    assert!(db.read(whole));
}

trait Shape: Send + Sync {
    fn area(&self) -> f64;
}

struct Square(f64);
struct Circle(f64);

impl Shape for Square {
    fn area(&self) -> f64 {
        self.0 * self.0
    }
}

impl Shape for Circle {
    fn area(&self) -> f64 {
        self.0 * self.0 * 3.0
    }
}

/// Shapes behind pointers to tables of functions, and a list of nodes.
#[derive(Default)]
struct Drawing {
    shapes: Vec<Box<dyn Shape>>,
    list: Option<Box<Node>>,
    empty: HashMap<u8, u8>,
    label: Option<&'static str>,
}

struct Node {
    number: u32,
    next: Option<Box<Node>>,
}

pub fn trait_objects_and_nodes_are_there_again() {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let path = directory.path().join("state");
    for round in 0..30u32 {
        let db = open(&path, Drawing::default);
        db.write(|drawing| {
            drawing.shapes.push(Box::new(Square(f64::from(round))));
            drawing.shapes.push(Box::new(Circle(1.0)));
            let next = drawing.list.take();
            drawing.list = Some(Box::new(Node { number: round, next }));
            drawing.label = Some("a text of the program");
        })
        .unwrap();
        let (area, numbers, label) = db.read(|drawing| {
            let area: f64 = drawing.shapes.iter().map(|shape| shape.area()).sum();
            let nodes = std::iter::successors(drawing.list.as_deref(), |node| node.next.as_deref());
            assert!(drawing.empty.is_empty());
            (area, nodes.map(|node| node.number).collect::<Vec<_>>(), drawing.label)
        });
        let squares: f64 = (0..=round).map(|n| f64::from(n * n)).sum();
        assert_eq!(area, squares + 3.0 * f64::from(round + 1));
        assert_eq!(numbers, (0..=round).rev().collect::<Vec<_>>());
        assert_eq!(label, Some("a text of the program"));
    }
}

pub fn a_copy_is_a_state() {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let (path, copy) = (directory.path().join("state"), directory.path().join("copy"));
    let db = open(&path, Vec::<String>::new);
    for number in 0..100 {
        db.write(|all| all.push(format!("number {number}"))).unwrap();
    }
    db.copy(&copy).unwrap();
    db.write(Vec::clear).unwrap();
    db.close().unwrap();
    let copy = open(&copy, Vec::<String>::new);
    assert_eq!(copy.read(|all| (all.len(), all.last().cloned())), (100, Some("number 99".into())));
}

/// The kernel stores to the state, and not the program.
pub fn what_system_calls_store_is_durable() {
    use std::io::Read as _;
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let (path, file) = (directory.path().join("state"), directory.path().join("file"));
    let contents: Vec<u8> = (0..300_000u64).map(|at| (at * at / 128) as u8).collect();
    std::fs::write(&file, &contents).unwrap();
    let db = open(&path, || vec![0u8; contents.len()]);
    // Its pages were written before, and are protected again.
    db.write(|all| all[0] = 1).unwrap();
    let read = |all: &mut Vec<u8>| std::fs::File::open(&file).unwrap().read_exact(all).is_ok();
    assert!(db.write(read).unwrap());
    // Not closed: the file has what the log had.
    let copy = directory.path().join("copy");
    db.copy(&copy).unwrap();
    drop(db);
    assert!(open(&path, Vec::<u8>::new).read(|all| *all == contents));
    assert!(open(&copy, Vec::<u8>::new).read(|all| *all == contents));
}

pub fn another_type_is_refused() {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let path = directory.path().join("state");
    let db = open(&path, Vec::<u32>::new);
    let second = Plain::open(&path, options(), Vec::<u32>::new).unwrap_err();
    assert_eq!(second.why, Error::Locked);
    db.write(|all| all.push(7)).unwrap();
    drop(db);
    let other = Plain::open(&path, options(), Vec::<i32>::new).unwrap_err();
    assert_eq!(other.why, Error::OtherType);
    let panics = catch_unwind(|| {
        Plain::open(directory.path().join("new"), options(), || -> u8 { panic!("no") })
    });
    assert!(panics.is_err());
    let new = open(&directory.path().join("new"), || 3u8);
    assert_eq!(new.read(|number| *number), 3);
    assert_eq!(open(&path, Vec::<u32>::new).read(Vec::clone), [7]);
}

/// A new state leaves the place of a closed one, which is opened again beside it. By chance alone they exclude each other once in 120 times.
pub fn a_state_is_opened_beside_newer_ones() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("state");
    drop(open(&path, || 0u64));
    for turn in 0..250u64 {
        let place = directory.path().join("new");
        let new = open(&place, || turn);
        let db = open(&path, || 0);
        db.write(|turns| *turns += 1).unwrap();
        assert_eq!((new.read(|turn| *turn), db.read(|turns| *turns)), (turn, turn + 1));
        drop((new, db));
        std::fs::remove_dir_all(&place).unwrap();
    }
}

pub fn a_pointer_out_of_the_state_is_reported() {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let path = directory.path().join("state");
    let db = open(&path, Vec::<Arc<str>>::new);
    db.write(|all| all.push("of the state".into())).unwrap();
    assert_eq!(db.escaped(), None);
    let own: Arc<str> = "the program's".repeat(100).into();
    db.write(|all| all.push(Arc::clone(&own))).unwrap();
    let escaped = db.escaped().unwrap();
    let (from, to) = (escaped.address, own.as_ptr() as usize);
    assert!(from <= to && to - from <= 16, "{escaped:?}, {to:#x}");
    db.write(|all| all.pop()).unwrap();
    assert_eq!(db.escaped(), Some(escaped));
}
