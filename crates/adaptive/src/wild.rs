//! Addresses that lie in no slice: glibc's objects, or none at all.
//!
//! glibc reads what lies before an address without asking. Where ours serve requests glibc's objects are
//! few, mostly in its main heap (also while a process is young), and there is time to look whether others have memory at all.

use spandrel_os::message::say;
use spandrel_os::vm;
use spandrel_pages::{AllocatorId, GIB, PAGE_BYTES};

use crate::modes::table;
use crate::youth;

/// Ends the process with a line that says so if an object that is said to be glibc's, or null, has no
/// memory. Nothing is looked at where glibc is to serve requests.
#[inline(always)]
pub(crate) fn check(call: &str, object: *mut u8) {
    if table().begins_with(AllocatorId::Native, 1) || youth::is_now() {
        look(call, object as usize);
    }
}

#[inline(never)]
fn look(call: &str, object: usize) {
    let end = vm::main_heap_end();
    let in_main_heap = object < end && end - object < GIB;
    if object == 0 || in_main_heap || vm::is_mapped((object & !(PAGE_BYTES - 1)) as *mut u8) {
        return;
    }
    say(format_args!(
        "{call}({object:#x}): no memory is there (never allocated, or long unmapped)"
    ));
    // SAFETY: abort has no preconditions.
    unsafe { libc::abort() }
}
