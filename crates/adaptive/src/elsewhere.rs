//! Programs with an allocator of their own, in front of ours.
//!
//! A program that defines `malloc` itself, or has another library with one preloaded before ours, is served by
//! that one: the loader gives its names precedence. Nothing of ours is started for it. What it does not
//! define and ours does (`operator new`, `reallocarray`) ends up at the front allocator, as with glibc.
//!
//! The allocator in front may also pass requests on, to the next `malloc` after its own. It may put a header
//! before each object, so that an object that came through it must be freed through it. Then requests are
//! served here as ever, on the way on which they are looked at: nothing is short-cut on that way, and
//! the C++ operators look here first.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

use spandrel_os::modules::{LIBC, Module};

const UNKNOWN: u8 = 0;
/// Ours: the library's, or that of the program which it is linked into.
const OURS: u8 = 1;
/// glibc's: the library was opened late, or has no `malloc`.
const GLIBCS: u8 = 2;
const ELSEWHERE: u8 = 3;
/// The owner of the `malloc` that all files of the program call.
static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Whether this library has a `malloc`, and the program's requests go to another that is not glibc's.
#[inline]
pub fn is_elsewhere() -> bool {
    state() == ELSEWHERE
}

/// Whether this library's `malloc` is the one that the whole program calls.
pub fn is_in_front() -> bool {
    state() == OURS
}

#[inline]
fn state() -> u8 {
    match STATE.load(Relaxed) {
        UNKNOWN => look(),
        state => state,
    }
}

#[cold]
fn look() -> u8 {
    let front = front();
    let is_front = |module: &Module| module.addresses().contains(&front);
    // The library, or the program that it is linked into.
    let own = Module::around(look as *const () as usize);
    let state = match own {
        Some(own) if is_front(&own) => OURS,
        Some(own)
            if !Module::named(LIBC).is_some_and(|libc| is_front(&libc))
                && own.function(MALLOC).is_some() =>
        {
            ELSEWHERE
        }
        _ => GLIBCS,
    };
    STATE.store(state, Relaxed);
    state
}

const MALLOC: &CStr = c"malloc";

/// The address of the `malloc` that all files of the program call.
fn front() -> usize {
    let named: usize;
    // SAFETY: loads the address that the loader has for the name.
    unsafe {
        core::arch::asm!(
            "mov {named}, qword ptr [rip + malloc@GOTPCREL]",
            named = out(reg) named,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    // A program at a fixed address that takes the function's address has a stub of that name, which leads to the definition.
    let is_stub = Module::around(named).is_some_and(|module| module.function(MALLOC).is_none());
    let defined = || Module::defining(MALLOC)?.function(MALLOC);
    is_stub.then(defined).flatten().map_or(named, |function| function.addr().get())
}
