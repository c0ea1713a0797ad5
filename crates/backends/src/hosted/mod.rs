//! Allocators that live in slices of ours.
//!
//! They are the unmodified libraries of their own packages. The build script
//! renames what they export (`spandrel_je_*`, `spandrel_mi_*`, `spandrel_tc_*`),
//! so that they meet no other copy in the program, and what they ask of the
//! operating system, so that it arrives here. Each starts at its first use.
//!
//! Invariant: every address that such an allocator hands out lies in its slice.
// tcmalloc alone has hooks of its own.
#![cfg_attr(not(any(feature = "jemalloc", feature = "mimalloc")), allow(dead_code, unused))]

mod space;

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

use spandrel_os::env::{errno, set_errno};
use spandrel_pages::AllocatorId;
use spandrel_sync::{Lock, Once};

use space::Space;

type ForkHandler = Option<unsafe extern "C" fn()>;
type ForkHandlers = [ForkHandler; 3];
/// Most sets of fork handlers that one allocator registers.
const FORK_SETS: usize = 4;

/// What one hosted allocator gets instead of an operating system.
pub(crate) struct Host {
    space: Space,
    once: Once,
    /// Held while the allocator starts: a fork waits for the start to end.
    starting: Lock<()>,
    ready: AtomicBool,
    fork: UnsafeCell<[ForkHandlers; FORK_SETS]>,
    fork_sets: AtomicUsize,
}

// SAFETY: `fork` is appended to by the allocator's own start, which it runs
// once, before `fork_sets` covers the entry; `space` is locked.
unsafe impl Sync for Host {}

impl Host {
    const fn new(owner: AllocatorId) -> Self {
        Self::over(Space::new(owner))
    }

    /// For an allocator to which address bits mean something.
    #[cfg(feature = "tcmalloc")]
    const fn tagged(owner: AllocatorId, tag: u8) -> Self {
        Self::over(Space::tagged(owner, tag))
    }

    const fn over(space: Space) -> Self {
        Host {
            space,
            once: Once::new(),
            starting: Lock::new(()),
            ready: AtomicBool::new(false),
            fork: UnsafeCell::new([[None; 3]; FORK_SETS]),
            fork_sets: AtomicUsize::new(0),
        }
    }

    /// Starts the allocator by `boot`, once, when there is a slice for it. What
    /// the start itself allocates on this thread is let through. `boot` says
    /// whether it succeeded.
    #[inline]
    fn start(&self, boot: impl FnOnce() -> bool) -> bool {
        self.once.is_done() && self.is_ready() || self.start_slow(boot)
    }

    #[cold]
    fn start_slow(&self, boot: impl FnOnce() -> bool) -> bool {
        if self.once.is_done() {
            return self.is_ready();
        }
        if self.once.runs_here() {
            return true;
        }
        let _starting = self.starting.lock();
        // The start looks for files that need not be there.
        let errno = errno();
        self.once.run(|| {
            if self.space.prepare() && boot() {
                self.ready.store(true, Release);
            }
        });
        set_errno(errno);
        self.is_ready()
    }

    /// Whether the allocator has been started.
    #[inline]
    fn is_ready(&self) -> bool {
        self.ready.load(Acquire)
    }

    /// `mmap`. Files and fixed addresses are the kernel's business: the former
    /// are no objects, the latter lie in ranges that were handed out here.
    unsafe fn mmap(
        &self,
        hint: *mut c_void,
        len: usize,
        access: c_int,
        flags: c_int,
        fd: c_int,
        offset: libc::off_t,
    ) -> *mut c_void {
        let fixed = flags & libc::MAP_FIXED != 0;
        if fixed && !self.space.contains(hint as usize, len) {
            return refuse_memory();
        }
        if fixed || flags & libc::MAP_ANONYMOUS == 0 {
            // SAFETY: passed on from the caller. Memory is not charged twice:
            // the slice was reserved without.
            return unsafe {
                libc::mmap(hint, len, access, flags | libc::MAP_NORESERVE, fd, offset)
            };
        }
        // It asks seldom, and for much.
        crate::reservations::heed_limit();
        let at = self.space.map(len, access != libc::PROT_NONE);
        if at.is_null() {
            set_errno(libc::ENOMEM);
            return libc::MAP_FAILED;
        }
        at.cast()
    }

