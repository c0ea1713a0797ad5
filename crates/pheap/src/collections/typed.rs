//! Objects and roots by type, for collections and for a program's own structures.

use core::fmt;

use spandrel_pmem::{Media, Medium};

use super::op::{Op, Part, bytes_of, store};
use crate::error::Error;
use crate::heap::Heap;
use crate::pointer::PPtr;
use crate::superblock::ROOTS;
use crate::trace::Trace;

/// A root of a name and a type.
pub struct Root<'h, T, M: Medium = Media> {
    heap: &'h Heap<M>,
    index: usize,
    to: core::marker::PhantomData<T>,
}

impl<T, M: Medium> fmt::Debug for Root<'_, T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let to = PPtr::<u8>::from_raw(self.heap.core().load(ROOTS + self.index * 8));
        f.debug_struct("Root").field("index", &self.index).field("to", &to).finish()
    }
}

impl<T: Trace, M: Medium> Root<'_, T, M> {
    /// The object that the root leads to, or null.
    pub fn get(&self) -> PPtr<T> {
        PPtr::from_raw(self.heap.core().load(ROOTS + self.index * 8))
    }

    /// Sets the root to an object, or to null. It is durable when this returns; in a transaction, when that has ended.
    ///
    /// # Errors
    /// [`Error::Foreign`]: the pointer leads to no object that is large enough for a `T`; [`Error::HandleLives`]: the root leads to a
    /// collection that has a handle, which would go on with the old one; [`Error::InTransaction`]: a transaction of another thread has
    /// changed the root or its collection and has not ended; [`Error::Forked`], [`Error::ReadOnly`]; in a transaction [`Error::Full`]:
    /// there is no room for its log.
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
}

/// Objects by type.
impl<M: Medium> Heap<M> {
    /// The root of a name, which leads to a `T`. A new root is null.
    ///
    /// # Errors
    /// As for [`Heap::named_root`].
    pub fn root<T: Trace>(&self, name: &str) -> Result<Root<'_, T, M>, Error> {
        Ok(Root { heap: self, index: self.named_root::<T>(name)?, to: core::marker::PhantomData })
    }

    /// Allocates an object with a value. The value is durable when this returns. The rollback of a transaction frees the object, so that a
    /// transaction must free it with [`Heap::free_object`] and not with [`Heap::free`].
    ///
    /// # Errors
    /// As for [`Heap::alloc`]; [`Error::Size`] for types that are aligned to more than 64 KiB.
    pub fn new_object<T: Trace>(&self, value: T) -> Result<PPtr<T>, Error> {
        let mut op = Op::begin(self.core())?;
        let object = op.alloc(size_of::<T>(), align_of::<T>())?;
        self.fill_with(object, value);
        Ok(PPtr::to(object))
    }

    /// Allocates an object with a value. No rollback frees it.
    pub(crate) fn new_object_now<T: Trace>(&self, value: T) -> Result<PPtr<T>, Error> {
        let object = self.new_bytes(size_of::<T>(), align_of::<T>())?;
        self.fill_with(object, value);
        Ok(PPtr::to(object))
    }

    fn fill_with<T: Trace>(&self, object: usize, mut value: T) {
        // SAFETY: the object has room for one, and nothing leads to it yet.
        unsafe { store(&self.core().medium, object, bytes_of(&mut value)) };
        self.core().write_back(object, size_of::<T>());
        self.core().fence();
        core::mem::forget(value);
    }

    /// Allocates an object of at least one byte, and returns its offset.
    pub(crate) fn new_bytes(&self, bytes: usize, align: usize) -> Result<usize, Error> {
        Ok(self.core().offset(self.alloc_aligned(bytes.max(1), align)?.as_ptr()))
    }

    /// Frees an object by its pointer; in a transaction, when that has ended. Null is ignored.
    ///
    /// # Errors
    /// As for [`Heap::free`]. In a transaction only [`Error::Foreign`] for what lies beyond the heap, and [`Error::Full`]: there is no room for
    /// its log. Its end ignores an object that cannot be freed.
    ///
    /// # Safety
    /// As for [`Heap::free`].
    pub unsafe fn free_object<T>(&self, object: PPtr<T>) -> Result<(), Error> {
        let mut op = Op::begin(self.core())?;
        match object.offset() {
            // SAFETY: promised by the caller.
            Some(at) if at < self.bytes() => unsafe { op.free(at) },
            Some(at) => Err(Error::Foreign(at)),
            None => Ok(()),
        }
    }

    /// A copy of an object's value; `None`: the pointer is null, or leads out of the heap.
    ///
    /// # Safety
    /// No thread writes to it meanwhile.
    pub unsafe fn read<T: Trace + Copy>(&self, object: PPtr<T>) -> Option<T> {
        // SAFETY: within the heap, and any bytes are a value.
        self.address(object).map(|at| unsafe { at.as_ptr().read_unaligned() })
    }

    /// Replaces an object's value, all or nothing. It is durable when this returns; in a transaction, when that has ended.
    ///
    /// # Errors
    /// [`Error::Foreign`]; [`Error::Full`]: there is no room to log a large value, or a transaction's change; [`Error::Forked`],
    /// [`Error::ReadOnly`].
    ///
    /// # Safety
    /// It is an object of that type, and no other thread reads or writes it meanwhile.
    pub unsafe fn replace<T: Trace + Copy>(
        &self,
        object: PPtr<T>,
        mut value: T,
    ) -> Result<(), Error> {
        let mut op = Op::begin(self.core())?;
        let at = self.place_of(object)?;
        op.change(&[Part::of(at, &mut value)])
    }

    /// The offset of the object of a pointer. It is checked that an object with room for a `T` begins there: pointers of a damaged heap
    /// lead anywhere.
    pub(crate) fn place_of<T>(&self, object: PPtr<T>) -> Result<usize, Error> {
        let found = object.offset().and_then(|at| {
            let found = self.core().object_of(at)?;
            (found.start == at && found.bytes >= size_of::<T>()).then_some(at)
        });
        found.ok_or(Error::Foreign(object.raw() as usize))
    }
}
