//! Turns that a program of one thread and the thread beside it take.
//!
//! A program of one thread may fork in a signal handler, in the middle of a request. A lock that is held then is its own, and both it and the
//! child go on with it when the handler returns. So in a fork the thread beside it must be in the middle of nothing, and must not be waited for while it waits
//! for such a lock. Therefore it works only while the program holds no lock at all: the program's outermost lock is this one.
//!
//! Where the program has threads of its own these are without effect: there all locks are taken before a fork.

use core::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use crate::platform::{SPINS, libc_is_single_threaded, spin_loop, wait, wake_all};
use crate::{background, thread_slot};

const FREE: u32 = 0;
/// It is the turn of the program.
const PROGRAM: u32 = 1;
/// It is the turn of the thread beside it.
const BESIDE: u32 = 2;
/// Added: the other one sleeps.
const AWAITED: u32 = 4;

static TURN: AtomicU32 = AtomicU32::new(FREE);
/// Forks that are under way, one in a handler that interrupts another.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// The number of the fork that has taken the turn, and not found it taken by what it interrupted; 0: none.
static PAUSED_BY: AtomicU32 = AtomicU32::new(0);

/// A lock is about to be taken. A program of one thread counts its locks at any time, as the thread beside it may be made where a
/// signal handler has interrupted it.
#[inline(always)]
pub fn enter() {
    if libc_is_single_threaded() {
        let own = thread_slot();
        let held = own.locks_held.get();
        own.locks_held.set(held + 1);
        if held == 0 && background::is_running() {
            enter_beside();
        }
    }
}

#[cold]
fn enter_beside() {
    if !thread_slot().is_beside.get() {
        take(PROGRAM);
    }
}

/// A lock has been given back, or was not to be had.
#[inline(always)]
pub fn leave() {
    let own = thread_slot();
    let held = own.locks_held.get();
    // A lock that was taken by one of several threads is not counted.
    if held != 0 {
        own.locks_held.set(held - 1);
        if held == 1 && TURN.load(Relaxed) & !AWAITED == PROGRAM {
            leave_beside();
        }
    }
}

#[cold]
fn leave_beside() {
    if !thread_slot().is_beside.get() {
        give(PROGRAM);
    }
}

/// Some work of the thread beside the program. Nothing is forked meanwhile.
pub fn beside<T>(work: impl FnOnce() -> T) -> T {
    take(BESIDE);
    let result = work();
    give(BESIDE);
    result
}

/// A program of one thread is about to fork, perhaps in a signal handler.
pub fn pause() {
    let fork = FORKS.load(Relaxed) + 1;
    FORKS.store(fork, Relaxed);
    if background::is_running() && take(PROGRAM) {
        PAUSED_BY.store(fork, Relaxed);
    }
}

/// It has forked. To be called in both processes.
pub fn go_on() {
    let fork = FORKS.load(Relaxed);
    if PAUSED_BY.load(Relaxed) == fork {
        PAUSED_BY.store(0, Relaxed);
        give(PROGRAM);
    }
    FORKS.store(fork.saturating_sub(1), Relaxed);
}

/// Whether what the calling thread, a program's only one, has interrupted holds a lock.
pub fn is_programs() -> bool {
    thread_slot().locks_held.get() != 0 || TURN.load(Relaxed) & !AWAITED == PROGRAM
}

/// Waits for the turn. False: it was the caller's already, as what a signal handler has interrupted is of the same thread.
fn take(turn: u32) -> bool {
    let mut spins = 0;
    loop {
        let seen = TURN.load(Relaxed);
        let owner = seen & !AWAITED;
        if owner == turn {
            return false;
        }
        if owner == FREE {
            if TURN.compare_exchange(FREE, turn, Acquire, Relaxed).is_ok() {
                return true;
            }
        } else if spins < SPINS {
            spins += 1;
            spin_loop();
        } else {
            let awaited = owner | AWAITED;
            if seen == awaited || TURN.compare_exchange(seen, awaited, AcqRel, Relaxed).is_ok() {
                wait(&TURN, awaited);
            }
        }
    }
}

fn give(turn: u32) {
    let mut seen = TURN.load(Relaxed);
    // A signal handler may have given it back before.
    while seen & !AWAITED == turn {
        match TURN.compare_exchange(seen, FREE, Release, Relaxed) {
            Ok(_) if seen & AWAITED != 0 => return wake_all(&TURN),
            Ok(_) => return,
            Err(now) => seen = now,
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn they_are_never_both_at_work() {
        static INSIDE: AtomicU64 = AtomicU64::new(0);
        let work = || {
            assert_eq!(INSIDE.fetch_add(1, Relaxed), 0);
            (0..20).for_each(|_| spin_loop());
            INSIDE.fetch_sub(1, Relaxed);
        };
        std::thread::scope(|threads| {
            threads.spawn(|| (0..100_000).for_each(|_| beside(work)));
            for _ in 0..100_000 {
                assert!(take(PROGRAM));
                // What a handler does in between.
                assert!(!take(PROGRAM));
                work();
                give(PROGRAM);
                give(PROGRAM);
            }
        });
        assert_eq!(TURN.load(Relaxed), FREE);
    }
}
