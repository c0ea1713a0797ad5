//! A growing array.

use core::marker::PhantomData;

use spandrel_pmem::{Media, Medium};

use super::Change;
use crate::error::Error;
use crate::heap::Heap;
use crate::pointer::PPtr;
use crate::trace::{Trace, Tracer, hash, mix};

/// What a root leads to that is a vector: a pointer to its elements, so that they may move.
#[repr(C)]
pub struct VectorHead<T> {
    elements: PPtr<Elements<T>>,
}

/// The elements of a vector: how many, and behind that each of them.
#[repr(C)]
pub struct Elements<T> {
    len: u64,
    /// The first lies at a multiple of 16.
    unused: u64,
    first: [T; 0],
}

// SAFETY: a pointer.
unsafe impl<T: Trace> Trace for VectorHead<T> {
    const LAYOUT: u64 = mix(hash("VectorHead", 0), T::LAYOUT);

    fn trace(&self, tracer: &mut Tracer<'_>) {
        self.elements.trace(tracer);
    }
}

// SAFETY: numbers, and elements of which any bytes are values.
unsafe impl<T: Trace> Trace for Elements<T> {
    const LAYOUT: u64 = mix(hash("Elements", 0), T::LAYOUT);
    const HAS_POINTERS: bool = T::HAS_POINTERS;

    fn trace(&self, tracer: &mut Tracer<'_>) {
        tracer.behind::<T>(self.first.as_ptr(), self.len as usize);
    }
}

/// A vector in a heap.
pub struct Vector<'h, T, M: Medium = Media> {
    heap: &'h Heap<M>,
    /// Where the head is.
    at: usize,
    of: PhantomData<T>,
}

const FIRST: usize = 16;

impl<'h, T: Trace + Copy, M: Medium> Vector<'h, T, M> {
    /// Elements are aligned to 16 at most, and can be replaced as a whole.
    const FITS: () = assert!(
        align_of::<T>() <= 16 && size_of::<T>() <= super::VALUE_BYTES && size_of::<T>() > 0
    );

    /// The vector of a name, made if there is none.
    ///
    /// # Errors
    /// As for [`Heap::root`] and [`Heap::alloc`].
    pub fn open(heap: &'h Heap<M>, name: &str) -> Result<Self, Error> {
        let new = |heap: &'h Heap<M>| heap.new_object(VectorHead::<T> { elements: PPtr::NULL });
        Self::of(heap, heap.root::<VectorHead<T>>(name)?.get_or(new)?)
    }

    /// The vector that a pointer leads to.
    ///
    /// # Errors
    /// [`Error::Foreign`].
    pub fn of(heap: &'h Heap<M>, head: PPtr<VectorHead<T>>) -> Result<Self, Error> {
        const { Self::FITS };
        Ok(Self { heap, at: heap.place_of(head)?, of: PhantomData })
    }

    /// Where the elements are, and how many there is room for.
    fn elements(&self) -> (usize, usize) {
        let to = PPtr::<u8>::from_raw(self.heap.core().load(self.at)).offset();
        let found =
            to.and_then(|at| self.heap.core().object_of(at).filter(|found| found.start == at));
        found.map_or((0, 0), |found| (found.start, (found.bytes - FIRST) / size_of::<T>()))
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        let (at, room) = self.elements();
        if at == 0 { 0 } else { (self.heap.core().load(at) as usize).min(room) }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn place(&self, index: usize) -> usize {
        self.elements().0 + FIRST + index * size_of::<T>()
    }

    /// An element.
    pub fn get(&self, index: usize) -> Option<T> {
        // SAFETY: one of the elements; any bytes are a value.
        (index < self.len()).then(|| unsafe {
            self.heap.core().at(self.place(index)).as_ptr().cast::<T>().read_unaligned()
        })
    }

    /// All elements, in order.
    pub fn iter(&self) -> impl Iterator<Item = T> {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// Adds an element at the end.
    ///
    /// # Errors
    /// As for [`Heap::alloc`].
    pub fn push(&mut self, value: T) -> Result<(), Error> {
        self.extend(&[value])
    }

    /// Adds elements at the end, all or none.
    ///
    /// # Errors
    /// As for [`Heap::alloc`].
    pub fn extend(&mut self, values: &[T]) -> Result<(), Error> {
        let (at, room) = self.elements();
        let len = self.len();
        let needed = len + values.len();
        if needed > room {
            return self.grow(values, needed.max(room * 2));
        }
        values.iter().enumerate().for_each(|(number, value)| {
            // SAFETY: behind the last one, where there is room.
            unsafe { self.heap.put(at + FIRST + (len + number) * size_of::<T>(), value) }
        });
        self.heap.core().fence();
        self.heap.publish(at, needed as u64);
        Ok(())
    }

    /// The same into a new object, which then takes the place of the old one.
    fn grow(&mut self, values: &[T], room: usize) -> Result<(), Error> {
        let (old, len) = (self.elements().0, self.len());
        let bytes = room.checked_mul(size_of::<T>()).and_then(|bytes| bytes.checked_add(FIRST));
        let new = self.heap.new_bytes(bytes.ok_or(Error::Size(room))?, 16)?;
        let core = self.heap.core();
        core.store(new, (len + values.len()) as u64);
        core.store(new + 8, 0);
        let all = len * size_of::<T>();
        if all > 0 {
            // SAFETY: elements, and an object that is nobody's yet.
            unsafe {
                let from = core::slice::from_raw_parts(core.at(old + FIRST).as_ptr(), all);
                core.medium.store(new + FIRST, from);
            }
        }
        core.write_back(new, FIRST + all);
        values.iter().enumerate().for_each(|(number, value)| {
            // SAFETY: as above.
            unsafe { self.heap.put(new + FIRST + (len + number) * size_of::<T>(), value) }
        });
        core.fence();
        self.heap.publish(self.at, PPtr::<u8>::to(new).raw());
        if old != 0 {
            // SAFETY: nothing leads to it any more.
            unsafe { self.heap.free(core.at(old))? };
        }
        Ok(())
    }

    /// Replaces an element.
    ///
    /// # Errors
    /// [`Error::Size`]: there is none of that number.
    pub fn set(&mut self, index: usize, value: T) -> Result<(), Error> {
        if index >= self.len() {
            return Err(Error::Size(index));
        }
        let mut change = Change::default();
        change.value(self.heap, self.place(index), &value)?;
        change.commit(self.heap);
        Ok(())
    }

    /// Takes the last element away.
    pub fn pop(&mut self) -> Option<T> {
        let last = self.len().checked_sub(1)?;
        let value = self.get(last);
        self.truncate(last);
        value
    }

    /// Leaves the first `len` elements.
    pub fn truncate(&mut self, len: usize) {
        if len < self.len() {
            self.heap.publish(self.elements().0, len as u64);
        }
    }
}
