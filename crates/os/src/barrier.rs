//! A memory barrier on all processors that run this process's threads.
//!
//! `membarrier(2)` moves the cost of a rare handshake to its rare side: the
//! frequent side needs no locked instruction. The same call sends a thread in the
//! middle of a restartable sequence back to its beginning.

use core::sync::atomic::{AtomicBool, AtomicU8, Ordering::*};

use crate::call::call;
use crate::degrade::{Optional, refused};

const UNKNOWN: u8 = 0;
const REGISTERED: u8 = 1;
const MISSING: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);

const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

const PRIVATE_EXPEDITED_RSEQ: libc::c_int = 1 << 7;
const REGISTER_PRIVATE_EXPEDITED_RSEQ: libc::c_int = 1 << 8;
/// `processor` counts.
const FLAG_CPU: libc::c_int = 1;

fn membarrier(command: libc::c_int) -> Result<(), i32> {
    membarrier_at(command, 0, 0)
}

fn membarrier_at(command: libc::c_int, flags: libc::c_int, processor: usize) -> Result<(), i32> {
    let arguments = [command as usize, flags as usize, processor];
    // SAFETY: a barrier touches no memory.
    unsafe { call(libc::SYS_membarrier, arguments) }.map(drop)
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

/// Whether the kernel has not refused [`restart`] yet.
static RESTARTS: AtomicBool = AtomicBool::new(true);

/// Registers the process for [`restart`], which takes milliseconds in a process of
/// several threads. False: the kernel does not offer that (before 5.10).
pub fn prepare_restarts() -> bool {
    let outcome = membarrier(REGISTER_PRIVATE_EXPEDITED_RSEQ);
    if let Err(errno) = outcome {
        refused(Optional::Restart, errno);
        RESTARTS.store(false, Relaxed);
    }
    outcome.is_ok()
}

/// A full barrier on a processor, and the thread that runs there is restarted if it is in
/// the middle of a restartable sequence. False: the kernel does not offer that.
pub fn restart(processor: usize) -> bool {
    if !RESTARTS.load(Relaxed) {
        return false;
    }
    let now = || membarrier_at(PRIVATE_EXPEDITED_RSEQ, FLAG_CPU, processor);
    let outcome = match now() {
        Err(libc::EPERM) => membarrier(REGISTER_PRIVATE_EXPEDITED_RSEQ).and_then(|()| now()),
        outcome => outcome,
    };
    if let Err(errno) = outcome {
        refused(Optional::Restart, errno);
        RESTARTS.store(false, Relaxed);
    }
    outcome.is_ok()
}
