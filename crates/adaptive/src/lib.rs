//! The request handler: every request of a program comes through here.
//!
//! ```text
//! malloc(n)      table of the scope or process --byte--> backend
//! free(p)        owner table --byte--> backend
//! realloc(p, n)  both: the owner keeps the object, or it migrates
//! ```
//!
//! Invariants: an object is freed by the allocator that owns its address,
//! whatever the mode is by then; an object migrates only when it is
//! reallocated; nothing is counted or recorded, and no lock taken, on the way to a
//! backend unless the caller requested that.
//!
//! This room must never know which interface (C, C++, Rust) a request came by.
#![no_std]

mod backend;
mod counter;
mod early;
mod elsewhere;
mod learnt;
mod modes;
mod monitor;
mod observed;
mod realloc;
mod render;
mod request;
mod sites;
mod start;
mod stats;
mod tuner;
mod wild;
mod youth;

pub use backend::available;
pub use elsewhere::{is_elsewhere, is_in_front};
pub use modes::{
    ModeChange, current_mode, enter_scope, leave_scope, mode_name, scope_at, scope_index, set_mode,
    with_mode,
};
pub use monitor::{
    ObjectRecord, monitor_begin, monitor_end, monitor_lost, monitored, most_resized,
};
pub use realloc::{realloc, realloc_aligned, realloc_zeroed};
pub use render::{Json, Text};
pub use request::{
    alloc, alloc_aligned, alloc_cached, alloc_uncached, alloc_zeroed, alloc_zeroed_aligned, free,
    free_or, free_other, free_sized, free_sized_or, trim, usable_size,
};
pub use start::{register_fork_order, start, take_small_pages};
pub use stats::{
    ReallocStats, RequestRow, Stats, count_requests, glibc_bytes, hosted_bytes, mapped,
    measured_stats, native_bytes, native_figure, stats,
};

pub mod direct;

/// Closes what is open and not used, as it begins to count: the program is about to lock its memory.
pub fn open_sparingly() {
    spandrel_backends::open_sparingly();
}

/// Looks for new limits of the address space and of the data segment. Releases unused reservations for the one, and closes unused open memory for the other;
/// true if there was any.
pub fn heed_limit() -> bool {
    spandrel_backends::heed_limit()
}

/// Says in the recording, if there is one, that the program has come to its end.
pub fn finish_recording() {
    spandrel_recorder::finish();
}

/// The allocator that owns an address.
pub fn owner(object: *const u8) -> spandrel_pages::AllocatorId {
    spandrel_os::slices::owner(object as usize)
}
