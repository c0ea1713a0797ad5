//! What was done wrong, to which object, and where that came from.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering::*};

use spandrel_os::message::{Bytes, say};

use super::{BASE, OBJECT_BYTES, Record, SLOT, SLOT_BYTES, SLOTS, State};
use crate::stack::{Place, Stack};

/// Something that a correct program does not do.
pub enum Accident {
    /// An object is given back that was given back.
    EndedTwice {
        /// By which function.
        call: &'static str,
    },
    /// An address within an object, or beside it, is taken for its beginning.
    NotItsBeginning {
        /// By which function.
        call: &'static str,
    },
    /// The bytes behind the object were written to.
    WrittenBehind,
}

/// Says what was done to the object, and ends the process.
pub fn end(accident: &Accident, record: &Record, address: usize) -> ! {
    let size = Bytes(record.size);
    match accident {
        Accident::EndedTwice { call } => {
            say(format_args!("{call}({address:#x}): freed twice (an object of {size})"));
        }
        Accident::NotItsBeginning { call } => say(format_args!(
            "{call}({address:#x}): not the beginning of an object ({} of {size})",
            Beside { address, record }
        )),
        Accident::WrittenBehind => say(format_args!(
            "buffer overflow: the bytes behind an object of {size} at {address:#x} were \
             written to before it was freed"
        )),
    }
    Stack::here().tell("found");
    history(record);
    abort()
}

/// An address of the slice where no object is or was.
pub fn nowhere(call: &str, address: usize) -> ! {
    say(format_args!("{call}({address:#x}): no object was ever there"));
    abort()
}

fn abort() -> ! {
    // SAFETY: abort has no preconditions.
    unsafe { libc::abort() }
}

fn history(record: &Record) {
    if record.state == State::Ended {
        record.ended.tell("freed");
    }
    record.born.tell("allocated");
}

/// Where an address lies, seen from an object.
struct Beside<'a> {
    address: usize,
    record: &'a Record,
}

impl core::fmt::Display for Beside<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (from, end) = (self.record.address, self.record.address + self.record.size);
        match self.address {
            at if at < from => write!(f, "{} before an object", Bytes(from - at)),
            at if at >= end => write!(f, "{} behind the end of an object", Bytes(at - end)),
            at => write!(f, "{} from the beginning of an object", Bytes(at - from)),
        }
    }
}

/// What was there before, for faults that are none of ours.
struct Before(UnsafeCell<MaybeUninit<libc::sigaction>>);

// SAFETY: written once, before the handler is there that reads it.
unsafe impl Sync for Before {}

static BEFORE: Before = Before(UnsafeCell::new(MaybeUninit::zeroed()));
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Has faults in guarded pages reported. A program that handles such faults itself later on gets
/// them unreported.
pub fn install() {
    // SAFETY: all-zero is a valid value; the handler lives as long as the code.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        libc::sigemptyset(&mut action.sa_mask);
        let before = (*BEFORE.0.get()).as_mut_ptr();
        INSTALLED.store(libc::sigaction(libc::SIGSEGV, &action, before) == 0, Release);
    }
}

/// A fault: told if it is in a guarded page; then the handler before this one has it, as the
/// program returns to where it happens again.
extern "C" fn on_fault(_signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives both to a handler of this kind.
    let (address, context) =
        unsafe { ((*info).si_addr() as usize, &*context.cast::<libc::ucontext_t>()) };
    let base = BASE.load(Acquire);
    if (base..base + SLOTS * SLOT_BYTES + OBJECT_BYTES).contains(&address) {
        tell(address, base, context);
    }
    // SAFETY: what was there before was written before this handler was there.
    unsafe { libc::sigaction(libc::SIGSEGV, (*BEFORE.0.get()).as_ptr(), core::ptr::null_mut()) };
}

fn tell(address: usize, base: usize, context: &libc::ucontext_t) {
    // Bit 1 of the page fault's error code.
    let is_write = context.uc_mcontext.gregs[libc::REG_ERR as usize] & 2 != 0;
    let how = if is_write { "write" } else { "read" };
    // Held, perhaps, by the thread that is here.
    let slots = SLOT.try_lock();
    // Before the first object of a slot are the pages behind the last one's.
    let slot = (address - base) / SLOT_BYTES;
    let in_slot = (address - base) % SLOT_BYTES;
    let records = slots.as_ref().map(|slots| &slots.records);
    let own = records.and_then(|records| records.get(slot));
    let last = records.and_then(|records| records.get(slot.checked_sub(1)?));
    let is_used = |record: &&Record| record.state != State::Unused;
    let near = match (last.filter(is_used), own.filter(is_used)) {
        // In the guard between two: the nearer one.
        (Some(last), Some(own)) if in_slot < OBJECT_BYTES => {
            let behind = address - (last.address + last.size).min(address);
            if behind <= own.address - address { Some(last) } else { Some(own) }
        }
        (Some(last), None) if in_slot < OBJECT_BYTES => Some(last),
        (_, own) => own,
    };
    let Some(record) = near else {
        say(format_args!("{how} of {address:#x}, near guarded objects"));
        return;
    };
    let what = match record.state {
        State::Ended if in_slot >= OBJECT_BYTES => "use after free",
        _ if address < record.address => "buffer underflow",
        _ => "buffer overflow",
    };
    let place = Beside { address, record };
    say(format_args!("{what}: {how} of {address:#x}, {place} of {}", Bytes(record.size)));
    let at = context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize;
    say(format_args!("  at {}", Place(at)));
    Stack::here().beyond(at).tell("found");
    history(record);
}
