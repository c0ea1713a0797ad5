//! libspandrel_heap: the recoverable heap for C and C++, `spandrel_heap.h`.
//!
//! A library of its own: a program that uses a recoverable heap need not load another malloc with it.
//!
//! Invariants: the library exports what these files define and nothing else; no function unwinds; what fails says why, in
//! `errno` and as text, and leaves the heap as it was.
//!
//! This room must never know how a heap is laid out.
#![no_std]

mod collect;
mod copy;
mod failure;
mod handle;
mod objects;
mod open;
mod options;
mod places;
mod roots;
mod trace;
mod types;

use core::panic::PanicInfo;

/// A panic here is a defect of ours: say where, and end as `abort` does. There
/// is no unwinding into C.
#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    spandrel_os::message::say(format_args!("internal error: {info}"));
    // SAFETY: abort has no preconditions.
    unsafe { libc::abort() }
}

// The core library is compiled for unwinding and names the personality routine.
// Nothing unwinds through here: the routine ends a process that tries
// (`_URC_FATAL_PHASE1_ERROR`, 3).
core::arch::global_asm!(
    ".weak rust_eh_personality",
    ".hidden rust_eh_personality",
    "rust_eh_personality:",
    "mov eax, 3",
    "ret",
);
