//! Objects of the state that a library keeps for the whole process: a variable of the library leads to one, or one of the thread that has run the command. The object is gone when the
//! command is undone, or the state closed, and the variable still leads there.
//!
//! - What the C library and the C++ library keep is the process's ([`owner`]): any object of a state that one of their variables leads to is said.
//! - Another library may keep what the program gives it. That is said where the object was undone.
//!
//! All variables are read after the first command, the second one, the fourth one and so on, and as often after those that are refused. Memory that a variable leads to is not looked at.

use std::fmt;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use spandrel::durable::{Arena, LoadedPlace};
use spandrel_os::message::say;
use spandrel_os::modules::Module;

use super::owner;

/// Words that are read at a time.
const WORDS: usize = 8 << 10;
/// Bytes of one range of variables that are read.
const MOST_BYTES: usize = 16 << 20;
/// Variables that are said.
const MOST_SAID: usize = 16;

/// A variable of a library with the address of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kept {
    /// Where the variable lies.
    at: usize,
    object: usize,
    /// An address of the library.
    library: usize,
    is_cs: bool,
}

/// Calls `see` with each word of a range, and where it lies. Memory that cannot be read is left out: a library may have protected a part of its variables.
fn each_word(range: Range<usize>, see: &mut dyn FnMut(usize, usize)) {
    let mut words = vec![0usize; WORDS];
    let start = range.start.next_multiple_of(size_of::<usize>());
    let end = range.end.min(start.saturating_add(MOST_BYTES));
    for at in (start..end).step_by(WORDS * size_of::<usize>()) {
        let bytes = (end - at).min(WORDS * size_of::<usize>());
        let into = libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: bytes };
        let from = libc::iovec { iov_base: ptr::with_exposed_provenance_mut(at), iov_len: bytes };
        // SAFETY: the kernel looks at what it reads, and writes to words of this function's own.
        let read = unsafe { libc::process_vm_readv(libc::getpid(), &into, 1, &from, 1, 0) };
        let count = usize::try_from(read).unwrap_or(0) / size_of::<usize>();
        for (place, word) in words.iter().take(count).enumerate() {
            see(at + place * size_of::<usize>(), *word);
        }
    }
}

/// Whether an address is that of an object of the state.
fn is_object(arena: &Arena, at: usize) -> bool {
    let (base, bytes) = arena.medium().reserved();
    let base = base.as_ptr() as usize;
    // The state's first byte is no object's.
    let object = NonNull::new(ptr::with_exposed_provenance_mut(at));
    at > base && at - base < bytes && object.is_some_and(|at| arena.usable_bytes(at).is_ok())
}

/// The objects that libraries keep.
fn look(arena: &Arena, is_cs_alone: bool) -> Vec<Kept> {
    let mut found = Vec::new();
    let program = Module::program().map(|program| program.addresses()).unwrap_or_default();
    let mut parts = Vec::new();
    Module::each(&mut |module| {
        let addresses = module.addresses();
        // The program's own variables are its roots, and this library has records of the state.
        let is_left_out = addresses == program || addresses.contains(&(look as *const () as usize));
        let is_cs = owner::is_kept_apart(module);
        if !is_left_out && (is_cs || !is_cs_alone) {
            module.each_variables(&mut |range| parts.push((range, addresses.start, is_cs)));
        }
    });
    for (range, library, is_cs) in parts {
        each_word(range, &mut |at, object| {
            if is_object(arena, object) {
                found.push(Kept { at, object, library, is_cs });
            }
        });
    }
    found
}

/// A translated command has run, and its thread calls this before the batch ends. What libraries keep that is wrong anyway is said; the result is wrong if the command's objects are undone
/// now.
pub fn after(arena: &Arena, is_refused: bool) -> Vec<Kept> {
    static COMMANDS: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
    let [done, refused] = &COMMANDS;
    let count = if is_refused { refused } else { done };
    // Commands of several states may count as one.
    let number = count.load(Relaxed) + 1;
    count.store(number, Relaxed);
    if number.is_power_of_two() { look_after(arena, is_refused) } else { Vec::new() }
}

#[cold]
fn look_after(arena: &Arena, is_refused: bool) -> Vec<Kept> {
    let (cs, others): (Vec<_>, Vec<_>) =
        look(arena, !is_refused).into_iter().partition(|kept| kept.is_cs);
    cs.iter().for_each(|kept| kept.say(""));
    others
}

/// A command was undone, and no other one runs.
pub fn undone(arena: &Arena, kept: &[Kept]) {
    for kept in kept.iter().filter(|kept| !is_object(arena, kept.object)) {
        kept.say(", and that is gone since the command was undone");
    }
}

impl Kept {
    /// Once for each variable.
    fn say(&self, more: &str) {
        static SAID: Mutex<Vec<usize>> = Mutex::new(Vec::new());
        let Ok(mut said) = SAID.lock() else { return };
        if said.len() < MOST_SAID && !said.contains(&self.at) {
            said.push(self.at);
            say(format_args!(
                "a library keeps for the whole process, in {self}, the address {:#x} of an object that a command of a durable state has allocated{more}: what a library makes for itself must be made before the command, or by spandrel_durable_outside",
                self.object
            ));
        }
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (LoadedPlace::of(self.at), LoadedPlace::of(self.library)) {
            (Some(place), _) => write!(f, "a variable at {:#x} ({place})", self.at),
            (None, Some(library)) => {
                write!(f, "a variable of the thread at {:#x} ({})", self.at, library.file())
            }
            (None, None) => write!(f, "a variable of the thread at {:#x} (a library)", self.at),
        }
    }
}
