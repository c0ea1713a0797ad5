//! The thread slot: what Spandrel keeps per thread, one instruction away.
//!
//! `std::thread_local!` in a shared library compiles to `__tls_get_addr`, which
//! may itself call malloc. An initial-exec slot is an offset from `fs`, known
//! when the library is loaded; stable Rust declares it through assembly.

use core::cell::Cell;
use core::ffi::c_void;

/// What Spandrel keeps for each thread; zero when a thread begins.
#[repr(C)]
pub struct ThreadSlot {
    /// The policy table of the innermost scope; null means the process's.
    pub scope: Cell<*const c_void>,
    /// Scopes entered through the C interface.
    pub c_depth: Cell<u8>,
    /// What each of them replaced, by index: C has no destructor to keep it in.
    pub c_scopes: [Cell<u8>; C_SCOPES],
    /// The page-mapped backend's expectation that new objects will grow: how often it
    /// was wrong.
    pub early_misses: Cell<u8>,
    /// What marks the objects given because of it; 0 before the first.
    pub early_mark: Cell<u8>,
    /// Requests that went the slow way, modulo 256.
    pub slow_requests: Cell<u8>,
    /// Objects that showed since then that it would have been right.
    pub early_wanted: Cell<u16>,
    /// The slot last given because of it, by a number; 0 for none.
    pub early_slot: Cell<u32>,
    /// The thread's number in a recording; 0 before its first event.
    pub recorded_as: Cell<u32>,
    /// The native allocator's cache of free objects.
    pub cache: Cell<*mut c_void>,
    /// The thread's area for restartable sequences, if the native allocator has
    /// caches for each processor.
    pub cpu: Cell<*mut c_void>,
    /// Caches of free objects of recoverable heaps, a row of them.
    pub heaps: Cell<*mut c_void>,
}

/// [`ThreadSlot::cache`] of a thread that caches nothing (any more).
pub const NO_CACHE: usize = 1;

/// How deeply scopes may be nested through the C interface.
const C_SCOPES: usize = 24;

#[cfg(not(target_arch = "x86_64"))]
compile_error!("Spandrel runs on x86-64 Linux");

core::arch::global_asm!(
    ".pushsection .tbss.spandrel_thread_slot,\"awT\",@nobits",
    ".balign 64",
    ".hidden spandrel_thread_slot",
    ".globl spandrel_thread_slot",
    ".type spandrel_thread_slot,@object",
    ".size spandrel_thread_slot,128",
    "spandrel_thread_slot:",
    ".zero 128",
    ".popsection",
);

const _: () = assert!(size_of::<ThreadSlot>() <= 128);

/// The calling thread's slot. Valid from a thread's first to its last
/// instruction, destructors included.
#[inline(always)]
pub fn thread_slot() -> &'static ThreadSlot {
    let slot: *const ThreadSlot;
    // SAFETY: the first word of the thread control block is its own address;
    // the assembler's offset to the slot is fixed when the module is loaded.
    // The reference is `'static` only to this thread: the type is not `Sync`,
    // so it cannot leave it.
    unsafe {
        core::arch::asm!(
            "mov {slot}, qword ptr fs:[0]",
            "add {slot}, qword ptr [rip + spandrel_thread_slot@GOTTPOFF]",
            slot = out(reg) slot,
            options(pure, readonly, nostack),
        );
        &*slot
    }
}

/// One field each: two instructions, for the hot path.
impl ThreadSlot {
    /// The current thread's scope table; null means the process's table.
    #[inline(always)]
    pub fn current_scope() -> *const c_void {
        let scope: *const c_void;
        // SAFETY: as in `thread_slot`; `scope` is the slot's first field.
        unsafe {
            core::arch::asm!(
                "mov {scope}, qword ptr [rip + spandrel_thread_slot@GOTTPOFF]",
                "mov {scope}, qword ptr fs:[{scope}]",
                scope = out(reg) scope,
                options(readonly, nostack, preserves_flags),
            );
        }
        scope
    }

    /// The current thread's [`ThreadSlot::cache`].
    #[inline(always)]
    pub fn current_cache() -> *mut c_void {
        Self::pointer_at::<{ core::mem::offset_of!(ThreadSlot, cache) }>()
    }

    /// The current thread's [`ThreadSlot::cpu`].
    #[inline(always)]
    pub fn current_cpu() -> *mut c_void {
        Self::pointer_at::<{ core::mem::offset_of!(ThreadSlot, cpu) }>()
    }

    /// The current thread's [`ThreadSlot::heaps`].
    #[inline(always)]
    pub fn current_heaps() -> *mut c_void {
        Self::pointer_at::<{ core::mem::offset_of!(ThreadSlot, heaps) }>()
    }

    #[inline(always)]
    fn pointer_at<const OFFSET: usize>() -> *mut c_void {
        let pointer: *mut c_void;
        // SAFETY: as in `thread_slot`.
        unsafe {
            core::arch::asm!(
                "mov {pointer}, qword ptr [rip + spandrel_thread_slot@GOTTPOFF]",
                "mov {pointer}, qword ptr fs:[{pointer} + {offset}]",
                pointer = out(reg) pointer,
                offset = const OFFSET,
                options(readonly, nostack, preserves_flags),
            );
        }
        pointer
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn every_thread_has_its_own_zeroed_slot() {
        let mark = 0x1000 as *const c_void;
        thread_slot().scope.set(mark);
        assert_eq!(ThreadSlot::current_scope(), mark);
        std::thread::spawn(|| {
            assert!(ThreadSlot::current_scope().is_null());
            assert_eq!(thread_slot().c_depth.get(), 0);
            thread_slot().scope.set(0x2000 as *const c_void);
        })
        .join()
        .unwrap();
        assert_eq!(ThreadSlot::current_scope(), mark);
        thread_slot().scope.set(core::ptr::null());
    }
}