    /// `madvise`. Huge pages are not advised for the low end of the slice: a
    /// small program lives there, and two huge pages are more than all it has.
    unsafe fn madvise(&self, at: *mut c_void, len: usize, advice: c_int) -> c_int {
        let skipped = if advice == libc::MADV_HUGEPAGE {
            self.space.huge_from().saturating_sub(at as usize)
        } else {
            0
        };
        if skipped >= len {
            return 0;
        }
        // SAFETY: `skipped` is less than `len`.
        let (at, len) = (unsafe { at.byte_add(skipped) }, len - skipped);
        let before = errno();
        // SAFETY: passed on from the caller.
        let outcome = unsafe { libc::madvise(at, len, advice) };
        let gives_back = matches!(advice, libc::MADV_DONTNEED | libc::MADV_FREE);
        if outcome != 0 && gives_back && errno() == libc::EINVAL {
            // The program has locked its memory; and `free` does not change `errno`.
            // SAFETY: as above.
            let again = unsafe { libc::madvise(at, len, libc::MADV_DONTNEED_LOCKED) };
            if again == 0 {
                set_errno(before);
            }
            return again;
        }
        outcome
    }

    unsafe fn munmap(&self, at: *mut c_void, len: usize) -> c_int {
        // SAFETY: passed on from the caller.
        if unsafe { self.space.unmap(at.cast(), len) } {
            return 0;
        }
        set_errno(libc::EINVAL);
        -1
    }

    /// `pthread_atfork`: kept, and called by our own handlers in one order with
    /// everything else. An allocator that started late would otherwise lock
    /// itself before the program's own handlers run, which may allocate.
    fn atfork(&self, handlers: ForkHandlers) -> c_int {
        let index = self.fork_sets.load(Acquire);
        // SAFETY: see `unsafe impl Sync`.
        let sets = unsafe { &mut *self.fork.get() };
        match sets.get_mut(index) {
            Some(set) => {
                *set = handlers;
                self.fork_sets.store(index + 1, Release);
                0
            }
            None => libc::ENOMEM,
        }
    }

    fn sets(&self) -> &[ForkHandlers] {
        // SAFETY: entries below `fork_sets` are never written again.
        unsafe { &*self.fork.get() }.get(..self.fork_sets.load(Acquire)).unwrap_or(&[])
    }

    /// Takes the allocator's locks, then the slice's: it asks for memory while it
    /// holds its own. No start is under way: `starting` is held.
    fn fork_prepare(&self, own: impl FnOnce()) {
        if self.is_ready() {
            own();
        }
        for set in self.sets().iter().rev() {
            if let Some(prepare) = set[0] {
                // SAFETY: the allocator registered it for this moment.
                unsafe { prepare() };
            }
        }
        self.space.fork_prepare();
    }

    /// # Safety
    /// The calling thread called `fork_prepare` before the fork.
    unsafe fn fork_done(&self, in_child: bool, own: impl FnOnce()) {
        // SAFETY: passed on from the caller.
        unsafe { self.space.fork_done() };
        // As in `fork_prepare`: it cannot have started since.
        if self.is_ready() {
            own();
        }
        for set in self.sets() {
            if let Some(done) = set[1 + usize::from(in_child)] {
                // SAFETY: the allocator registered it for this moment.
                unsafe { done() };
            }
        }
        // SAFETY: taken by the `fork_prepare` of all.
        unsafe { self.starting.release() };
    }
}

/// Defines what the objects of a hosted allocator call instead of libc: hidden
/// symbols that jump to functions here, so that no library exports them.
macro_rules! hooks {
    ($host:ident, $prefix:literal) => {
        mod hooks {
            use core::ffi::{c_int, c_void};

            use super::$host as HOST;
            use crate::hosted::ForkHandler;

            unsafe extern "C" fn mmap(
                hint: *mut c_void,
                len: usize,
                access: c_int,
                flags: c_int,
                fd: c_int,
                offset: libc::off_t,
            ) -> *mut c_void {
                // SAFETY: passed on from the allocator.
                unsafe { HOST.mmap(hint, len, access, flags, fd, offset) }
            }

            unsafe extern "C" fn munmap(at: *mut c_void, len: usize) -> c_int {
                // SAFETY: passed on from the allocator.
                unsafe { HOST.munmap(at, len) }
            }

            unsafe extern "C" fn madvise(at: *mut c_void, len: usize, advice: c_int) -> c_int {
                // SAFETY: passed on from the allocator.
                unsafe { HOST.madvise(at, len, advice) }
            }

            unsafe extern "C" fn mprotect(at: *mut c_void, len: usize, access: c_int) -> c_int {
                // SAFETY: passed on from the allocator.
                unsafe { libc::mprotect(at, len, access) }
            }

            /// There is no program break in a slice.
            extern "C" fn sbrk(_increment: libc::intptr_t) -> *mut c_void {
                crate::hosted::refuse_memory()
            }

            /// Moving mappings could leave the slice.
            extern "C" fn mremap() -> *mut c_void {
                crate::hosted::refuse_memory()
            }

            /// The vDSO may never end under a debugger.
            unsafe extern "C" fn clock_gettime(
                clock: libc::clockid_t,
                now: *mut libc::timespec,
            ) -> c_int {
                // SAFETY: passed on from the allocator.
                unsafe { spandrel_os::clock::gettime(clock, now) }
            }

            extern "C" fn pthread_atfork(
                prepare: ForkHandler,
                parent: ForkHandler,
                child: ForkHandler,
            ) -> c_int {
                HOST.atfork([prepare, parent, child])
            }

            $crate::hosted::trampoline!($prefix, "mmap", mmap);
            $crate::hosted::trampoline!($prefix, "munmap", munmap);
            $crate::hosted::trampoline!($prefix, "madvise", madvise);
            $crate::hosted::trampoline!($prefix, "mprotect", mprotect);
            $crate::hosted::trampoline!($prefix, "sbrk", sbrk);
            $crate::hosted::trampoline!($prefix, "mremap", mremap);
            $crate::hosted::trampoline!($prefix, "pthread_atfork", pthread_atfork);
            $crate::hosted::trampoline!($prefix, "clock_gettime", clock_gettime);
        }
    };
}
pub(crate) use hooks;

