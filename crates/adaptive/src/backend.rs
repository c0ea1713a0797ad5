//! From an allocator's number to direct calls of its functions.

use spandrel_pages::AllocatorId;
use spandrel_policy::Available;

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
            spandrel_pages::AllocatorId::Mmap => {
                type $backend = spandrel_backends::Remap;
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

/// The allocators that this build contains.
pub const fn available() -> Available {
    Available::BASE
        .with_if(cfg!(feature = "jemalloc"), AllocatorId::Jemalloc)
        .with_if(cfg!(feature = "mimalloc"), AllocatorId::Mimalloc)
}
