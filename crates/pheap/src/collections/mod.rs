//! Collections that live in a heap. Every operation is all or nothing after a failure: durable when it returns, on a file with the
//! next checkpoint.
//!
//! What lies in the heap is one object or more; a program has a handle, which knows the heap. Two handles to one collection see
//! the same, but must not be used by two threads at once, unless both only read.

mod map;
mod sorted;
#[cfg(test)]
mod tests;
mod text;
mod vector;

use core::ptr::NonNull;

use spandrel_pmem::{Media, Medium};

use crate::error::Error;
use crate::heap::Heap;
use crate::pointer::PPtr;
use crate::superblock::ROOTS;
use crate::trace::Trace;
use crate::undo::ENTRIES;

pub use map::{HashMap, Key, MapHead};
pub use sorted::{SortedHead, SortedMap};
pub use text::Text;
pub use vector::{Elements, Vector, VectorHead};

/// Bytes of a value that an operation replaces at most.
pub const VALUE_BYTES: usize = (ENTRIES - 3) * 8;

/// A root of a name and a type.
pub struct Root<'h, T, M: Medium = Media> {
    heap: &'h Heap<M>,
    index: usize,
    to: core::marker::PhantomData<T>,
}

impl<'h, T: Trace, M: Medium> Root<'h, T, M> {
    /// What it leads to.
    pub fn get(&self) -> PPtr<T> {
        PPtr::from_raw(self.heap.core().load(ROOTS + self.index * 8))
    }

    /// Has it lead to that; durable when this returns.
    ///
    /// # Errors
    /// [`Error::Foreign`]: that is no object that is large enough for a `T`; [`Error::Forked`].
    pub fn set(&self, to: PPtr<T>) -> Result<(), Error> {
        let core = self.heap.core();
        if let Some(at) = to.offset() {
            let found = core.object_of(at).filter(|found| found.start == at);
            found.filter(|found| found.bytes >= size_of::<T>()).ok_or(Error::Foreign(at))?;
        }
        core.set_root(self.index, to.raw())
    }

    /// Its number among the 512.
    pub fn index(&self) -> usize {
        self.index
    }

    /// What it leads to, made by `new` if it leads to nothing.
    fn get_or(
        &self,
        new: impl FnOnce(&'h Heap<M>) -> Result<PPtr<T>, Error>,
    ) -> Result<PPtr<T>, Error> {
        if self.get().is_null() {
            self.set(new(self.heap)?)?;
        }
        Ok(self.get())
    }
}

/// Objects by type.
impl<M: Medium> Heap<M> {
    /// The root of that name, which leads to a `T`: null when it is new.
    ///
    /// # Errors
    /// As for [`Heap::named_root`].
    pub fn root<T: Trace>(&self, name: &str) -> Result<Root<'_, T, M>, Error> {
        Ok(Root { heap: self, index: self.named_root::<T>(name)?, to: core::marker::PhantomData })
    }

    /// Allocates an object with a value, which is durable when this returns.
    ///
    /// # Errors
    /// As for [`Heap::alloc`]; [`Error::Size`] for types that are aligned to more than 16 bytes.
    pub fn new_object<T: Trace>(&self, value: T) -> Result<PPtr<T>, Error> {
        let object = self.new_bytes(size_of::<T>(), align_of::<T>())?;
        // SAFETY: it has room for one, and is nobody else's.
        unsafe { self.put(object, &value) };
        self.core().fence();
        core::mem::forget(value);
        Ok(PPtr::to(object))
    }

    /// An object's offset.
    pub(crate) fn new_bytes(&self, bytes: usize, align: usize) -> Result<usize, Error> {
        Ok(self.core().offset(self.alloc_aligned(bytes.max(1), align)?.as_ptr()))
    }

    /// Frees an object by its pointer.
    ///
    /// # Errors
    /// As for [`Heap::free`].
    ///
    /// # Safety
    /// As for [`Heap::free`].
    pub unsafe fn free_object<T>(&self, object: PPtr<T>) -> Result<(), Error> {
        match object.offset() {
            // SAFETY: promised by the caller; whether it is one is looked at.
            Some(at) if at < self.bytes() => unsafe { self.free(self.core().at(at)) },
            Some(at) => Err(Error::Foreign(at)),
            None => Ok(()),
        }
    }

