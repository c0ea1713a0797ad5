//! Roots and figures of an open heap.

use core::ptr::NonNull;
use core::sync::atomic::Ordering::*;

use spandrel_pmem::Medium;

use crate::error::Error;
use crate::heap::Heap;
use crate::pointer::{PPtr, TAG, offset_of};
use crate::roots::RootName;
use crate::trace::Trace;

/// What was done since the heap was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Lines that were written back and waited for.
    pub flushes: u64,
    /// Fences that were waited for.
    pub fences: u64,
    /// Lines of mark bits that were written back for want of room in the table. No thread waited for them.
    pub lazy_flushes: u64,
    /// Blocks that got a header.
    pub fresh_blocks: u64,
    /// Blocks that became free again.
    pub returned_blocks: u64,
    /// Caches that were filled.
    pub refills: u64,
}

impl<M: Medium> Heap<M> {
    /// Sets one of the 512 roots (`MAK_set_root`): durable when this returns, on a file with the next checkpoint.
    ///
    /// # Errors
    /// [`Error::RootIndex`], [`Error::Foreign`]: no object of this heap begins there; [`Error::HandleLives`]: the root leads to a collection
    /// that has a handle; [`Error::InTransaction`]: a transaction of another thread has changed the root or its collection and has not ended.
    pub fn set_root(&self, index: usize, object: Option<NonNull<u8>>) -> Result<(), Error> {
        let word = self.core().root_word(object)?;
        self.core().set_root(index, word)
    }

    /// Sets several roots, all or none of which are durable; 63 at most.
    ///
    /// # Errors
    /// As for [`Heap::set_root`]; [`Error::Foreign`] also for a word that is neither null nor a pointer.
    pub fn set_roots(&self, roots: &[(usize, PPtr<u8>)]) -> Result<(), Error> {
        let mut words = [(0, 0); crate::undo::ENTRIES];
        let places = words.get_mut(..roots.len()).ok_or(Error::RootIndex(roots.len()))?;
        for (place, (index, to)) in places.iter_mut().zip(roots) {
            let found = to.offset().and_then(|at| Some((at, self.core().object_of(at)?)));
            if !to.is_null() && found.is_none_or(|(at, found)| found.start != at) {
                // The word itself, if it is no pointer.
                return Err(Error::Foreign(to.offset().unwrap_or(to.raw() as usize)));
            }
            *place = (*index, to.raw());
        }
        self.core().set_roots(places)
    }

    /// One of the 512 roots (`MAK_get_root`).
    ///
    /// # Errors
    /// [`Error::RootIndex`].
    pub fn get_root(&self, index: usize) -> Result<Option<NonNull<u8>>, Error> {
        let word = self.core().root(index)?;
        Ok(offset_of(word).filter(|at| *at < self.bytes()).map(|at| self.core().at(at)))
    }

    /// The word of a root: that of a [`PPtr`].
    ///
    /// # Errors
    /// [`Error::RootIndex`].
    pub fn root_word(&self, index: usize) -> Result<u64, Error> {
        self.core().root(index)
    }

    /// The number of the root of that name, which leads to a `T`. If no root has the name, an unused root gets it.
    ///
    /// # Errors
    /// [`Error::RootType`]: it leads to something else; [`Error::RootName`], [`Error::RootsFull`]; [`Error::Damaged`]: there is none, and
    /// the name of a root is damaged, which may have been this one; [`Error::InTransaction`]: a transaction that has not ended has removed
    /// the root of that name.
    pub fn named_root<T: Trace>(&self, name: &str) -> Result<usize, Error> {
        self.core().named_root(name, T::LAYOUT)
    }

    /// The same for a type whose layout the program numbers itself.
    ///
    /// # Errors
    /// As for [`Heap::named_root`].
    pub fn named_root_of(&self, name: &str, layout: u64) -> Result<usize, Error> {
        self.core().named_root(name, layout)
    }

    /// The number of the root of that name; `None`: there is none.
    ///
    /// # Errors
    /// [`Error::Damaged`]: there is none, and the name of a root is damaged, which may have been this one.
    pub fn find_root(&self, name: &str) -> Result<Option<usize>, Error> {
        self.core().find_root(name)
    }

    /// The name of a root.
    pub fn root_name(&self, index: usize) -> Option<RootName> {
        (index < crate::superblock::ROOT_COUNT).then(|| self.core().root_name(index))?
    }

    /// Takes the root of a name away, and the name.
    ///
    /// # Errors
    /// [`Error::RootName`]: there is none; [`Error::HandleLives`], [`Error::InTransaction`] as for [`Heap::set_root`].
    pub fn remove_root(&self, name: &str) -> Result<(), Error> {
        self.core().remove_root(name)
    }

    /// The pointer to an object that holds wherever the heap is mapped.
    pub fn pointer<T>(&self, object: NonNull<T>) -> PPtr<T> {
        PPtr::from_raw(TAG | self.core().offset(object.as_ptr().cast()) as u64)
    }

    /// Where the object of a pointer is; `None`: it is null, or leads out of the heap. Whether an object lies there is not checked.
    #[inline]
    pub fn address<T>(&self, pointer: PPtr<T>) -> Option<NonNull<T>> {
        let at = pointer.offset()?;
        (at + size_of::<T>() <= self.bytes()).then(|| self.core().at(at).cast())
    }

    /// What was done since the heap was opened.
    pub fn counters(&self) -> Counts {
        let counters = &self.core().counters;
        Counts {
            flushes: counters.flushes.load(Relaxed),
            fences: counters.fences.load(Relaxed),
            lazy_flushes: self.core().lazy.evicted(),
            fresh_blocks: counters.fresh_blocks.load(Relaxed),
            returned_blocks: counters.returned_blocks.load(Relaxed),
            refills: counters.refills.load(Relaxed),
        }
    }
}
