//! A double-ended queue: a ring buffer with one word for its begin and one for its end.

use core::fmt;
use core::marker::PhantomData;

use super::held::{HeapRef, Held, Numbered};
use super::op::{Fresh, Op, bytes_of};
use crate::error::Error;
use crate::heap::Heap;
use crate::pointer::PPtr;
use crate::trace::{Trace, Tracer, hash, mix};

/// The head of a queue, what its root leads to: a pointer to the ring.
#[repr(C)]
pub struct QueueHead<T> {
    ring: PPtr<Ring<T>>,
}

/// The ring buffer of a queue. `begin` and `end` count without bound and wrap at 2⁶⁴; modulo `room` they are places in the ring.
#[repr(C)]
pub struct Ring<T> {
    begin: u64,
    end: u64,
    /// The number of elements that there is room for: a power of two.
    room: u64,
    /// The first lies at a multiple of 16.
    unused: u64,
    elements: [T; 0],
}

const END_AT: usize = 8;
const ROOM_AT: usize = 16;
const FIRST: usize = 32;
const LEAST_ROOM: usize = 8;

impl<T> QueueHead<T> {
    /// The head of a queue without elements, for a program's own object that leads to a queue; see [`Queue::of`].
    pub const fn new() -> Self {
        Self { ring: PPtr::NULL }
    }
}

impl<T> Default for QueueHead<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for QueueHead<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueHead").field("ring", &self.ring).finish()
    }
}

impl<T> fmt::Debug for Ring<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { begin, end, room, .. } = self;
        write!(f, "Ring({begin}..{end} of {room})")
    }
}

// SAFETY: the head is one pointer, which `trace` names.
unsafe impl<T: Trace> Trace for QueueHead<T> {
    const LAYOUT: u64 = mix(hash("QueueHead", size_of::<T>() as u64), T::LAYOUT);

    fn trace(&self, tracer: &mut Tracer<'_>) {
        self.ring.trace(tracer);
    }
}

// SAFETY: any bytes are numbers and elements, and `trace` names the elements in use.
unsafe impl<T: Trace> Trace for Ring<T> {
    const LAYOUT: u64 = <QueueHead<T>>::LAYOUT;
    const HAS_POINTERS: bool = T::HAS_POINTERS;

    fn trace(&self, tracer: &mut Tracer<'_>) {
        // Places that are not in use may hold pointers to objects that were freed.
        let Some((from, first, rest)) = parts(self.begin, self.end, self.room) else { return };
        tracer.some_behind::<T>(self.elements.as_ptr(), from, first);
        tracer.behind::<T>(self.elements.as_ptr(), rest);
    }
}

/// The place of the first element in the ring, the number of elements from there to the ring's end, and the number from the ring's
/// beginning on. `None`: the ring is damaged.
fn parts(begin: u64, end: u64, room: u64) -> Option<(usize, usize, usize)> {
    if !room.is_power_of_two() {
        return None;
    }
    let (len, from) = (end.wrapping_sub(begin).min(room), begin & (room - 1));
    let first = len.min(room - from);
    Some((from as usize, first as usize, (len - first) as usize))
}

/// A double-ended queue in a heap. Elements are pushed and popped at both ends in constant time, amortised.
pub struct Queue<'h, T, H = &'h Heap> {
    held: Held<H>,
    of: PhantomData<(T, &'h ())>,
}

impl<T: Trace + Copy + fmt::Debug, H: HeapRef> fmt::Debug for Queue<'_, T, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'h, T: Trace + Copy> Queue<'h, T> {
    /// Opens the queue that a named root leads to, and creates it if there is none.
    ///
    /// # Errors
    /// [`Error::HandleLives`]: the queue has a handle; [`Error::InTransaction`]: a transaction of another thread that has not ended has changed
    /// the queue, or one of any thread its root; and as for [`Heap::root`] and [`Heap::alloc`].
    pub fn open<H: HeapRef>(heap: H, name: &str) -> Result<Queue<'h, T, H>, Error> {
        const { Queue::<T, H>::FITS };
        Ok(Queue { held: Held::open(heap, name, QueueHead::<T>::new)?, of: PhantomData })
    }

    /// The handle of the queue that a pointer leads to.
    ///
    /// # Errors
    /// [`Error::Foreign`].
    ///
    /// # Safety
    /// No other handle of the queue lives as long as this one, and its head is not freed or replaced. If a transaction has changed the queue by
    /// another handle, that has ended, or it is the calling thread's.
    pub unsafe fn of<H: HeapRef>(
        heap: H,
        head: PPtr<QueueHead<T>>,
    ) -> Result<Queue<'h, T, H>, Error> {
        const { Queue::<T, H>::FITS };
        // SAFETY: promised by the caller.
        Ok(Queue { held: unsafe { Held::of(heap, head)? }, of: PhantomData })
    }
}

/// The state of a ring; all 0: the queue has none.
#[derive(Clone, Copy)]
struct Now {
    at: usize,
    begin: u64,
    len: usize,
    room: usize,
}

