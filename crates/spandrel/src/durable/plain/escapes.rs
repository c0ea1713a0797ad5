//! Addresses of the process's own memory in a plain state: where they lead, the next process has something else.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use spandrel_os::message::say;
use spandrel_os::modules::Module;
use spandrel_os::{personality, slices, vm};
use spandrel_pages::{ADDRESS_SPACE_END, AllocatorId, PAGE_BYTES};

/// A word of a plain state that is an address of memory which an allocator of the process has, outside of the state.
///
/// It is a pointer, if the state leads to what a command has not allocated itself: after the end of the process it leads nowhere. It may also be a number that
/// looks like an address, or what is left of an object that was moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Escaped {
    /// Where the word lies.
    pub at: usize,
    /// The address that it is.
    pub address: usize,
    /// The allocator that has the address.
    pub allocator: AllocatorId,
}

/// The addresses from the first library to the last one, where the kernel draws them.
fn drawn_libraries() -> Range<usize> {
    let mut all = Range { start: usize::MAX, end: 0 };
    if personality::has_fixed_addresses() {
        return all;
    }
    let mut is_program = true;
    Module::each(&mut |module| {
        let addresses = module.addresses();
        if !std::mem::take(&mut is_program) {
            all = all.start.min(addresses.start)..all.end.max(addresses.end);
        }
    });
    all
}

/// Looks at what commands have stored.
#[derive(Debug)]
pub(in crate::durable) struct Escapes {
    first: Mutex<Option<Escaped>>,
    /// glibc's heap begins behind the program.
    program_end: usize,
    /// Where libraries lie that the next process has elsewhere.
    libraries: Range<usize>,
}

impl Escapes {
    pub fn new() -> Self {
        let program_end = Module::program().map_or(usize::MAX, |program| program.addresses().end);
        Self { first: Mutex::new(None), program_end, libraries: drawn_libraries() }
    }

    /// The first that was found.
    pub fn first(&self) -> Option<Escaped> {
        *self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the runs of a batch: `each` calls its argument with each of them.
    ///
    /// # Safety
    /// The runs are readable, and no thread stores there meanwhile. Each begins at a multiple of 8.
    pub unsafe fn look(&self, each: impl FnOnce(&mut dyn FnMut(*const u8, usize))) {
        let heap = self.program_end..vm::main_heap_end();
        let mut found = None;
        each(&mut |at, len| {
            // SAFETY: promised by the caller.
            let words = unsafe { core::slice::from_raw_parts(at.cast::<usize>(), len / 8) };
            let escaped = words.iter().enumerate().find_map(|(number, word)| {
                let allocator = slices::owner(*word);
                let is_claimed = allocator != AllocatorId::Sys && *word < ADDRESS_SPACE_END;
                // An allocator claims a tebibyte, in which many a number lies, and uses little of it.
                let page = (*word & !(PAGE_BYTES - 1)) as *mut u8;
                let is_library = self.libraries.contains(word) && Module::around(*word).is_some();
                let is_one =
                    is_claimed && vm::is_resident(page) || heap.contains(word) || is_library;
                is_one.then_some(Escaped {
                    at: at as usize + 8 * number,
                    address: *word,
                    allocator,
                })
            });
            found = found.or(escaped);
        });
        let Some(escaped) = found else { return };
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        if first.is_none() {
            *first = found;
            let Escaped { at, address, allocator } = escaped;
            match Module::around(address) {
                Some(_) => say(format_args!(
                    "a durable state has at {at:#x} the address {address:#x} of a library, which lies elsewhere in the next process: have the addresses of libraries be the same each time (fix_addresses, or `setarch -R`)"
                )),
                None => say(format_args!(
                    "a durable state has at {at:#x} the address {address:#x}, which is memory of the process ({}): if that is a pointer, the next process finds nothing there; a command must allocate what it puts into the state",
                    allocator.name()
                )),
            }
        }
    }
}
