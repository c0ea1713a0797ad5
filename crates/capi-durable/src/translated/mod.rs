//! States whose commands are translated as they run: ordinary code in C and C++ notes its stores, and allocates in the state.
//!
//! Invariants:
//! - Translated code runs none of this library's functions that store to a state or are the program's way to one: they are native, and note their own stores.
//! - In translated code each function of the C library that allocates, resizes or frees is this library's ([`allocator`]), by whichever library it is called.
//! - The state leads into files that the process has loaded: the next process has the same ones at the same addresses ([`program`]).

mod allocator;
mod functions;
mod kept;
mod owner;
mod program;

use std::ops::Range;

use spandrel::durable::Arena;

use crate::failure::Failure;

pub use kept::{Kept, after, undone};
use program::LeadsTo;
pub use program::Name;

/// Prepares an opened state for its commands, before the first one.
///
/// # Errors
/// [`Failure::Addresses`], [`Failure::OtherBuild`], [`Failure::Moved`]; those of the state.
///
/// # Safety
/// The calling thread runs the first batch of the state, and the arena lies where it is.
pub unsafe fn begin(arena: &Arena) -> Result<(), Failure> {
    // SAFETY: passed on from the caller.
    unsafe { begin_with(arena, More::default()) }
}

/// What a program has that is not known of libraries.
#[derive(Default)]
pub struct More {
    /// Functions that are native.
    pub native: Vec<usize>,
    /// Code that allocates for the process. The first call counts.
    pub code: Vec<Range<usize>>,
    /// Code that lies in no file.
    pub added: Range<usize>,
    /// The state leads into no library.
    pub leads_to_program: bool,
    /// No command is ever undone.
    pub is_never_undone: bool,
}

/// As [`begin`], with more that is known.
///
/// # Errors
/// As there.
///
/// # Safety
/// As there.
pub unsafe fn begin_with(arena: &Arena, more: More) -> Result<(), Failure> {
    let memory = arena.medium();
    let is_translated = memory.notes().how().is_translated();
    let leads = match is_translated {
        true if more.leads_to_program => LeadsTo::Program,
        true => LeadsTo::All,
        false => LeadsTo::Known,
    };
    // SAFETY: promised by the caller.
    unsafe { program::check(arena, leads)? };
    if is_translated {
        let functions::Functions { mut native, replaced, remembered } = functions::all();
        native.extend(more.native);
        owner::add_code(more.code);
        // SAFETY: promised by the caller.
        unsafe {
            memory.notes().translate(memory.reserved(), &native)?;
            memory.notes().replace(&replaced)?;
            memory.notes().remember(&remembered)?;
            memory.notes().add_code(more.added);
            if more.is_never_undone {
                memory.notes().never_undo();
            }
        }
    }
    Ok(())
}
