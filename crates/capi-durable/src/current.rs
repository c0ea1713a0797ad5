//! The command that the calling thread runs.
//!
//! It lies in initial-exec storage of 64 bytes, which the hooks read before each store of a program; see `spandrel_sync::slot`.

use core::cell::Cell;
use core::ptr;

use spandrel::durable::Arena;
use spandrel_durable::notes::BatchNotes;
use spandrel_pmem::Notes;

use crate::failure::Failure;
use crate::handle::SpandrelDurable;

/// What a thread does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A command that reads.
    Read,
    /// A command that writes, or `init`.
    Write,
}

/// The command of a thread. All zeroes, which the storage of a thread begins with: none.
#[repr(C)]
struct Current {
    /// Where the reserved addresses of the state begin that the thread may change, and how many these are. 0 bytes: none.
    base: Cell<usize>,
    bytes: Cell<usize>,
    /// Null: the code of the command is translated, and its stores are noted there.
    notes: Cell<*const BatchNotes>,
    /// Null: the thread runs no command.
    handle: Cell<*const SpandrelDurable>,
    arena: Cell<*const Arena>,
    /// The stack pointer when the command was called.
    stack: Cell<usize>,
    /// What the command allocates is the process's.
    is_outside: Cell<bool>,
}

const CURRENT_BYTES: usize = 64;
const _: () = assert!(size_of::<Current>() <= CURRENT_BYTES);

core::arch::global_asm!(
    ".pushsection .tbss.spandrel_durable_current,\"awT\",@nobits",
    ".balign 64",
    ".hidden spandrel_durable_current",
    ".globl spandrel_durable_current",
    ".type spandrel_durable_current,@object",
    ".size spandrel_durable_current,{bytes}",
    "spandrel_durable_current:",
    ".zero {bytes}",
    ".popsection",
    bytes = const CURRENT_BYTES,
);

/// This thread's own. The type is not `Sync`, so that the reference cannot leave the thread.
#[inline(always)]
fn current() -> &'static Current {
    let current: *const Current;
    // SAFETY: the first word of the thread control block is its own address; the offset from it is fixed when the library is loaded. The storage is
    // zero until it is written, and zeroes are a value of the type.
    unsafe {
        core::arch::asm!(
            "mov {current}, qword ptr fs:[0]",
            "add {current}, qword ptr [rip + spandrel_durable_current@GOTTPOFF]",
            current = out(reg) current,
            options(pure, readonly, nostack),
        );
        &*current
    }
}

/// Of the function that it is inlined into.
#[inline(always)]
fn stack_pointer() -> usize {
    let at;
    // SAFETY: reads a register.
    unsafe { core::arch::asm!("mov {}, rsp", out(reg) at, options(nomem, nostack)) };
    at
}

/// Notes a store of the calling thread, if it runs a command that writes and the store lies in its state. False: it does not.
#[inline(always)]
pub fn note(at: usize, bytes: usize) -> bool {
    let current = current();
    let is_inside = at.wrapping_sub(current.base.get()) < current.bytes.get();
    // SAFETY: a state that has a command outlives it, and the notes are the state's.
    if is_inside && let Some(notes) = unsafe { current.notes.get().as_ref() } {
        notes.note(at as *const u8, bytes);
    }
    is_inside
}

/// The same in a native function that translated code calls.
pub fn note_native(at: usize, bytes: usize) {
    let current = current();
    if at.wrapping_sub(current.base.get()) < current.bytes.get() {
        // SAFETY: a state that has a command outlives it, as does its arena.
        unsafe { (*current.arena.get()).medium().notes().note(at as *const u8, bytes) };
    }
}

/// Ends the command of the thread when it is dropped.
pub struct Running(());

impl Drop for Running {
    fn drop(&mut self) {
        let current = current();
        current.bytes.set(0);
        current.handle.set(ptr::null());
    }
}

