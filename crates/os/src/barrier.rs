//! A memory barrier on all processors that run this process's threads.
//!
//! `membarrier(2)` moves the cost of a rare handshake to its rare side: the
//! frequent side needs no locked instruction.

use core::sync::atomic::{AtomicU8, Ordering::*};

use crate::degrade::{Optional, refused};
use crate::env::{errno, set_errno};

const UNKNOWN: u8 = 0;
const REGISTERED: u8 = 1;
const MISSING: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);

const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

fn membarrier(command: libc::c_int) -> Result<(), i32> {
    let before = errno();
    // SAFETY: a barrier touches no memory.
    let failed = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) } != 0;
    let outcome = if failed { Err(errno()) } else { Ok(()) };
    set_errno(before);
    outcome
}

/// Whether the kernel offers the barrier; registers the process at first.
pub fn available() -> bool {
    match STATE.load(Relaxed) {
        REGISTERED => true,
        MISSING => false,
        _ => {
            let outcome = membarrier(REGISTER_PRIVATE_EXPEDITED);
            if let Err(errno) = outcome {
                refused(Optional::Membarrier, errno);
            }
            STATE.store(if outcome.is_ok() { REGISTERED } else { MISSING }, Relaxed);
            outcome.is_ok()
        }
    }
}

/// A full barrier on every processor that runs a thread of this process. False:
/// there was none.
pub fn all_processors() -> bool {
    let outcome = match membarrier(PRIVATE_EXPEDITED) {
        // A child of a fork may have to register for itself.
        Err(libc::EPERM) => {
            membarrier(REGISTER_PRIVATE_EXPEDITED).and_then(|()| membarrier(PRIVATE_EXPEDITED))
        }
        outcome => outcome,
    };
    if let Err(errno) = outcome {
        refused(Optional::Membarrier, errno);
        STATE.store(MISSING, Relaxed);
    }
    outcome.is_ok()
}
