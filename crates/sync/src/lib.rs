//! Locks, a gate, start-once cells, a handshake, the thread slot, a pool of work, cache lines of one's own, and
//! threads for work beside the program. `primitives` is what protocols of other rooms stand on.
//!
//! Invariants: nothing here allocates, and a lock may be taken before libc is
//! ready, in a signal handler that interrupted no holder, and across `fork`
//! (of several threads the forking one holds every lock that the child may
//! need; see `adaptive`'s fork order).
//!
//! This room must never know what its locks protect.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p spandrel-sync --release` (part of `make unit`)
//! tries every interleaving of the tests in `tests/loom.rs`. With `--cfg shuttle`, for other
//! rooms' tests, threads are those of the scheduler shuttle.
#![cfg_attr(not(loom), no_std)]

#[cfg(not(loom))]
pub mod background;
mod gate;
mod handshake;
mod lock;
mod padded;
mod platform;
mod pool;
#[cfg(not(loom))]
pub mod raw_thread;
mod slot;
#[cfg(not(loom))]
pub mod thread;
#[cfg(not(loom))]
pub mod turns;
mod wakeup;

/// What a lock-free protocol of another room stands on: atomics, fences and the futex of the platform, or of the model
/// under `--cfg loom`. A protocol that takes them from here is tried in every interleaving without a change.
pub mod primitives {
    pub use crate::platform::{
        AtomicPtr, AtomicU32, AtomicU64, Ordering, SPINS, fence, spin_loop, wait, wake_all,
        wake_one,
    };
}

pub use gate::Gate;
pub use handshake::Handshake;
pub use lock::{Lock, LockGuard, Once};
pub use padded::CachePadded;
pub use platform::is_single_threaded;
#[cfg(not(loom))]
pub use platform::{exchange, libc_is_single_threaded, linger};
pub use pool::Pool;
pub use slot::{NO_CACHE, Sequences, ThreadSlot, thread_slot};
pub use wakeup::Wakeup;