/// A hidden symbol that jumps to a function of ours.
macro_rules! trampoline {
    ($prefix:literal, $name:literal, $target:path) => {
        core::arch::global_asm!(
            concat!(".hidden ", $prefix, $name),
            concat!(".globl ", $prefix, $name),
            concat!(".type ", $prefix, $name, ",@function"),
            concat!($prefix, $name, ":"),
            "jmp {target}",
            concat!(".size ", $prefix, $name, ",.-", $prefix, $name),
            target = sym $target,
        );
    };
}
pub(crate) use trampoline;

#[cfg(feature = "jemalloc")]
mod jemalloc;
#[cfg(feature = "mimalloc")]
mod mimalloc;
#[cfg(feature = "tcmalloc")]
mod tcmalloc;
#[cfg(feature = "jemalloc")]
pub use jemalloc::Jemalloc;
#[cfg(feature = "mimalloc")]
pub use mimalloc::Mimalloc;
#[cfg(feature = "tcmalloc")]
pub use tcmalloc::Tcmalloc;

/// What `mmap` and its like answer when there is no memory.
pub(crate) fn refuse_memory() -> *mut c_void {
    set_errno(libc::ENOMEM);
    ptr::without_provenance_mut(usize::MAX)
}

/// Gives back the address space that hosted allocators do not use.
pub fn give_back_reserve() {
    #[cfg(feature = "jemalloc")]
    jemalloc::HOST.space.give_back_reserve(0);
    #[cfg(feature = "mimalloc")]
    mimalloc::HOST.space.give_back_reserve(0);
    #[cfg(feature = "tcmalloc")]
    tcmalloc::give_back_reserve();
}

/// Resident bytes of what hosted allocators have mapped.
pub fn resident_bytes() -> usize {
    let spaces: &[&Space] = &[
        #[cfg(feature = "jemalloc")]
        &jemalloc::HOST.space,
        #[cfg(feature = "mimalloc")]
        &mimalloc::HOST.space,
        #[cfg(feature = "tcmalloc")]
        &tcmalloc::HOST.space,
    ];
    spaces.iter().map(|space| space.resident()).sum()
}

/// Takes the locks of every hosted allocator that has started. Waits for starts
/// to end before that: they may allocate from each other.
pub fn fork_prepare() {
    #[cfg(feature = "jemalloc")]
    jemalloc::HOST.starting.acquire();
    #[cfg(feature = "mimalloc")]
    mimalloc::HOST.starting.acquire();
    #[cfg(feature = "tcmalloc")]
    tcmalloc::HOST.starting.acquire();
    #[cfg(feature = "jemalloc")]
    jemalloc::HOST.fork_prepare(|| ());
    #[cfg(feature = "mimalloc")]
    mimalloc::fork_prepare();
    #[cfg(feature = "tcmalloc")]
    tcmalloc::fork_prepare();
}

/// Gives them back.
///
/// # Safety
/// The calling thread called [`fork_prepare`] before the fork.
pub unsafe fn fork_done(in_child: bool) {
    // SAFETY: passed on from the caller.
    unsafe {
        #[cfg(feature = "tcmalloc")]
        tcmalloc::fork_done(in_child);
        #[cfg(feature = "mimalloc")]
        mimalloc::fork_done(in_child);
        #[cfg(feature = "jemalloc")]
        jemalloc::HOST.fork_done(in_child, || ());
    }
}
