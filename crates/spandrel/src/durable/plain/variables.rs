//! Variables of the program that lead into a plain state: a command has made there, by the way, what belongs to the whole program (a `LazyLock`, a buffer of the thread).
//!
//! They are looked at when a command was undone, whose objects are gone, and when a state is closed. What the heap of the program leads to is not.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use spandrel_os::message::say;
use spandrel_os::modules::Module;

use crate::durable::Arena;

/// Bytes of one range of variables that are looked at.
const MOST_BYTES: usize = 16 << 20;

/// Says once which variable of the program has the address of memory of the state that no object has; of any memory of it, if the state is being closed.
pub(super) fn look(arena: &Arena, is_closed: bool) {
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    // Within a library the program is one of another language, whose variables may have addresses of the state.
    let module = Module::program()
        .filter(|program| program.addresses().contains(&(look as *const () as usize)));
    let Some(module) = module.filter(|_| !IS_SAID.load(Relaxed)) else { return };
    let (base, bytes) = arena.medium().reserved();
    let (base, mut found) = (base.as_ptr() as usize, None);
    let leads_nowhere = |word: usize| {
        // The state's first byte is no object's: the program's own records of the state have it.
        let is_inside = word > base && word - base < bytes;
        let object = NonNull::new(core::ptr::with_exposed_provenance_mut(word));
        is_inside && object.is_some_and(|object| is_closed || arena.usable_bytes(object).is_err())
    };
    module.each_variables(&mut |range| {
        let words = range.start.next_multiple_of(size_of::<usize>())..range.end;
        for at in words.take(MOST_BYTES).step_by(size_of::<usize>()) {
            if found.is_none() && at + size_of::<usize>() <= range.end {
                // SAFETY: a variable of the program or the thread. Volatile: another thread may store there.
                let word =
                    unsafe { core::ptr::with_exposed_provenance::<usize>(at).read_volatile() };
                found = leads_nowhere(word).then_some((at, word));
            }
        }
    });
    let Some((at, word)) = found.filter(|_| !IS_SAID.swap(true, Relaxed)) else { return };
    let why = if is_closed { "the state is closed" } else { "a command was undone" };
    say(format_args!(
        "a variable of the program, at {at:#x}, has the address {word:#x} of a plain state, where nothing is any more since {why}: what a command makes for the whole program (a logger's buffer, a LazyLock) must be made before, or by spandrel::durable::outside"
    ));
}
