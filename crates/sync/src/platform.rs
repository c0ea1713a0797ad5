//! What locks stand on: atomics, the futex, barriers. With `--cfg loom` all of
//! it is a model, in which every interleaving of a test's threads is tried. With `--cfg shuttle`
//! threads take turns at random, at each lock among other places.

#[cfg(not(loom))]
#[cfg_attr(shuttle, allow(dead_code))]
mod real {
    pub use core::hint::spin_loop;
    pub use core::sync::atomic::{
        AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };

    use spandrel_os::{barrier, call};

    /// Spins before sleeping: about a microsecond, the length of a short hold.
    pub const SPINS: u32 = 100;

    pub fn thread_id() -> u32 {
        call::thread_id()
    }

    /// Lets other threads run, for a thread that waits without a word to sleep on and has looked `looks` times.
    pub fn linger(looks: u32) {
        const QUICK_LOOKS: u32 = 100;
        const PAUSE_NANOS: u32 = 100_000;
        if looks < QUICK_LOOKS {
            // SAFETY: no preconditions.
            let _ = unsafe { call::call(libc::SYS_sched_yield, []) };
        } else {
            call::sleep(PAUSE_NANOS);
        }
    }

    /// Sleeps for about `ms` tenths of a millisecond.
    pub fn pause(ms: u32) {
        (0..ms).for_each(|_| linger(u32::MAX));
    }

    /// A bound for several waits.
    pub struct Waits(u64);

    impl Waits {
        /// The waits begin now.
        pub fn begin() -> Self {
            Self(spandrel_os::clock::micros())
        }

        /// Whether they have taken `ms` milliseconds.
        pub fn are_over(&self, ms: u32) -> bool {
            spandrel_os::clock::micros().saturating_sub(self.0) >= u64::from(ms) * 1000
        }
    }

    /// Sleeps while the word is as expected; may return without reason.
    pub fn wait(word: &AtomicU32, expected: u32) {
        futex(word, libc::FUTEX_WAIT, expected, None);
    }

    /// As [`wait`], for `ms` milliseconds at most.
    pub fn wait_for(word: &AtomicU32, expected: u32, ms: u32) {
        futex(word, libc::FUTEX_WAIT, expected, Some(ms));
    }

    /// Wakes a thread that sleeps on the word, if there is one.
    #[cold]
    pub fn wake_one(word: &AtomicU32) {
        futex(word, libc::FUTEX_WAKE, 1, None);
    }

    /// Wakes all threads that sleep on the word.
    #[cold]
    pub fn wake_all(word: &AtomicU32) {
        futex(word, libc::FUTEX_WAKE, i32::MAX as u32, None);
    }

    fn futex(word: &AtomicU32, operation: libc::c_int, value: u32, after_ms: Option<u32>) {
        let operation = operation | libc::FUTEX_PRIVATE_FLAG;
        let time = after_ms.map(|ms| libc::timespec {
            tv_sec: libc::time_t::from(ms / 1000),
            tv_nsec: libc::c_long::from(ms % 1000 * 1_000_000),
        });
        let time = time.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
        // SAFETY: the word outlives the call; both operations only read it. A
        // spurious return is handled by every caller's loop.
        let _ = unsafe {
            let arguments = [
                word.as_ptr().expose_provenance(),
                operation as usize,
                value as usize,
                time.expose_provenance(),
            ];
            call::call(libc::SYS_futex, arguments)
        };
    }

    /// Whether the process has one thread, so that locks need no locked
    /// instructions: glibc's own word on it, which it takes back before it starts a
    /// second thread. False where glibc is older than 2.32 and does not say, and
    /// before glibc has come up.
    #[inline(always)]
    pub fn is_single_threaded() -> bool {
        // glibc does not know this thread of ours. It comes while the only other thread holds no lock, and touches none when it has left.
        libc_is_single_threaded() && !crate::background::is_running()
    }