impl<T: Trace + Copy, H: HeapRef> Queue<'_, T, H> {
    const FITS: () = assert!(
        align_of::<T>() <= 16 && size_of::<T>() > 0,
        "elements of a heap's queue are aligned to 16 bytes at most, and not empty"
    );

    fn now(&self) -> Now {
        let core = self.held.core();
        let to = PPtr::<u8>::from_raw(core.load(self.held.at())).offset();
        let found = to.and_then(|at| core.object_of(at).filter(|found| found.start == at));
        let none = Now { at: 0, begin: 0, len: 0, room: 0 };
        let Some(found) = found.filter(|found| found.bytes >= FIRST) else { return none };
        let (at, begin) = (found.start, core.load(found.start));
        let room = core.load(at + ROOM_AT);
        let fits = (found.bytes - FIRST) / size_of::<T>();
        if !room.is_power_of_two() || room as usize > fits {
            return none;
        }
        let len = core.load(at + END_AT).wrapping_sub(begin).min(room) as usize;
        Now { at, begin, len, room: room as usize }
    }

    /// Where the element of a number is; the first one's is 0.
    fn place(now: Now, number: u64) -> usize {
        let number = now.begin.wrapping_add(number) as usize & (now.room - 1);
        now.at + FIRST + number * size_of::<T>()
    }

    fn read(&self, now: Now, number: usize) -> T {
        let at = self.held.core().at(Self::place(now, number as u64));
        // SAFETY: in the ring; any bytes are a value.
        unsafe { at.as_ptr().cast::<T>().read_unaligned() }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        let _look = self.held.look();
        self.now().len
    }

    /// Whether the queue has no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element of an index, counted from the front; `None`: there are fewer elements.
    pub fn get(&self, index: usize) -> Option<T> {
        let _look = self.held.look();
        let now = self.now();
        (index < now.len).then(|| self.read(now, index))
    }

    /// The first element.
    pub fn front(&self) -> Option<T> {
        self.get(0)
    }

    /// The last element.
    pub fn back(&self) -> Option<T> {
        let _look = self.held.look();
        let now = self.now();
        now.len.checked_sub(1).map(|last| self.read(now, last))
    }

    /// All elements, from the front to the back.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = T> + ExactSizeIterator {
        let _look = self.held.look();
        let mut watch = self.held.watch();
        let mut now = self.now();
        let numbers = 0..now.len;
        let read = move |number| {
            let (_look, is_void) = self.held.step(&mut watch);
            if is_void {
                now = self.now();
            }
            (number < now.len).then(|| self.read(now, number))
        };
        Numbered { numbers, read }
    }

    /// Appends an element at the back.
    ///
    /// # Errors
    /// As for [`Heap::alloc`]; [`Error::Forked`], [`Error::ReadOnly`], [`Error::InTransaction`].
    pub fn push_back(&mut self, mut value: T) -> Result<(), Error> {
        let mut op = self.held.op()?;
        let now = self.with_room(&mut op)?;
        // SAFETY: there is room behind the last element, and no thread reads there.
        unsafe { op.put_aside(Self::place(now, now.len as u64), bytes_of(&mut value))? };
        op.fence();
        op.publish(now.at + END_AT, now.begin.wrapping_add(now.len as u64 + 1))
    }

    /// Prepends an element at the front.
    ///
    /// # Errors
    /// As for [`Queue::push_back`].
    pub fn push_front(&mut self, mut value: T) -> Result<(), Error> {
        let mut op = self.held.op()?;
        let now = self.with_room(&mut op)?;
        // SAFETY: there is room before the first element, and no thread reads there.
        unsafe { op.put_aside(Self::place(now, u64::MAX), bytes_of(&mut value))? };
        op.fence();
        op.publish(now.at, now.begin.wrapping_sub(1))
    }

    /// Removes the first element, and returns it.
    ///
    /// # Errors
    /// [`Error::Forked`], [`Error::ReadOnly`], [`Error::InTransaction`]; in a transaction [`Error::Full`]: there is no room for its log.
    pub fn pop_front(&mut self) -> Result<Option<T>, Error> {
        let mut op = self.held.op()?;
        let now = self.now();
        if now.len == 0 {
            return Ok(None);
        }
        let value = self.read(now, 0);
        op.publish(now.at, now.begin.wrapping_add(1))?;
        Ok(Some(value))
    }

    /// Removes the last element, and returns it.
    ///
    /// # Errors
    /// As for [`Queue::pop_front`].
    pub fn pop_back(&mut self) -> Result<Option<T>, Error> {
        let mut op = self.held.op()?;
        let now = self.now();
        if now.len == 0 {
            return Ok(None);
        }
        let value = self.read(now, now.len - 1);
        op.publish(now.at + END_AT, now.begin.wrapping_add(now.len as u64 - 1))?;
        Ok(Some(value))
    }

    /// Removes all elements, and frees the ring.
    ///
    /// # Errors
    /// As for [`Queue::pop_front`].
    pub fn clear(&mut self) -> Result<(), Error> {
        let mut op = self.held.op()?;
        let now = self.now();
        op.publish(self.held.at(), 0)?;
        // SAFETY: nothing leads to it any more.
        unsafe { op.free_replaced(now.at) };
        Ok(())
    }

    /// The ring, with room for one more element: a full ring is replaced by one that is twice as large.
    fn with_room(&self, op: &mut Op<'_, H::Medium>) -> Result<Now, Error> {
        let now = self.now();
        if now.len < now.room {
            return Ok(now);
        }
        let room = (now.room * 2).max(LEAST_ROOM);
        let bytes = room.checked_mul(size_of::<T>()).and_then(|bytes| bytes.checked_add(FIRST));
        let at = op.alloc(bytes.ok_or(Error::Size(room))?, 16)?;
        let (core, new) = (op.core(), Fresh::new(op, at));
        for number in 0..now.len {
            let mut value = self.read(now, number);
            // SAFETY: nothing leads to the new ring yet.
            unsafe { new.op().put(at + FIRST + number * size_of::<T>(), bytes_of(&mut value)) };
        }
        core.store(at, 0);
        core.store(at + END_AT, now.len as u64);
        core.store(at + ROOM_AT, room as u64);
        core.store(at + ROOM_AT + 8, 0);
        core.write_back(at, FIRST);
        // SAFETY: only the head leads to the old ring.
        unsafe { new.put_in_place(self.held.at(), now.at)? };
        Ok(Now { at, begin: 0, len: now.len, room })
    }
}
