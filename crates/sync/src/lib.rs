//! Locks, start-once cells and the thread slot.
//!
//! Invariants: nothing here allocates, and a lock may be taken before libc is
//! ready, in a signal handler that interrupted no holder, and across `fork`
//! (the forking thread holds every lock; see `adaptive`'s fork order).
//!
//! This room must never know what its locks protect.
#![no_std]

mod lock;
mod slot;

pub use lock::{Lock, LockGuard, Once};
pub use slot::{ThreadSlot, thread_slot};
