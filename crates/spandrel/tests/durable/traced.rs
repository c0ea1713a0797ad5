//! Types of the program's own (`#[derive(Trace)]`) in a state: in collections, and as nodes of a structure that the program makes of pointers.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use spandrel::durable::collections::{HashMap, Open as _, Str};
use spandrel::durable::{Arena, Durable};
use spandrel::heap::collections::Key;
use spandrel::heap::{Checked, Enumeration, Error, PPtr, Trace};

use super::{places, small};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Trace, Key)]
#[repr(C)]
struct Article {
    name: Str<20>,
    size: u32,
}

#[derive(Clone, Copy, PartialEq, Debug, Enumeration)]
#[repr(u8)]
enum Stage {
    Ordered,
    Sent,
}

#[derive(Clone, Copy, Trace)]
#[repr(C)]
struct Stock {
    count: u64,
    stage: Checked<Stage>,
}

/// A node of a list, whose newest one a root leads to.
#[derive(Clone, Copy, Trace)]
#[repr(C)]
struct Order {
    before: PPtr<Order>,
    article: Article,
    number: u64,
}

struct Shop {
    arena: Arc<Arena>,
    stock: HashMap<Article, Stock>,
}

fn article(number: u64) -> Article {
    Article { name: Str::new("boots").unwrap(), size: (number % 5) as u32 }
}

impl Shop {
    fn open(arena: &Arc<Arena>) -> Result<Self, Error> {
        Ok(Self { arena: Arc::clone(arena), stock: HashMap::open(arena, "stock")? })
    }

    /// The next order. Each seventh one takes the order before it back.
    fn order(&mut self) -> Result<u64, Error> {
        let arena = Arc::clone(&self.arena);
        let newest = arena.root::<Order>("orders")?;
        // SAFETY: the command has the state alone.
        let last = unsafe { arena.read(newest.get()) };
        let number = last.map_or(1, |last| last.number + 1);
        let mut before = newest.get();
        if let Some(last) = last.filter(|_| number.is_multiple_of(7)) {
            newest.set(last.before)?;
            // SAFETY: nothing leads to it any more.
            unsafe { arena.free_object(before)? };
            before = last.before;
            self.count(last.article, |count| count - 1)?;
        }
        let article = article(number);
        newest.set(arena.new_object(Order { before, article, number })?)?;
        self.count(article, |count| count + 1)?;
        Ok(number)
    }

    fn count(&mut self, of: Article, change: impl Fn(u64) -> u64) -> Result<(), Error> {
        let count = change(self.stock.get(&of).map_or(0, |stock| stock.count));
        let stage = if count.is_multiple_of(2) { Stage::Sent } else { Stage::Ordered };
        self.stock.insert(of, Stock { count, stage: stage.into() }).map(drop)
    }

    /// The number of the newest order. All of the list and the map is what it should be.
    fn check(&self) -> u64 {
        let mut at = self.arena.root::<Order>("orders").unwrap().get();
        let (mut counts, mut newest, mut last) = ([0u64; 5], 0, None);
        // SAFETY: no command that writes runs.
        while let Some(order) = unsafe { self.arena.read(at) } {
            assert_eq!(order.article, article(order.number));
            let below =
                last.map(|last: u64| if last.is_multiple_of(7) { last - 2 } else { last - 1 });
            assert!(below.is_none_or(|below| order.number == below), "{}", order.number);
            newest = newest.max(order.number);
            counts[order.article.size as usize] += 1;
            (last, at) = (Some(order.number), order.before);
        }
        assert!(last.is_none_or(|last| last == 1));
        for (number, count) in (0..5).zip(counts) {
            let stock = self.stock.get(&article(number));
            assert_eq!(stock.map_or(0, |stock| stock.count), count);
            let stage = if count.is_multiple_of(2) { Stage::Sent } else { Stage::Ordered };
            assert!(stock.is_none_or(|stock| stock.stage.get() == Some(stage)));
        }
        newest
    }
}

fn open(path: &Path) -> Durable<Shop> {
    Durable::open(path, small(), Shop::open).unwrap()
}

/// The child's side: orders, and says what is durable.
fn order(path: &Path) {
    let db = open(path);
    loop {
        let number = db.write(Shop::order).unwrap().unwrap();
        let _ = writeln!(&mut std::io::stdout(), "durable {number}");
    }
}

#[test]
fn kills_leave_own_types_and_structures_whole() {
    const CHILD: &str = "SPANDREL_TEST_DURABLE_TRACED";
    if let Some(path) = std::env::var_os(CHILD) {
        return order(Path::new(&path));
    }
    for (_place, path) in places() {
        let mut durable = 0;
        for round in 0..8u64 {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["traced::kills_leave_own_types_and_structures_whole"])
                .args(["--exact", "--nocapture"])
                .env(CHILD, &path)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let said = |line: &String| line.strip_prefix("durable ").and_then(|n| n.parse().ok());
            let first = lines.by_ref().map_while(Result::ok).find_map(|line| said(&line)).unwrap();
            assert!(first > durable, "{first} after {durable}");
            std::thread::sleep(Duration::from_millis(1 + round * 13 % 40));
            child.kill().unwrap();
            child.wait().unwrap();
            // The last line may be cut.
            let rest = lines.map_while(Result::ok).filter_map(|line| said(&line));
            let last: u64 = rest.fold(first, u64::max);
            let db = open(&path);
            assert!(!db.report().was_closed);
            assert_eq!(db.escaped(), None);
            durable = db.read(Shop::check);
            assert!(durable >= last && durable <= last + 1, "{durable}, {last} was said");
            db.close().unwrap();
        }
    }
}

/// A number of the program's own memory in a state of collections is reported.
#[test]
fn an_address_of_the_programs_memory_is_reported() {
    for (_place, path) in places() {
        let db = open(&path);
        db.write(Shop::order).unwrap().unwrap();
        assert_eq!(db.escaped(), None);
        let own = Box::new(7u64);
        let at = &raw const *own as u64;
        let keep = |shop: &mut Shop| {
            shop.stock.insert(article(3), Stock { count: at, stage: Stage::Sent.into() }).map(drop)
        };
        db.write(keep).unwrap().unwrap();
        let escaped = db.escaped().unwrap();
        assert_eq!(escaped.address as u64, at);
        assert!(escaped.to_string().starts_with("memory of the process ("), "{escaped}");
    }
}
