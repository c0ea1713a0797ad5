//! Signals that come while a command runs.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::Duration;

use spandrel::durable::Plain;

use crate::states::{is_translated, open};

/// The two ends of what a command changes.
#[derive(Default)]
struct Row {
    first: u64,
    all: Vec<u64>,
    last: u64,
}

static ENDS: (AtomicUsize, AtomicUsize) = (AtomicUsize::new(0), AtomicUsize::new(0));
static HANDLED: AtomicUsize = AtomicUsize::new(0);
/// Times that a handler has seen half of a command.
static HALVES: AtomicUsize = AtomicUsize::new(0);

extern "C" fn look(_: i32) {
    let word = |place: &AtomicUsize| {
        // SAFETY: a word of the state, which is open.
        unsafe { (place.load(Relaxed) as *const u64).read_volatile() }
    };
    HANDLED.fetch_add(1, Relaxed);
    HALVES.fetch_add(usize::from(word(&ENDS.0) != word(&ENDS.1)), Relaxed);
}

pub fn handlers_see_whole_commands() {
    if !is_translated() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let db: Plain<Row> = open(directory.path(), Row::default);
    let (first, last) = db
        .write(|row| {
            row.all.resize(500, 0);
            (&raw const row.first as usize, &raw const row.last as usize)
        })
        .unwrap();
    ENDS.0.store(first, Relaxed);
    ENDS.1.store(last, Relaxed);
    let (is_over, me) = (AtomicBool::new(false), this_thread());
    // SAFETY: the handler reads two words, and counts.
    unsafe { libc::signal(libc::SIGUSR1, look as *const () as usize) };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                // SAFETY: the thread waits for this one.
                unsafe { libc::pthread_kill(me, libc::SIGUSR1) };
                std::thread::sleep(Duration::from_micros(50));
            }
        });
        for number in 1..=2000 {
            let sum = db.write(|row| {
                row.first = number;
                row.all.iter_mut().for_each(|one| *one += number);
                row.last = number;
                row.all.iter().sum::<u64>()
            });
            assert_eq!(sum.unwrap(), 500 * number * (number + 1) / 2);
        }
        is_over.store(true, Relaxed);
    });
    // SAFETY: no signal comes any more.
    unsafe { libc::signal(libc::SIGUSR1, libc::SIG_DFL) };
    let (handled, halves) = (HANDLED.load(Relaxed), HALVES.load(Relaxed));
    assert!(handled > 50, "{handled}");
    assert_eq!(halves, 0, "of {handled}");
    // Variables that lead into a closed state are reported.
    [&ENDS.0, &ENDS.1].iter().for_each(|end| end.store(0, Relaxed));
    db.close().unwrap();
}

fn this_thread() -> libc::pthread_t {
    // SAFETY: no preconditions.
    unsafe { libc::pthread_self() }
}
