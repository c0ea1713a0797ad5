//! N queens. A unit of work is a row that queens are to be put into, and where those of the rows before stand; it is an object in a list
//! in the heap. Whoever takes one notes that beside the list, so that it is not lost with its worker, and puts one for each place
//! that a queen has in the row into the list. The last rows are not worth an object each.

use super::{App, Outcome, Place, on_threads};
use crate::heap::sections::Section;
use std::sync::{Mutex, PoisonError};

pub struct Queens {
    pub board: u32,
}

/// Rows that a worker tries by itself.
const LAST_ROWS: u32 = 3;

/// Words of a unit: the next one, columns and diagonals that are taken, and the row.
const NEXT: usize = 0;
const COLUMNS: usize = 1;
const LEFT: usize = 2;
const RIGHT: usize = 3;
const ROW: usize = 4;
const UNIT_WORDS: usize = 5;
const UNIT_BYTES: usize = UNIT_WORDS * 8;

/// Words of what a worker has in the heap: the unit that it is at, and how many ways it has found.
const AT: usize = 0;
const FOUND: usize = 1;

fn count(all: u64, columns: u64, left: u64, right: u64) -> u64 {
    if columns == all {
        return 1;
    }
    let mut free = all & !(columns | left | right);
    let mut found = 0;
    while free != 0 {
        let place = free & free.wrapping_neg();
        free ^= place;
        found += count(all, columns | place, (left | place) << 1, (right | place) >> 1);
    }
    found
}

impl App for Queens {
    fn run<S: Section>(
        &self,
        threads: usize,
        section: impl Fn() -> Result<S, String> + Sync,
    ) -> Result<Outcome, String> {
        let all = (1u64 << self.board) - 1;
        let mut first = section()?;
        first.begin();
        let head = Place::of(first.alloc(8));
        let unit = Place::of(first.alloc(UNIT_BYTES));
        let workers: Vec<Place> = (0..threads).map(|_| Place::of(first.alloc(16))).collect();
        // SAFETY: new objects, of so many words.
        unsafe {
            head.set(0, unit.word());
            (0..UNIT_WORDS).for_each(|word| unit.set(word, 0));
            first.made(head.object(), 8);
            first.made(unit.object(), UNIT_BYTES);
            for worker in &workers {
                worker.set(AT, 0);
                worker.set(FOUND, 0);
                first.made(worker.object(), 16);
            }
        }
        first.end();
        // How many workers are at a unit. What the lock guards is also the list.
        let busy = Mutex::new(0usize);
        let lock = || busy.lock().unwrap_or_else(PoisonError::into_inner);
        let allocations = on_threads(threads, |me| {
            let mut section = section()?;
            let worker = workers[me];
            let mut allocations = 0;
            loop {
                let mut workers = lock();
                // SAFETY: the list is the lock holder's.
                let Some(unit) = Place::from_word(unsafe { head.get(0) }) else {
                    if *workers == 0 {
                        return Ok(allocations);
                    }
                    drop(workers);
                    std::thread::yield_now();
                    continue;
                };
                *workers += 1;
                section.begin();
                // SAFETY: as above; the worker's object is its own, and so is the unit from now on.
                let [columns, left, right, row] = unsafe {
                    section.store(worker.0.add(AT), &[unit.word()]);
                    section.store(head.0, &[unit.get(NEXT)]);
                    [COLUMNS, LEFT, RIGHT, ROW].map(|word| unit.get(word))
                };
                section.end();
                drop(workers);
                section.begin();
                let mut last = None;
                let mut next = 0;
                if row as u32 + LAST_ROWS >= self.board {
                    let found = count(all, columns, left, right);
                    // SAFETY: the worker's own.
                    unsafe {
                        let found = worker.get(FOUND) + found;
                        section.store(worker.0.add(FOUND), &[found]);
                    }
                } else {
                    let mut free = all & !(columns | left | right);
                    while free != 0 {
                        let place = free & free.wrapping_neg();
                        free ^= place;
                        let child = Place::of(section.alloc(UNIT_BYTES));
                        allocations += 1;
                        // SAFETY: a new object, of so many words.
                        unsafe {
                            child.set(NEXT, next);
                            child.set(COLUMNS, columns | place);
                            child.set(LEFT, (left | place) << 1);
                            child.set(RIGHT, (right | place) >> 1);
                            child.set(ROW, row + 1);
                            section.made(child.object(), UNIT_BYTES);
                        }
                        last = last.or(Some(child));
                        next = child.word();
                    }
                }
                let mut workers = lock();
                // SAFETY: the list is the lock holder's, and the units are this worker's.
                unsafe {
                    if let Some(last) = last {
                        section.store(last.0.add(NEXT), &[head.get(0)]);
                        section.store(head.0, &[next]);
                    }
                    section.store(worker.0.add(AT), &[0]);
                    section.free(unit.object());
                }
                section.end();
                *workers -= 1;
            }
        })?;
        // SAFETY: all have ended.
        let found: u64 = workers.iter().map(|worker| unsafe { worker.get(FOUND) }).sum();
        Ok(Outcome { allocations: allocations + 1, checksum: found.to_string() })
    }
}
