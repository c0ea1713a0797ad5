//! `vfork`: the child runs on the parent's thread slot, and is not its thread.
//!
//! The kernel has no restartable sequences for the child, whose processor the
//! parent's area does not tell. So as long as the child has the slot it caches
//! nothing: what it allocates and frees in spite of POSIX goes the long way,
//! under locks.

use core::arch::naked_asm;
use core::mem::offset_of;

use spandrel_sync::{NO_CACHE, ThreadSlot};

/// POSIX `vfork`.
///
/// # Safety
/// As for the C library's: it returns twice.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn vfork() -> libc::pid_t {
    naked_asm!(
        // The child returns first and overwrites what lies above: the parent's way back
        // is in a register meanwhile, as is all that it needs.
        "pop rdi",
        concat!("mov r8, qword ptr [rip + ", spandrel_sync::slot_name!(), "@GOTTPOFF]"),
        "mov rsi, qword ptr fs:[r8 + {cpu}]",
        "mov rdx, qword ptr fs:[r8 + {cache}]",
        "mov qword ptr fs:[r8 + {cpu}], 0",
        "mov qword ptr fs:[r8 + {cache}], {no_cache}",
        "mov eax, {number}",
        "syscall",
        "push rdi",
        "test eax, eax",
        "jz 2f",
        "mov qword ptr fs:[r8 + {cpu}], rsi",
        "mov qword ptr fs:[r8 + {cache}], rdx",
        "js 3f",
        "2:",
        "ret",
        "3:",
        "neg eax",
        "push rax",
        "call qword ptr [rip + __errno_location@GOTPCREL]",
        "pop rcx",
        "mov dword ptr [rax], ecx",
        "mov eax, -1",
        "ret",
        cpu = const offset_of!(ThreadSlot, cpu),
        cache = const offset_of!(ThreadSlot, cache),
        no_cache = const NO_CACHE,
        number = const libc::SYS_vfork,
    );
}

/// The C library's other name for it.
///
/// # Safety
/// As for [`vfork`].
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn __vfork() -> libc::pid_t {
    // The child must not return through a frame that is no more: there is none.
    naked_asm!("jmp {vfork}", vfork = sym vfork)
}