    /// A copy of an object's value.
    ///
    /// # Safety
    /// Nobody writes to it meanwhile.
    pub unsafe fn read<T: Trace + Copy>(&self, object: PPtr<T>) -> Option<T> {
        // SAFETY: within the heap, and any bytes are a value.
        self.address(object).map(|at| unsafe { at.as_ptr().read_unaligned() })
    }

    /// Replaces an object's value, all or nothing; durable when this returns.
    ///
    /// # Errors
    /// [`Error::Foreign`], [`Error::Size`]: the type has more than [`VALUE_BYTES`].
    ///
    /// # Safety
    /// It is an object of that type, and nobody else reads or writes it meanwhile.
    pub unsafe fn replace<T: Trace + Copy>(&self, object: PPtr<T>, value: T) -> Result<(), Error> {
        let at = self.place_of(object)?;
        let mut change = Change::default();
        change.value(self, at, &value)?;
        change.commit(self);
        Ok(())
    }

    /// Where the object of a pointer is, if it is one that has room for a `T`: whatever a damaged heap holds, nothing else is written to.
    pub(crate) fn place_of<T>(&self, object: PPtr<T>) -> Result<usize, Error> {
        let found = object.offset().and_then(|at| {
            let found = self.core().object_of(at)?;
            (found.start == at && found.bytes >= size_of::<T>()).then_some(at)
        });
        found.ok_or(Error::Foreign(object.raw() as usize))
    }

    /// Stores a value and has it written back.
    ///
    /// # Safety
    /// There is room for one, and nobody else's.
    pub(crate) unsafe fn put<T: Trace>(&self, at: usize, value: &T) {
        let bytes = NonNull::from(value).cast::<u8>();
        // SAFETY: what is between the fields of a value is stored as well, whatever it is; the rest is the caller's promise.
        unsafe {
            let bytes = core::slice::from_raw_parts(bytes.as_ptr(), size_of::<T>());
            self.core().medium.store(at, bytes);
        }
        self.core().write_back(at, size_of::<T>());
    }

    /// Stores a word, and waits until it is durable.
    pub(crate) fn publish(&self, at: usize, word: u64) {
        self.core().store(at, word);
        self.core().write_back(at, 8);
        self.core().fence();
    }
}

/// Words that are to change together.
pub(crate) struct Change {
    words: [(usize, u64); ENTRIES],
    count: usize,
}

impl Default for Change {
    fn default() -> Self {
        Self { words: [(0, 0); ENTRIES], count: 0 }
    }
}

impl Change {
    /// A word, at a multiple of 8.
    pub fn word(&mut self, at: usize, word: u64) -> Result<(), Error> {
        let place = self.words.get_mut(self.count).ok_or(Error::Size(ENTRIES * 8))?;
        *place = (at, word);
        self.count += 1;
        Ok(())
    }

    /// A value, which may begin and end within words.
    pub fn value<T: Trace + Copy, M: Medium>(
        &mut self,
        heap: &Heap<M>,
        at: usize,
        value: &T,
    ) -> Result<(), Error> {
        let bytes = NonNull::from(value).cast::<u8>();
        let (from, to) = (at & !7, at + size_of::<T>());
        for word_at in (from..to).step_by(8) {
            let mut word = heap.core().load(word_at).to_le_bytes();
            for (number, byte) in word.iter_mut().enumerate() {
                let place = word_at + number;
                if (at..to).contains(&place) {
                    // SAFETY: a byte of the value.
                    *byte = unsafe { bytes.as_ptr().add(place - at).read() };
                }
            }
            self.word(word_at, u64::from_le_bytes(word))?;
        }
        Ok(())
    }

    pub fn commit<M: Medium>(&self, heap: &Heap<M>) {
        heap.core().change(&self.words[..self.count]);
    }
}
