//! Programs with an allocator of their own, in front of ours.
//!
//! A program that defines `malloc` itself, or has another library with one preloaded before ours, is served by
//! that one: the loader gives its names precedence. Nothing of ours is started for it. What it does not
//! define and ours does (`operator new`, `reallocarray`) ends up at the front allocator, as with glibc.
//!
//! The allocator in front may also pass requests on, to the next `malloc` after its own. It may put a header
//! before each object, so that what came through it must not go back past it. Then requests are
//! served here as ever, on the way on which they are looked at: nothing is short-cut on that way, and
//! the C++ operators look here first.

use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

use spandrel_os::modules::{LIBC, Module};

const UNKNOWN: u8 = 0;
const HERE: u8 = 1;
const ELSEWHERE: u8 = 2;
static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Whether this library has a `malloc`, and the program's requests go to another that is not glibc's.
#[inline]
pub fn is_elsewhere() -> bool {
    match STATE.load(Relaxed) {
        UNKNOWN => look(),
        state => state == ELSEWHERE,
    }
}

#[cold]
fn look() -> bool {
    let front: usize;
    // SAFETY: loads the address that the loader has for the name: what all files of the program call.
    unsafe {
        core::arch::asm!(
            "mov {front}, qword ptr [rip + malloc@GOTPCREL]",
            front = out(reg) front,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    let is_front = |module: &Module| module.addresses().contains(&front);
    // The library, or the program that it is linked into. There a `malloc` is ours, or ours is not in use.
    let own = Module::around(look as *const () as usize);
    let elsewhere = own.is_some_and(|own| !is_front(&own) && own.function(c"malloc").is_some())
        && !Module::named(LIBC).is_some_and(|libc| is_front(&libc));
    STATE.store(if elsewhere { ELSEWHERE } else { HERE }, Relaxed);
    elsewhere
}
