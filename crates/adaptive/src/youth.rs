//! The first requests of a process in `auto`, which are glibc's.
//!
//! What starts the native allocator costs more time than a program like `ls` spends in any
//! allocator: reservations, tables, a page here and there of each. So it is started when a process
//! has asked for more than such programs do, or has a second thread; what glibc has given out by
//! then it frees, as the owner of every object does.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

use spandrel_os::live;
use spandrel_pages::live::Stage;
use spandrel_pages::{KIB, MIB};
use spandrel_policy::Mode;
use spandrel_sync::{Once, is_single_threaded};

use crate::modes;

/// Bytes that a process asks for in its youth, freed or not: more than `sh`, `ls`, `grep`, `make`, the
/// driver `gcc` or `perl -e 1` do in all their life, and little beside what any larger program holds.
const BYTES: usize = 256 * KIB;

/// The same of a child of a young process that forks, which mostly serves one connection or runs one command and ends: the start would
/// take as long as all of that.
const CHILD_BYTES: usize = 4 * MIB;

/// Set once, at the start, before any request is decided.
static IS_YOUNG: AtomicBool = AtomicBool::new(false);
static LEFT: AtomicUsize = AtomicUsize::new(BYTES);
static END: Once = Once::new();

/// The process is young from now on: nothing but glibc has been started.
pub(crate) fn begin() {
    live::set_mode(&Mode::Auto);
    live::set_stage(Stage::Young);
    IS_YOUNG.store(true, Relaxed);
}

/// In the child of a fork: if its parent is young it is so too, and has more time. Whether it is.
pub(crate) fn fork_child() -> bool {
    let is_young = IS_YOUNG.load(Relaxed);
    if is_young {
        LEFT.fetch_max(CHILD_BYTES, Relaxed);
    }
    is_young
}

/// Whether the process is young.
pub(crate) fn is_now() -> bool {
    IS_YOUNG.load(Relaxed)
}

/// Whether a request of `size` bytes is glibc's because the process is young.
pub(crate) fn lasts(size: usize) -> bool {
    if !IS_YOUNG.load(Relaxed) {
        return false;
    }
    // One thread: no other thread counts.
    let left = LEFT.load(Relaxed).checked_sub(size);
    match left.filter(|_| is_single_threaded()) {
        Some(left) => LEFT.store(left, Relaxed),
        None => end(),
    }
    // Still so for what the end itself asks for.
    IS_YOUNG.load(Relaxed)
}

/// Ends the youth of the process, if it is young: from now on it is in `auto` like any other.
pub(crate) fn end() {
    if IS_YOUNG.load(Relaxed) {
        END.run(|| {
            spandrel_backends::start_cpu_caches();
            // The pool is empty: the first mode always fits.
            let _ = modes::set_parsed(&Mode::Auto);
            IS_YOUNG.store(false, Release);
        });
    }
}
