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
    /// The thread is the one for work beside the program, and the C library does not know it.
    pub is_beside: Cell<bool>,
    /// Locks that the thread of a program of one thread holds; see `turns`.
    pub locks_held: Cell<u32>,
    /// The thread gets through no restartable sequence: a debugger steps through it.
    pub is_stepped: Cell<bool>,
    /// The thread's code is translated: see [`Sequences`].
    pub is_translated: Cell<bool>,
}

/// [`ThreadSlot::cache`] of a thread that caches nothing (any more).
pub const NO_CACHE: usize = 1;

/// How deeply scopes may be nested through the C interface.
const C_SCOPES: usize = 24;

#[cfg(not(target_arch = "x86_64"))]
compile_error!("Spandrel runs on x86-64 Linux");

/// What the slot is called, for code that names it in instructions.
#[cfg(not(feature = "apart"))]
#[macro_export]
macro_rules! slot_name {
    () => {
        "spandrel_thread_slot"
    };
}

/// What the slot is called where another library of ours may be in the same program: each has slots of its own.
#[cfg(feature = "apart")]
#[macro_export]
macro_rules! slot_name {
    () => {
        "spandrel_thread_slot_apart"
    };
}

core::arch::global_asm!(
    concat!(".pushsection .tbss.", slot_name!(), ",\"awT\",@nobits"),
    ".balign 64",
    concat!(".hidden ", slot_name!()),
    concat!(".globl ", slot_name!()),
    concat!(".type ", slot_name!(), ",@object"),
    concat!(".size ", slot_name!(), ",128"),
    concat!(slot_name!(), ":"),
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
            concat!("add {slot}, qword ptr [rip + ", slot_name!(), "@GOTTPOFF]"),
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
                concat!("mov {scope}, qword ptr [rip + ", slot_name!(), "@GOTTPOFF]"),
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
                concat!("mov {pointer}, qword ptr [rip + ", slot_name!(), "@GOTTPOFF]"),
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

/// Has the calling thread go without restartable sequences until it is dropped: it has a cache of its own meanwhile. Its code is translated, and starts no thread for work beside the
/// program: not all system calls of that are known to the translation.
#[derive(Debug)]
pub struct Sequences {
    cpu: *mut c_void,
    was_stepped: bool,
    was_translated: bool,
}

impl Sequences {
    /// None from now on.
    pub fn none() -> Self {
        let slot = thread_slot();
        let was_stepped = slot.is_stepped.replace(true);
        let was_translated = slot.is_translated.replace(true);
        Self { cpu: slot.cpu.replace(core::ptr::null_mut()), was_stepped, was_translated }
    }
}

impl Drop for Sequences {
    fn drop(&mut self) {
        let slot = thread_slot();
        slot.is_stepped.set(self.was_stepped);
        slot.is_translated.set(self.was_translated);
        slot.cpu.set(self.cpu);
    }
}
