//! Operations read from standard input, one a line, run in order, each on a thread of choice:
//!
//! | line | does |
//! |---|---|
//! | `malloc SLOT SIZE`, `calloc SLOT SIZE` | allocates into the slot; what was there is freed first |
//! | `align SLOT LOG2 SIZE`, `in SLOT BACKEND SIZE` | the same, aligned or in a backend |
//! | `into SLOT BACKEND SIZE` | moves the slot's object into a backend, on Spandrel |
//! | `realloc SLOT SIZE`, `free SLOT`, `check SLOT`, `slack SLOT` | on the slot, nothing if it is empty |
//! | `mode NAME`, `enter NAME`, `leave` | on Spandrel, nothing otherwise |
//! | `on T` | the following lines run on thread T, started if need be |
//! | `end T` | thread T ends |

use std::collections::BTreeMap;
use std::io::BufRead;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::api::Api;
use crate::objects::{LEAST_ALIGNMENT, Ledger, Object, Request, wrong};

struct Table {
    ledger: Ledger,
    api: Option<Api>,
    slots: Mutex<BTreeMap<usize, Object>>,
}

struct Worker {
    lines: Sender<String>,
    done: Receiver<()>,
    handle: JoinHandle<()>,
}

impl Worker {
    fn start(table: Arc<Table>) -> Self {
        let (lines, inbox) = channel::<String>();
        let (outbox, done) = channel();
        let handle = std::thread::spawn(move || {
            let mut scopes = 0;
            for line in inbox {
                table.carry_out(&line, &mut scopes);
                if outbox.send(()).is_err() {
                    break;
                }
            }
        });
        Self { lines, done, handle }
    }

    fn carry_out(&self, line: String) {
        self.lines.send(line).expect("the thread lives");
        self.done.recv().expect("the thread lives");
    }

    fn end(self) {
        drop(self.lines);
        if self.handle.join().is_err() {
            wrong("a thread panicked");
        }
    }
}

/// Runs the script.
pub fn run() {
    let table = Arc::new(Table {
        ledger: Ledger::new(LEAST_ALIGNMENT),
        api: Api::find(),
        slots: Mutex::default(),
    });
    let mut workers: BTreeMap<usize, Worker> = BTreeMap::new();
    let mut scopes = 0;
    let mut current = 0;
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("read a line");
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [] => {}
            ["on", thread] => current = number(thread),
            ["end", thread] => {
                if let Some(worker) = workers.remove(&number(thread)) {
                    worker.end();
                }
            }
            // Thread 0 is the main thread.
            _ if current == 0 => table.carry_out(&line, &mut scopes),
            _ => workers
                .entry(current)
                .or_insert_with(|| Worker::start(Arc::clone(&table)))
                .carry_out(line),
        }
    }
    for (_, worker) in std::mem::take(&mut workers) {
        worker.end();
    }
    let rest = std::mem::take(&mut *table.slots.lock().expect("slots"));
    for (_, object) in rest {
        table.ledger.free(object);
    }
    println!("ok: {} operations", table.ledger.operations());
}

fn number(word: &str) -> usize {
    word.parse().unwrap_or_else(|_| wrong(&format!("not a number: {word}")))
}

impl Table {
    fn carry_out(&self, line: &str, scopes: &mut u32) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["malloc", slot, size] => self.put(slot, Request::Malloc { size: number(size) }),
            ["calloc", slot, size] => self.put(slot, Request::Calloc { size: number(size) }),
            ["align", slot, log2, size] => {
                let alignment = 1 << number(log2).max(3);
                self.put(slot, Request::PosixMemalign { alignment, size: number(size) });
            }
            ["in", slot, backend, size] => {
                let backend = number(backend) as i32;
                self.put(slot, Request::In { backend, size: number(size) });
            }
            ["realloc", slot, size] => {
                if let Some(object) = self.take(slot)
                    && let Some(object) = self.ledger.resize(object, number(size))
                {
                    self.keep(slot, object);
                }
            }
            ["into", slot, backend, size] => {
                if let Some(api) = &self.api
                    && let Some(object) = self.take(slot)
                {
                    let (backend, size) = (number(backend) as i32, number(size).max(1));
                    self.keep(slot, self.ledger.resize_in(object, backend, size, api));
                }
            }
            ["free", slot] => {
                if let Some(object) = self.take(slot) {
                    self.ledger.free(object);
                }
            }
            ["check", slot] => {
                if let Some(mut object) = self.take(slot) {
                    self.ledger.verify(&mut object, "check");
                    self.keep(slot, object);
                }
            }
            ["slack", slot] => {
                if let Some(mut object) = self.take(slot) {
                    self.ledger.use_all_of(&mut object);
                    self.keep(slot, object);
                }
            }
            ["mode", name] => {
                if let Some(api) = &self.api {
                    api.set_mode(name);
                }
            }
            ["enter", name] => {
                if let Some(api) = &self.api {
                    *scopes += u32::from(api.scope_enter(name));
                }
            }
            ["leave"] => {
                if let Some(api) = &self.api
                    && *scopes > 0
                {
                    *scopes -= 1;
                    api.scope_leave();
                }
            }
            _ => wrong(&format!("unknown line: {line}")),
        }
    }

    fn take(&self, slot: &str) -> Option<Object> {
        self.slots.lock().expect("slots").remove(&number(slot))
    }

    fn keep(&self, slot: &str, object: Object) {
        self.slots.lock().expect("slots").insert(number(slot), object);
    }

    fn put(&self, slot: &str, request: Request) {
        if let Some(old) = self.take(slot) {
            self.ledger.free(old);
        }
        let object = self.ledger.allocate(request, self.api.as_ref());
        self.keep(slot, object);
    }
}
