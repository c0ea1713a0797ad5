//! The applications of section 13.3, with failures of user data nobody's concern (Fig. 9) or with all that they store in sections
//! (Fig. 11).

mod barnes;
mod cholesky;
mod queens;

use super::sections::{Plain, Section};
use super::{Allocator, Program, run_on};
use crate::args::Args;
use crate::meter::Meter;
use crate::suites::Report;
use std::ptr::NonNull;

/// What a program has come to.
struct Outcome {
    /// Objects that it allocated.
    allocations: u64,
    /// The same for every allocator.
    checksum: String,
}

/// A program that stores through sections, one for each thread.
trait App {
    fn run<S: Section>(
        &self,
        threads: usize,
        section: impl Fn() -> Result<S, String> + Sync,
    ) -> Result<Outcome, String>;
}

struct Job<A> {
    app: A,
    threads: usize,
    is_consistent: bool,
}

impl<P: App> Program for Job<P> {
    fn run<A: Allocator>(&self, allocator: &A, mut report: Report) -> Result<Report, String> {
        let meter = Meter::start();
        let outcome = if self.is_consistent {
            self.app.run(self.threads, || allocator.section())?
        } else {
            self.app.run(self.threads, || Ok(Plain(allocator)))?
        };
        meter.stop().record(&mut report);
        report.insert("allocations".into(), outcome.allocations.into());
        report.insert("checksum".into(), outcome.checksum.into());
        Ok(report)
    }
}

fn job<A: App + 'static>(
    args: Args,
    app: impl FnOnce(&mut Args) -> Result<A, String>,
) -> Result<Report, String> {
    run_on(args, |args| {
        let threads = args.count("threads", 1)?.clamp(1, 64);
        let is_consistent = args.flag("consistent");
        Ok(Box::new(Job { app: app(args)?, threads, is_consistent }))
    })
}

/// N bodies that attract each other, by a tree of cells (Barnes and Hut).
pub fn barnes(args: Args) -> Result<Report, String> {
    job(args, |args| {
        let (bodies, steps) = (args.count("bodies", 100_000)?.max(2), args.count("steps", 2)?);
        Ok(barnes::Barnes { bodies, steps })
    })
}

/// In how many ways so many queens stand on a board, by workers that share a list of what is to be tried.
pub fn queens(args: Args) -> Result<Report, String> {
    job(args, |args| {
        let board = args.count("board", 13)?;
        if !(4..=20).contains(&board) {
            return Err(format!("--board {board}: from 4 to 20"));
        }
        Ok(queens::Queens { board: board as u32 })
    })
}

/// A matrix into a triangular one and its transpose, tile by tile; each new value of a tile is a new object.
pub fn cholesky(args: Args) -> Result<Report, String> {
    job(args, |args| Ok(cholesky::Cholesky { order: args.count("order", 1000)?.max(4) }))
}

/// An address that threads share: who uses it when is the program's matter.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place(*mut u64);

// SAFETY: a number, until somebody uses it.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

impl Place {
    fn of(object: NonNull<u8>) -> Self {
        Self(object.as_ptr().cast())
    }

    fn from_word(word: u64) -> Option<Self> {
        (word != 0).then_some(Self(word as *mut u64))
    }

    fn word(self) -> u64 {
        self.0 as u64
    }

    /// # Safety
    /// It is an object's.
    unsafe fn object(self) -> NonNull<u8> {
        // SAFETY: promised by the caller; no object is at zero.
        unsafe { NonNull::new_unchecked(self.0.cast()) }
    }

    /// # Safety
    /// The object has so many words, and nobody writes to this one.
    unsafe fn get(self, index: usize) -> u64 {
        // SAFETY: promised by the caller.
        unsafe { self.0.add(index).read() }
    }

    /// # Safety
    /// The object has so many words, and nobody else uses this one.
    unsafe fn set(self, index: usize, word: u64) {
        // SAFETY: promised by the caller.
        unsafe { self.0.add(index).write(word) };
    }

    /// # Safety
    /// As for [`Place::get`].
    unsafe fn number(self, index: usize) -> f64 {
        // SAFETY: promised by the caller.
        f64::from_bits(unsafe { self.get(index) })
    }
}

/// Runs a thread's part on each of so many threads: its number, and what all have come to together.
fn on_threads(
    threads: usize,
    part: impl Fn(usize) -> Result<u64, String> + Sync,
) -> Result<u64, String> {
    std::thread::scope(|scope| {
        let part = &part;
        let all: Vec<_> = (0..threads).map(|me| scope.spawn(move || part(me))).collect();
        let ended = |thread: std::thread::ScopedJoinHandle<'_, Result<u64, String>>| {
            thread.join().unwrap_or_else(|_| Err("a thread panicked".into()))
        };
        all.into_iter().map(ended).sum()
    })
}
