//! A growing array.

use core::fmt;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ops::{Bound, Range, RangeBounds};

use super::held::{HeapRef, Held, Numbered};
use super::op::{Fresh, Op, Part, bytes_of, bytes_of_all};
use crate::error::Error;
use crate::heap::Heap;
use crate::pointer::PPtr;
use crate::trace::{Trace, Tracer, hash, mix};

/// Puts the bytes of values somewhere: the number of the first one, and the bytes.
type Put<'p> = dyn FnMut(usize, &[MaybeUninit<u8>]) -> Result<(), Error> + 'p;

/// Calls `put` with the bytes of all values at once, or of each, where bytes between its fields are cleared.
fn each_piece<T: Trace + Copy>(values: &[T], put: &mut Put<'_>) -> Result<(), Error> {
    if !T::HAS_PADDING {
        return put(0, bytes_of_all(values));
    }
    values.iter().enumerate().try_for_each(|(number, value)| put(number, bytes_of(&mut { *value })))
}

/// The head of a vector, what its root leads to: a pointer to the elements, which move when the vector grows.
#[repr(C)]
pub struct VectorHead<T> {
    elements: PPtr<Elements<T>>,
}

/// The elements of a vector: their number, and the elements behind it.
#[repr(C)]
pub struct Elements<T> {
    len: u64,
    /// The first lies at a multiple of 16.
    unused: u64,
    first: [T; 0],
}

impl<T> VectorHead<T> {
    /// The head of a vector without elements, for a program's own object that leads to a vector; see [`Vector::of`].
    pub const fn new() -> Self {
        Self { elements: PPtr::NULL }
    }
}

impl<T> Default for VectorHead<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for VectorHead<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VectorHead").field("elements", &self.elements).finish()
    }
}

impl<T> fmt::Debug for Elements<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Elements").field("len", &self.len).finish_non_exhaustive()
    }
}

// SAFETY: the head is one pointer, which `trace` names.
unsafe impl<T: Trace> Trace for VectorHead<T> {
    const LAYOUT: u64 = mix(hash("VectorHead", 0), T::LAYOUT);

    fn trace(&self, tracer: &mut Tracer<'_>) {
        self.elements.trace(tracer);
    }
}

// SAFETY: any bytes are numbers and elements, and `trace` names the elements.
unsafe impl<T: Trace> Trace for Elements<T> {
    const LAYOUT: u64 = mix(hash("Elements", 0), T::LAYOUT);
    const HAS_POINTERS: bool = T::HAS_POINTERS;

    fn trace(&self, tracer: &mut Tracer<'_>) {
        tracer.behind::<T>(self.first.as_ptr(), self.len as usize);
    }
}

/// A vector in a heap. [`Vector::push`] takes constant time, amortised; it moves all elements when it doubles their room.
pub struct Vector<'h, T, H = &'h Heap> {
    held: Held<H>,
    of: PhantomData<(T, &'h ())>,
}

const FIRST: usize = 16;

impl<T: Trace + Copy + fmt::Debug, H: HeapRef> fmt::Debug for Vector<'_, T, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'h, T: Trace + Copy> Vector<'h, T> {
    /// Opens the vector that a named root leads to, and creates it if there is none.
    ///
    /// # Errors
    /// [`Error::HandleLives`]: the vector has a handle; [`Error::InTransaction`]: a transaction of another thread that has not ended has changed
    /// the vector, or one of any thread its root; and as for [`Heap::root`] and [`Heap::alloc`].
    pub fn open<H: HeapRef>(heap: H, name: &str) -> Result<Vector<'h, T, H>, Error> {
        const { Vector::<T, H>::FITS };
        Ok(Vector { held: Held::open(heap, name, VectorHead::<T>::new)?, of: PhantomData })
    }

    /// The handle of the vector that a pointer leads to.
    ///
    /// # Errors
    /// [`Error::Foreign`].
    ///
    /// # Safety
    /// No other handle of the vector lives as long as this one, and its head is not freed or replaced. If a transaction has changed the vector by
    /// another handle, that has ended, or it is the calling thread's.
    pub unsafe fn of<H: HeapRef>(
        heap: H,
        head: PPtr<VectorHead<T>>,
    ) -> Result<Vector<'h, T, H>, Error> {
        const { Vector::<T, H>::FITS };
        // SAFETY: promised by the caller.
        Ok(Vector { held: unsafe { Held::of(heap, head)? }, of: PhantomData })
    }
}

/// A run of elements of a vector that is written anew.
enum Piece<'v, T> {
    Old(Range<usize>),
    New(&'v [T]),
}

