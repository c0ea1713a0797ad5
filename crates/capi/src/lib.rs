//! libspandrel: every allocation function of C and C++, and `spandrel.h`.
//!
//! One file per foreign interface. Invariants: the library exports what these
//! files define and nothing else; no function unwinds (but `operator new`,
//! which throws as C++ prescribes); `errno` is ENOMEM after a failure and
//! otherwise as it was.
//!
//! This room must never know how a request is served.
#![no_std]

mod alone;
mod api;
mod cxx;
mod dlopen;
mod elsewhere;
mod fork;
mod identity;
mod info;
mod init;
mod malloc;
mod monitor;
mod rlimit;
mod vfork;

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
// The only exception that passes through here is the one that `operator new`
// throws, and no frame on its way has anything to drop: go on unwinding
// (`_URC_CONTINUE_UNWIND`, 8).
core::arch::global_asm!(
    ".weak rust_eh_personality",
    ".hidden rust_eh_personality",
    "rust_eh_personality:",
    "mov eax, 8",
    "ret",
);