/// The calling thread runs a command of that kind from now on.
///
/// # Safety
/// The handle and the arena outlive what is returned, and no command of the thread runs. The caller calls the command itself: all frames of the command lie
/// below the caller's.
#[inline(always)]
pub unsafe fn begin(handle: *const SpandrelDurable, arena: *const Arena, kind: Kind) -> Running {
    let current = current();
    // SAFETY: promised by the caller.
    let memory = unsafe { (*arena).medium() };
    let (base, reserved) = memory.reserved();
    current.base.set(base.as_ptr() as usize);
    current.bytes.set(if kind == Kind::Write { reserved } else { 0 });
    let is_translated = memory.notes().how().is_translated();
    current.notes.set(if is_translated { ptr::null() } else { memory.notes() });
    current.arena.set(arena);
    current.is_outside.set(false);
    current.stack.set(stack_pointer());
    current.handle.set(handle);
    Running(())
}

/// In the place of a handle: the thread's first batch lasts from load until init.
const EARLY: *const SpandrelDurable = ptr::without_provenance(1);

/// The calling thread allocates in that arena, and stores to it, until [`end_early`].
///
/// # Safety
/// The arena outlives that, its first batch is the thread's, and no command of the thread runs.
pub unsafe fn begin_early(arena: *const Arena) {
    let current = current();
    // SAFETY: promised by the caller.
    let memory = unsafe { (*arena).medium() };
    let (base, reserved) = memory.reserved();
    current.base.set(base.as_ptr() as usize);
    current.notes.set(memory.notes());
    current.arena.set(arena);
    // Above all frames of the thread.
    current.stack.set(usize::MAX);
    current.handle.set(EARLY);
    current.bytes.set(reserved);
}

/// Ends what [`begin_early`] has begun, if the thread has.
pub fn end_early() {
    if current().handle.get() == EARLY {
        drop(Running(()));
    }
}

/// The arena whose objects the thread resizes and frees: that of its command, if that writes. A child of a fork has none.
#[inline(always)]
pub fn writes<'a>() -> Option<&'a Arena> {
    let current = current();
    // SAFETY: the arena outlives the command.
    let arena = (current.bytes.get() != 0).then(|| unsafe { &*current.arena.get() })?;
    (!arena.is_forked()).then_some(arena)
}

/// The arena that the thread allocates in: as [`writes`], but for the time of [`Outside`].
#[inline(always)]
pub fn allocates<'a>() -> Option<&'a Arena> {
    writes().filter(|_| !current().is_outside.get())
}

/// What the thread's command allocates is the process's until this is dropped.
pub struct Outside {
    was_outside: bool,
}

impl Outside {
    pub fn enter() -> Self {
        Self { was_outside: current().is_outside.replace(true) }
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        current().is_outside.set(self.was_outside);
    }
}

/// Refuses what no command may call. Ends the process if it finds that a command of the thread was left by `longjmp`: the command holds the state's gate, and
/// has left half of its stores.
///
/// # Errors
/// [`Failure::Nested`], [`Failure::Early`].
#[inline(always)]
pub fn check_outside() -> Result<(), Failure> {
    let current = current();
    if current.handle.get().is_null() {
        // A handler of a signal that has come while a call of its thread waits.
        return if spandrel::durable::is_inside() { Err(Failure::Nested) } else { Ok(()) };
    }
    if stack_pointer() >= current.stack.get() {
        crate::failure::end("a command of a durable state was left by longjmp");
    }
    Err(if current.handle.get() == EARLY { Failure::Early } else { Failure::Nested })
}

/// The arena of the command of that handle that the thread runs.
///
/// # Errors
/// [`Failure::Outside`], [`Failure::Other`]; [`Failure::Reads`]: it may not change the state, which `kind` says it is going to.
pub fn arena<'a>(handle: *const SpandrelDurable, kind: Kind) -> Result<&'a Arena, Failure> {
    let current = current();
    let its = current.handle.get();
    if handle.is_null() {
        return Err(Failure::Null);
    }
    if its.is_null() {
        return Err(Failure::Outside);
    }
    if its != handle {
        return Err(Failure::Other);
    }
    if kind == Kind::Write && current.bytes.get() == 0 {
        return Err(Failure::Reads);
    }
    // SAFETY: it outlives the command, as `begin` has it.
    Ok(unsafe { &*current.arena.get() })
}

/// Whether the thread runs a command.
#[inline(always)]
pub fn is_inside() -> bool {
    !current().handle.get().is_null()
}

/// Whether the thread runs a command of that handle.
pub fn is_of(handle: *const SpandrelDurable) -> bool {
    !handle.is_null() && current().handle.get() == handle
}