impl<T: Trace + Copy, H: HeapRef> Vector<'_, T, H> {
    const FITS: () = assert!(
        align_of::<T>() <= 16 && size_of::<T>() > 0,
        "elements of a heap's vector are aligned to 16 bytes at most, and not empty"
    );
    const SIZE: usize = size_of::<T>();

    /// Where the elements are, and the number that there is room for.
    fn elements(&self) -> (usize, usize) {
        let core = self.held.core();
        let to = PPtr::<u8>::from_raw(core.load(self.held.at())).offset();
        let found = to.and_then(|at| core.object_of(at).filter(|found| found.start == at));
        found.map_or((0, 0), |found| (found.start, (found.bytes - FIRST) / Self::SIZE))
    }

    /// Where the elements are, and their number.
    fn parts(&self) -> (usize, usize) {
        let (at, room) = self.elements();
        (at, if at == 0 { 0 } else { (self.held.core().load(at) as usize).min(room) })
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        let _look = self.held.look();
        self.parts().1
    }

    /// Whether the vector has no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn place(at: usize, index: usize) -> usize {
        at + FIRST + index * Self::SIZE
    }

    /// The element of an index, of elements that begin at `at`.
    fn read(&self, at: usize, index: usize) -> T {
        let place = self.held.core().at(Self::place(at, index));
        // SAFETY: the callers have checked that the index is below the number of elements; any bytes are a value.
        unsafe { place.as_ptr().cast::<T>().read_unaligned() }
    }

    /// The element of an index; `None`: there are fewer elements.
    pub fn get(&self, index: usize) -> Option<T> {
        let _look = self.held.look();
        let (at, len) = self.parts();
        (index < len).then(|| self.read(at, index))
    }

    /// The first element.
    pub fn first(&self) -> Option<T> {
        self.get(0)
    }

    /// The last element.
    pub fn last(&self) -> Option<T> {
        let _look = self.held.look();
        let (at, len) = self.parts();
        len.checked_sub(1).map(|last| self.read(at, last))
    }

    /// All elements, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = T> + ExactSizeIterator {
        let _look = self.held.look();
        let mut watch = self.held.watch();
        let (mut at, mut len) = self.parts();
        let read = move |index| {
            let (_look, is_void) = self.held.step(&mut watch);
            if is_void {
                (at, len) = self.parts();
            }
            (index < len).then(|| self.read(at, index))
        };
        Numbered { numbers: 0..len, read }
    }

    /// Copies the elements from an index on to `into`, as many as it has room for, and returns their number.
    pub fn copy_to_slice(&self, from: usize, into: &mut [T]) -> usize {
        let _look = self.held.look();
        let (at, len) = self.parts();
        let count = len.saturating_sub(from).min(into.len());
        for (number, place) in into.iter_mut().enumerate().take(count) {
            *place = self.read(at, from + number);
        }
        count
    }

    /// Appends an element.
    ///
    /// # Errors
    /// As for [`Heap::alloc`]; [`Error::Forked`], [`Error::ReadOnly`], [`Error::InTransaction`].
    pub fn push(&mut self, value: T) -> Result<(), Error> {
        self.extend(&[value])
    }

    /// Appends elements, all or none.
    ///
    /// # Errors
    /// As for [`Vector::push`].
    pub fn extend(&mut self, values: &[T]) -> Result<(), Error> {
        let mut op = self.held.op()?;
        let (at, room) = self.elements();
        let len = self.len();
        let needed = len.checked_add(values.len()).ok_or(Error::Size(usize::MAX))?;
        if needed > room {
            let pieces = [Piece::Old(0..len), Piece::New(values)];
            return self.renew_longer(&mut op, needed.max(room * 2), needed, &pieces);
        }
        if values.is_empty() {
            return Ok(());
        }
        // SAFETY: there is room behind the last element, and no thread reads there.
        each_piece(values, &mut |number, bytes| unsafe {
            op.put_aside(Self::place(at, len + number), bytes)
        })?;
        op.fence();
        op.publish(at, needed as u64)
    }

    /// As [`Vector::renew`], with room for `least` elements if the heap has none for `room`.
    fn renew_longer(
        &self,
        op: &mut Op<'_, H::Medium>,
        room: usize,
        least: usize,
        pieces: &[Piece<'_, T>],
    ) -> Result<(), Error> {
        match self.renew(op, room, pieces) {
            Err(why) if why.is_full() && least < room => self.renew(op, least, pieces),
            outcome => outcome,
        }
    }

    /// Replaces the object of the elements by a new one, with room for `room` elements, that holds the pieces.
    fn renew(
        &self,
        op: &mut Op<'_, H::Medium>,
        room: usize,
        pieces: &[Piece<'_, T>],
    ) -> Result<(), Error> {
        let (old, _) = self.elements();
        let new = Self::fresh(op, room)?;
        let mut len = 0;
        for piece in pieces {
            len += self.put_piece(&new, len, old, piece);
        }
        self.put_in_place(new, old, len)
    }

    /// A new object with room for `room` elements.
    fn fresh<'o, 'c>(
        op: &'o mut Op<'c, H::Medium>,
        room: usize,
    ) -> Result<Fresh<'o, 'c, H::Medium>, Error> {
        let bytes = room.checked_mul(Self::SIZE).and_then(|bytes| bytes.checked_add(FIRST));
        let at = op.alloc(bytes.ok_or(Error::Size(room))?, 16)?;
        Ok(Fresh::new(op, at))
    }

    /// Writes a piece to a new object, which has room for it behind its first `len` elements. Returns the number of elements.
    fn put_piece(
        &self,
        new: &Fresh<'_, '_, H::Medium>,
        len: usize,
        old: usize,
        piece: &Piece<'_, T>,
    ) -> usize {
        let (count, bytes) = match piece {
            Piece::Old(range) if range.is_empty() => return 0,
            Piece::New(values) => {
                let put = &mut |number, bytes: &[MaybeUninit<u8>]| {
                    // SAFETY: nothing leads to the new object yet.
                    unsafe { new.op().put(Self::place(new.at(), len + number), bytes) };
                    Ok(())
                };
                // It does not fail.
                let _ = each_piece(values, put);
                return values.len();
            }
            Piece::Old(range) => {
                let from = self.held.core().at(Self::place(old, range.start)).cast();
                // SAFETY: elements of the old object, that only this handle changes.
                let bytes =
                    unsafe { core::slice::from_raw_parts(from.as_ptr(), range.len() * Self::SIZE) };
                (range.len(), bytes)
            }
        };
        // SAFETY: nothing leads to the new object yet.
        unsafe { new.op().put(Self::place(new.at(), len), bytes) };
        count
    }

    /// Publishes a new object with its `len` elements, and frees the old one.
    fn put_in_place(
        &self,
        new: Fresh<'_, '_, H::Medium>,
        old: usize,
        len: usize,
    ) -> Result<(), Error> {
        let core = self.held.core();
        core.store(new.at(), len as u64);
        core.store(new.at() + 8, 0);
        core.write_back(new.at(), FIRST);
        // SAFETY: only the head leads to the old object.
        unsafe { new.put_in_place(self.held.at(), old) }
    }

    /// Replaces an element.
    ///
    /// # Errors
    /// [`Error::Size`]: there is no element of that index; [`Error::Full`]: there is no room to log a large element, or a
    /// transaction's change; [`Error::Forked`], [`Error::ReadOnly`], [`Error::InTransaction`].
    pub fn set(&mut self, index: usize, mut value: T) -> Result<(), Error> {
        let mut op = self.held.op()?;
        let (at, len) = self.parts();
        if index >= len {
            return Err(Error::Size(index));
        }
        op.change(&[Part::of(Self::place(at, index), &mut value)])
    }

    /// Removes the last element, and returns it.
    ///
    /// # Errors
    /// [`Error::Forked`], [`Error::ReadOnly`], [`Error::InTransaction`]; in a transaction [`Error::Full`]: there is no room for its log.
    pub fn pop(&mut self) -> Result<Option<T>, Error> {
        // Behind what a transaction of another thread takes back: only then it is known which element is the last one.
        let mut op = self.held.op()?;
        let (at, len) = self.parts();
        let Some(last) = len.checked_sub(1) else { return Ok(None) };
        let value = self.read(at, last);
        op.publish(at, last as u64)?;
        Ok(Some(value))
    }

    /// Removes all elements but the first `len`. The room stays.
    ///
    /// # Errors
    /// As for [`Vector::pop`].
    pub fn truncate(&mut self, len: usize) -> Result<(), Error> {
        let mut op = self.held.op()?;
        let (at, has) = self.parts();
        if len < has { op.publish(at, len as u64) } else { Ok(()) }
    }

    /// Removes all elements, and frees their room.
    ///
    /// # Errors
    /// As for [`Vector::pop`].
    pub fn clear(&mut self) -> Result<(), Error> {
        let mut op = self.held.op()?;
        let (at, _) = self.elements();
        op.publish(self.held.at(), 0)?;
        // SAFETY: nothing leads to it any more.
        unsafe { op.free_replaced(at) };
        Ok(())
    }

    /// Inserts an element before the one of an index. Writes all elements to a new object.
    ///
    /// # Errors
    /// [`Error::Size`]: the index is beyond the end; and as for [`Vector::push`].
    pub fn insert(&mut self, index: usize, value: T) -> Result<(), Error> {
        let mut op = self.held.op()?;
        let (room, len) = (self.elements().1, self.len());
        if index > len {
            return Err(Error::Size(index));
        }
        let room = if len < room { room } else { room * 2 + 1 };
        let pieces = [Piece::Old(0..index), Piece::New(&[value]), Piece::Old(index..len)];
        self.renew_longer(&mut op, room, len + 1, &pieces)
    }

    /// Removes an element, and returns it. Writes all other elements to a new object, unless it is the last one.
    ///
    /// # Errors
    /// [`Error::Size`]: there is no element of that index; and as for [`Vector::push`].
    pub fn remove(&mut self, index: usize) -> Result<T, Error> {
        let mut value = None;
        self.drain(index..=index, |removed| value = Some(removed))?;
        value.ok_or(Error::Size(index))
    }

    /// Removes an element, and returns it. The last element takes its place, in constant time.
    ///
    /// # Errors
    /// [`Error::Size`]: there is no element of that index; and as for [`Vector::set`].
    pub fn swap_remove(&mut self, index: usize) -> Result<T, Error> {
        let mut op = self.held.op()?;
        let (at, len) = self.parts();
        if index >= len {
            return Err(Error::Size(index));
        }
        let (value, mut last) = (self.read(at, index), self.read(at, len - 1));
        let place = Part::of(Self::place(at, index), &mut last);
        op.change(&[place, Part::Word(at, len as u64 - 1)])?;
        Ok(value)
    }

    /// Calls `each` with the elements of a range, in order, and then removes all of them at once. The range is cut at the vector's end.
    ///
    /// Writes all other elements to a new object, unless the range reaches the end.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let heap = spandrel_pheap::Options::new().create(directory.path().join("h").to_str().unwrap())?;
    /// let mut numbers = spandrel_pheap::collections::Vector::<u64>::open(&heap, "numbers")?;
    /// numbers.extend(&[1, 2, 3, 4, 5])?;
    /// let mut taken = Vec::new();
    /// numbers.drain(1..3, |number| taken.push(number))?;
    /// assert_eq!((taken, numbers.iter().collect()), (vec![2, 3], vec![1, 4, 5]));
    /// # Ok::<(), spandrel_pheap::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Vector::push`]. All elements are there then.
    pub fn drain(
        &mut self,
        range: impl RangeBounds<usize>,
        mut each: impl FnMut(T),
    ) -> Result<(), Error> {
        let mut op = self.held.op()?;
        let (at, len) = self.parts();
        let to = match range.end_bound() {
            Bound::Unbounded => len,
            Bound::Included(to) => to.saturating_add(1).min(len),
            Bound::Excluded(to) => (*to).min(len),
        };
        let from = match range.start_bound() {
            Bound::Unbounded => 0,
            Bound::Included(from) => (*from).min(to),
            Bound::Excluded(from) => from.saturating_add(1).min(to),
        };
        (from..to).for_each(|index| each(self.read(at, index)));
        if from == to {
            return Ok(());
        }
        if to == len {
            return op.publish(at, from as u64);
        }
        let room = self.elements().1;
        self.renew(&mut op, room, &[Piece::Old(0..from), Piece::Old(to..len)])
    }

    /// Removes all elements for which `stays` returns false, at once. Writes the others to a new object, unless all stay.
    ///
    /// # Errors
    /// As for [`Vector::push`]. All elements are there then.
    pub fn retain(&mut self, mut stays: impl FnMut(&T) -> bool) -> Result<(), Error> {
        let mut op = self.held.op()?;
        let (old, len) = self.parts();
        let Some(first) = (0..len).find(|index| !stays(&self.read(old, *index))) else {
            return Ok(());
        };
        // A panic of the closure frees the new object.
        let new = Self::fresh(&mut op, len - 1)?;
        let mut count = self.put_piece(&new, 0, old, &Piece::Old(0..first));
        for index in first + 1..len {
            if stays(&self.read(old, index)) {
                count += self.put_piece(&new, count, old, &Piece::Old(index..index + 1));
            }
        }
        self.put_in_place(new, old, count)
    }
}
