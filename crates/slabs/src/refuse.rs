//! Calls of the kernel that are refused on purpose, by chance, and a clock that can be put on: for tests and
//! fuzzers. In other builds nothing is refused, and the clock is the system's.

/// What can be refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// Memory is to be accessible.
    Open,
    /// Memory is to go back.
    GiveBack,
    /// A huge page is to be made whole.
    Collapse,
}

/// Whether a call is refused this time.
#[cfg(not(any(test, fuzzing)))]
#[inline(always)]
pub const fn refuses(_: Call) -> bool {
    false
}

#[cfg(not(any(test, fuzzing)))]
pub use spandrel_os::clock;

#[cfg(any(test, fuzzing))]
pub use injected::{clock, refuse, refused, refuses};

#[cfg(any(test, fuzzing))]
mod injected {
    extern crate std;

    use core::cell::Cell;

    use super::Call;

    std::thread_local! {
        /// One in this many calls of each kind is refused, by chance; 0 for none.
        static ONE_IN: [Cell<u8>; 3] = const { [const { Cell::new(0) }; 3] };
        static RANDOM: Cell<u32> = const { Cell::new(1) };
        static REFUSED: Cell<u32> = const { Cell::new(0) };
    }

    /// From now on one in `one_in` calls of each kind that this thread makes is refused.
    pub fn refuse(one_in: [u8; 3], seed: u32) {
        ONE_IN.with(|all| all.iter().zip(one_in).for_each(|(cell, one_in)| cell.set(one_in)));
        RANDOM.set(seed);
    }

    /// Calls of this thread that were refused.
    pub fn refused() -> u32 {
        REFUSED.get()
    }

    /// Whether a call is refused this time.
    pub fn refuses(call: Call) -> bool {
        let one_in = ONE_IN.with(|all| all[call as usize].get());
        let random = RANDOM.get().wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        RANDOM.set(random);
        let is_refused = one_in > 0 && (random >> 8).is_multiple_of(one_in.into());
        REFUSED.set(REFUSED.get() + u32::from(is_refused));
        is_refused
    }

    /// The system's clock, and by how much it was put on.
    pub mod clock {
        use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

        pub use spandrel_os::clock::{others_preempted, process_micros, thread_micros};

        static AHEAD_MS: AtomicU64 = AtomicU64::new(0);

        /// Puts the clock on.
        pub fn put_on(ms: u64) {
            AHEAD_MS.fetch_add(ms, Relaxed);
        }

        /// See `spandrel_os::clock`.
        pub fn coarse_ms() -> u64 {
            spandrel_os::clock::coarse_ms() + AHEAD_MS.load(Relaxed)
        }

        /// See `spandrel_os::clock`.
        pub fn micros() -> u64 {
            spandrel_os::clock::micros() + AHEAD_MS.load(Relaxed) * 1000
        }
    }
}