    /// glibc's own word on it.
    #[inline(always)]
    pub fn libc_is_single_threaded() -> bool {
        let flag: *const u8;
        // SAFETY: loads the symbol's address from the offset table; weak, so that
        // it is null where there is no such symbol.
        unsafe {
            core::arch::asm!(
                ".weak __libc_single_threaded",
                "mov {flag}, qword ptr [rip + __libc_single_threaded@GOTPCREL]",
                flag = out(reg) flag,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        // SAFETY: a `char` of glibc's, which only this thread could be changing.
        !flag.is_null() && unsafe { flag.read_volatile() } != 0
    }

    /// Replaces a word in one step, also in the eyes of a signal handler; without a
    /// locked instruction while the process has one thread.
    #[inline]
    pub fn exchange(word: &AtomicU32, new: u32) -> u32 {
        if !is_single_threaded() {
            return word.swap(new, Ordering::AcqRel);
        }
        let mut expected = word.load(Ordering::Relaxed);
        loop {
            let found: u32;
            // SAFETY: compares and writes a word that may be written to.
            unsafe {
                core::arch::asm!(
                    "cmpxchg dword ptr [{word}], {new:e}",
                    word = in(reg) word.as_ptr(),
                    new = in(reg) new,
                    inout("eax") expected => found,
                    options(nostack),
                );
            }
            if found == expected {
                return found;
            }
            expected = found;
        }
    }

    /// Lets others go on: spins at first, then sleeps, so that a thread of high
    /// priority does not keep the processor from the one it waits for.
    #[cold]
    pub fn relax(turn: u32) {
        if turn < SPINS {
            return spin_loop();
        }
        const NAP_NANOS: u32 = 50_000;
        call::sleep(NAP_NANOS);
    }

    /// Half of a store-load barrier: complete together with [`heavy_barrier`] on
    /// the other side.
    #[inline(always)]
    pub fn light_barrier() {
        core::sync::atomic::compiler_fence(Ordering::SeqCst);
    }

    /// Makes every processor that runs a thread of this process pass a full
    /// barrier. False: the kernel has no such call.
    pub fn heavy_barrier() -> bool {
        barrier::available() && barrier::all_processors()
    }
}

#[cfg(loom)]
mod model {
    pub use loom::hint::spin_loop;
    pub use loom::sync::atomic::{
        AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };

    use loom::sync::{Condvar, Mutex};
    use std::hash::{DefaultHasher, Hash, Hasher};
    use std::vec::Vec;

    /// The model tries the interleavings; spinning would only multiply them.
    pub const SPINS: u32 = 1;

    pub fn thread_id() -> u32 {
        let mut hasher = DefaultHasher::new();
        loom::thread::current().id().hash(&mut hasher);
        hasher.finish() as u32 | 1
    }

    /// The kernel's queue of sleepers, as (address, number), oldest first. Its
    /// lock is the kernel's hash bucket lock: comparing the word and lying down
    /// are one step to the thread that wakes.
    struct Sleepers {
        queue: Mutex<(Vec<(usize, u64)>, u64)>,
        changed: Condvar,
    }

    loom::lazy_static! {
        static ref SLEEPERS: Sleepers =
            Sleepers { queue: Mutex::new((Vec::new(), 0)), changed: Condvar::new() };
    }

    fn address(word: &AtomicU32) -> usize {
        core::ptr::from_ref(word) as usize
    }

    /// Sleeps while the word is as expected.
    pub fn wait(word: &AtomicU32, expected: u32) {
        let mut sleepers = SLEEPERS.queue.lock().unwrap();
        if word.load(Ordering::Relaxed) != expected {
            return;
        }
        sleepers.1 += 1;
        let me = (address(word), sleepers.1);
        sleepers.0.push(me);
        while sleepers.0.contains(&me) {
            sleepers = SLEEPERS.changed.wait(sleepers).unwrap();
        }
    }

    /// Time passes at once: all that a wait for a time promises is that it ends.
    pub fn wait_for(_: &AtomicU32, _: u32, _: u32) {
        loom::thread::yield_now();
    }

    /// Wakes the thread that has slept on the word for longest, if there is one.
    pub fn wake_one(word: &AtomicU32) {
        let mut sleepers = SLEEPERS.queue.lock().unwrap();
        if let Some(first) = sleepers.0.iter().position(|s| s.0 == address(word)) {
            sleepers.0.remove(first);
        }
        drop(sleepers);
        SLEEPERS.changed.notify_all();
    }

    /// Wakes all threads that sleep on the word.
    pub fn wake_all(word: &AtomicU32) {
        SLEEPERS.queue.lock().unwrap().0.retain(|s| s.0 != address(word));
        SLEEPERS.changed.notify_all();
    }

    /// Never in the model.
    pub fn is_single_threaded() -> bool {
        false
    }

    pub fn relax(_: u32) {
        spin_loop();
    }

    pub fn linger(_: u32) {
        loom::thread::yield_now();
    }

    pub fn pause(_: u32) {
        loom::thread::yield_now();
    }

    /// Each wait takes a millisecond.
    pub struct Waits(core::cell::Cell<u32>);

    impl Waits {
        pub fn begin() -> Self {
            Self(core::cell::Cell::new(0))
        }

        pub fn are_over(&self, ms: u32) -> bool {
            self.0.replace(self.0.get() + 1) >= ms
        }
    }

    /// The process-wide barrier cannot be modelled from one side: here both
    /// sides pass a full fence, which is what the kernel guarantees to them.
    pub fn light_barrier() {
        loom::sync::atomic::fence(Ordering::SeqCst);
    }

    pub fn heavy_barrier() -> bool {
        loom::sync::atomic::fence(Ordering::SeqCst);
        true
    }
}

/// Tasks of shuttle are all on one thread of the system, and change where one of them yields.
#[cfg(shuttle)]
mod scheduled {
    pub use super::real::{
        AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, Waits, exchange, fence,
        heavy_barrier, light_barrier, pause,
    };

    use shuttle::thread::yield_now;

    /// Threads change at each yield; a spin is one.
    pub const SPINS: u32 = 0;

    pub fn thread_id() -> u32 {
        usize::from(shuttle::current::me()) as u32 + 1
    }

    /// Lets others run.
    pub fn spin_loop() {
        yield_now();
    }

    /// Lets others run.
    pub fn linger(_: u32) {
        yield_now();
    }

    pub fn relax(_: u32) {
        yield_now();
    }

    /// Sleepers wake without reason.
    pub fn wait(_: &AtomicU32, _: u32) {
        yield_now();
    }

    pub fn wait_for(_: &AtomicU32, _: u32, _: u32) {
        yield_now();
    }

    /// There are no sleepers.
    pub fn wake_one(_: &AtomicU32) {}

    /// There are no sleepers.
    pub fn wake_all(_: &AtomicU32) {}

    pub fn libc_is_single_threaded() -> bool {
        false
    }

    /// Asked whenever a lock is taken or given back: others may go on here.
    pub fn is_single_threaded() -> bool {
        yield_now();
        false
    }
}

#[cfg(loom)]
pub use model::*;
#[cfg(not(any(loom, shuttle)))]
pub use real::*;
#[cfg(shuttle)]
pub use scheduled::*;
