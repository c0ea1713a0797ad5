//! Which allocators a build of the library can host.

use spandrel_pages::AllocatorId;

/// A set of allocators. [`AllocatorId::Sys`], [`AllocatorId::Mmap`] and
/// [`AllocatorId::Native`] are always in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Available(u8);

impl Available {
    /// glibc and our own allocators alone: a build that compiles no C.
    pub const BASE: Self = Available(
        1 << AllocatorId::Sys as u8 | 1 << AllocatorId::Mmap as u8 | 1 << AllocatorId::Native as u8,
    );

    /// This set and `id`.
    #[must_use]
    pub const fn with(self, id: AllocatorId) -> Self {
        Available(self.0 | 1 << id as u8)
    }

    /// This set without `id`.
    #[must_use]
    pub const fn without(self, id: AllocatorId) -> Self {
        Available(self.0 & !(1 << id as u8))
    }

    /// This set and, if `condition`, `id`.
    #[must_use]
    pub const fn with_if(self, condition: bool, id: AllocatorId) -> Self {
        if condition { self.with(id) } else { self }
    }

    /// Whether `id` is in the set.
    pub const fn has(self, id: AllocatorId) -> bool {
        self.0 & 1 << id as u8 != 0
    }

    /// The members in numerical order.
    pub fn iter(self) -> impl Iterator<Item = AllocatorId> {
        AllocatorId::ALL.into_iter().filter(move |id| self.has(*id))
    }
}
