//! Objects that are none: said, and the end.

use spandrel_os::message::say;

use crate::class::CLASS;
use crate::span::Wrong;

/// An address of a small object's page that cannot be given back.
#[cold]
pub fn wrong(object: usize, class: usize, wrong: Wrong) -> ! {
    let size = CLASS[class].size;
    match wrong {
        Wrong::FreeAlready => {
            say(format_args!("free({object:#x}): freed twice (an object of {size} bytes)"))
        }
        Wrong::Inside => say(format_args!(
            "free({object:#x}): not the beginning of an object (among objects of {size} bytes)"
        )),
    }
    abort()
}

/// An address inside a large object.
#[cold]
pub fn inside(object: usize, bytes: usize) -> ! {
    say(format_args!("free({object:#x}): not the beginning of an object (of {bytes} bytes)"));
    abort()
}

/// An address of the slice where no object is.
#[cold]
pub fn nowhere(call: &str, object: usize) -> ! {
    say(format_args!(
        "{call}({object:#x}): not a live object of the native allocator (freed twice, or never allocated)"
    ));
    abort()
}

fn abort() -> ! {
    // SAFETY: abort has no preconditions.
    unsafe { libc::abort() }
}
