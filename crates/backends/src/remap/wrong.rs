//! Addresses of the slice that are no live objects: said, with what is known of them, and the end.

use core::fmt;
use core::sync::atomic::Ordering::Relaxed;

use spandrel_os::message::say;

use super::REMAP;
use super::layout::CAPACITY;
use super::slot::{LIVE, Slot};

/// Says what is wrong with an address. To be called without the lock.
#[cold]
pub fn not_live(call: &str, object: *mut u8) -> ! {
    let layout = REMAP.layout();
    let frontiers = REMAP.lists.lock().frontiers();
    let around = layout.slot_around(object as usize);
    let Some(id) = around.filter(|id| id.index() < frontiers[id.class()]) else {
        end(format_args!("{call}({object:p}): no object was ever there"))
    };
    // SAFETY: all records can be read.
    let slot = unsafe { &*(layout.record(id) as *const Slot) };
    let offset = slot.offset();
    let (used, capacity) = (slot.used.load(Relaxed).saturating_sub(offset), CAPACITY[id.class()]);
    match (layout.address(id) + offset == object as usize, slot.state()) {
        (false, LIVE) => end(format_args!(
            "{call}({object:p}): not the beginning of an object (of {used} bytes)"
        )),
        // Another thread was quicker.
        (_, LIVE) => end(format_args!("{call}({object:p}): in use by two threads at once")),
        (false, _) => end(format_args!("{call}({object:p}): no object is there")),
        // It is as the object left it until it goes on to the lists.
        (true, _) if used > 0 => {
            end(format_args!("{call}({object:p}): freed twice (an object of {used} bytes)"))
        }
        (true, _) => end(format_args!(
            "{call}({object:p}): freed twice (an object in a slot of {capacity} bytes)"
        )),
    }
}

fn end(what: fmt::Arguments<'_>) -> ! {
    say(what);
    // SAFETY: abort has no preconditions.
    unsafe { libc::abort() }
}
