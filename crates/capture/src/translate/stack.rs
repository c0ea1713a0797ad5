//! Memory of the translator itself: nothing of the program's.

use core::ptr::NonNull;

use spandrel_os::vm;

use crate::Refused;

/// Bytes of the stack that the translator runs on: as many as a program's own has, as handlers of signals may run there. Pages that are not used take no memory.
pub const STACK_BYTES: usize = 8 << 20;
/// Bytes below the translator's that nothing may touch.
pub const GUARD_BYTES: usize = 1 << 20;

/// Memory of zeroes.
///
/// # Errors
/// [`Refused::Memory`].
pub fn open(bytes: usize) -> Result<NonNull<u8>, Refused> {
    let at = vm::reserve_small(bytes).ok_or(Refused::Memory)?;
    // SAFETY: reserved by the call above.
    if unsafe { vm::open(at.as_ptr(), bytes) } { Ok(at) } else { Err(Refused::Memory) }
}

/// The stack, behind bytes that cannot be used.
///
/// # Errors
/// As above.
pub fn open_guarded() -> Result<NonNull<u8>, Refused> {
    let at = vm::reserve_small(GUARD_BYTES + STACK_BYTES).ok_or(Refused::Memory)?;
    // SAFETY: reserved by the call above.
    let is_open = unsafe { vm::open(at.as_ptr().add(GUARD_BYTES), STACK_BYTES) };
    if is_open { Ok(at) } else { Err(Refused::Memory) }
}
