//! From an allocator's number to direct calls of its functions.

use spandrel_backends::Backend;
use spandrel_pages::AllocatorId;
use spandrel_policy::{Available, Mode};

/// Runs an expression with `$backend` naming the type of allocator `$id`. One
/// that is not built in counts as glibc; policies never name such a one.
macro_rules! with_backend {
    ($id:expr, $backend:ident => $body:expr) => {
        match $id {
            #[cfg(feature = "jemalloc")]
            spandrel_pages::AllocatorId::Jemalloc => {
                type $backend = spandrel_backends::Jemalloc;
                $body
            }
            #[cfg(feature = "mimalloc")]
            spandrel_pages::AllocatorId::Mimalloc => {
                type $backend = spandrel_backends::Mimalloc;
                $body
            }
            #[cfg(feature = "tcmalloc")]
            spandrel_pages::AllocatorId::Tcmalloc => {
                type $backend = spandrel_backends::Tcmalloc;
                $body
            }
            spandrel_pages::AllocatorId::Mmap => {
                type $backend = spandrel_backends::Remap;
                $body
            }
            spandrel_pages::AllocatorId::Guarded => {
                type $backend = spandrel_backends::Guarded;
                $body
            }
            spandrel_pages::AllocatorId::Native => {
                type $backend = spandrel_backends::Native;
                $body
            }
            _ => {
                type $backend = spandrel_backends::Sys;
                $body
            }
        }
    };
}
pub(crate) use with_backend;

/// Makes the allocators that a mode may name ready, so that requests need not
/// ask; those that can be had. What a mode names and cannot be had is glibc's.
pub(crate) fn start_named_by(mode: &Mode) -> Available {
    let start = |id| available().has(id) && with_backend!(id, B => B::start());
    let needs = |id| match mode {
        Mode::Only(only) => *only == id,
        Mode::Template(template) => template.ranges().iter().any(|range| range.allocator == id),
        Mode::Switch(switch) => switch.base == id,
        Mode::Preset | Mode::Auto => id == AllocatorId::Native,
    };
    let always = Available::BASE.without(AllocatorId::Native);
    AllocatorId::ALL
        .into_iter()
        .fold(always, |usable, id| usable.with_if(needs(id) && start(id), id))
}

/// The allocators that this build contains.
pub const fn available() -> Available {
    Available::BASE
        .with_if(cfg!(feature = "jemalloc"), AllocatorId::Jemalloc)
        .with_if(cfg!(feature = "mimalloc"), AllocatorId::Mimalloc)
        .with_if(cfg!(feature = "tcmalloc"), AllocatorId::Tcmalloc)
}
