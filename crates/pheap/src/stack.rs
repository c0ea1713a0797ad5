//! What waits while a heap is marked: a stack of pieces of memory, each made when the one below is full. So address space is taken for what
//! waits, and not for what might: a limit of it (`ulimit -v`) that the heap fits is enough to recover the heap.

use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};

use spandrel_os::vm;
use spandrel_pages::PAGE_BYTES;

use crate::error::Error;

/// Bytes of a piece.
const PIECE_BYTES: usize = 64 * PAGE_BYTES;

/// The beginning of a piece; items follow.
struct Piece {
    below: *mut Piece,
}

/// A stack.
pub struct Stack<T: Copy> {
    /// The piece with the top; null: nothing was pushed yet.
    top: *mut Piece,
    /// Items in that piece.
    in_top: usize,
    /// An empty piece, so that a stack whose height moves about the end of one does not ask the kernel each time.
    spare: *mut Piece,
    height: usize,
    of: core::marker::PhantomData<T>,
}

impl<T: Copy> Stack<T> {
    const FIRST: usize = size_of::<Piece>().next_multiple_of(align_of::<T>());
    /// Items in a piece.
    const ROOM: usize = (PIECE_BYTES - Self::FIRST) / size_of::<T>();

    /// An empty one, which has no memory yet.
    pub const fn new() -> Self {
        let (top, spare) = (ptr::null_mut(), ptr::null_mut());
        Self { top, in_top: 0, spare, height: 0, of: core::marker::PhantomData }
    }

    /// How many items there are.
    #[inline]
    pub fn height(&self) -> usize {
        self.height
    }

    /// Adds one.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    #[inline]
    pub fn push(&mut self, item: T) -> Result<(), Error> {
        if self.top.is_null() || self.in_top == Self::ROOM {
            self.rise()?;
        }
        // SAFETY: `top` is a piece with room for one more.
        unsafe { (*Self::slot(self.top, self.in_top)).write(item) };
        self.in_top += 1;
        self.height += 1;
        Ok(())
    }

    /// Takes the one that was added last.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        self.height = self.height.checked_sub(1)?;
        if self.in_top == 0 {
            self.sink();
        }
        self.in_top -= 1;
        // SAFETY: below the height each slot was written.
        Some(unsafe { (*Self::slot(self.top, self.in_top)).assume_init() })
    }

    /// The slot of a piece with that number, below `ROOM`.
    #[inline]
    fn slot(piece: *mut Piece, number: usize) -> *mut MaybeUninit<T> {
        // SAFETY: within the piece.
        unsafe { piece.cast::<u8>().add(Self::FIRST).cast::<MaybeUninit<T>>().add(number) }
    }

    /// Makes a piece the top, above one that is full.
    #[cold]
    fn rise(&mut self) -> Result<(), Error> {
        let mut piece = core::mem::replace(&mut self.spare, ptr::null_mut());
        if piece.is_null() {
            piece = map().ok_or(Error::NoMemory)?.as_ptr();
        }
        // SAFETY: the piece is this stack's.
        unsafe { (*piece).below = self.top };
        (self.top, self.in_top) = (piece, 0);
        Ok(())
    }

    /// Goes on with the piece below one that is empty; the height says that there is one.
    #[cold]
    fn sink(&mut self) {
        release(core::mem::replace(&mut self.spare, self.top));
        // SAFETY: there are items, and none of them is in the top piece.
        self.top = unsafe { (*self.top).below };
        self.in_top = Self::ROOM;
    }
}

impl<T: Copy> Drop for Stack<T> {
    fn drop(&mut self) {
        release(self.spare);
        while !self.top.is_null() {
            // SAFETY: a piece of this stack.
            let below = unsafe { (*self.top).below };
            release(self.top);
            self.top = below;
        }
    }
}

fn map() -> Option<NonNull<Piece>> {
    let piece = vm::reserve_small(PIECE_BYTES)?;
    // SAFETY: reserved by the call above.
    let is_open = unsafe { vm::open(piece.as_ptr(), PIECE_BYTES) };
    if !is_open {
        release(piece.as_ptr().cast());
        return None;
    }
    Some(piece.cast())
}

fn release(piece: *mut Piece) {
    if !piece.is_null() {
        // SAFETY: mapped by `map`, and in no stack any more.
        unsafe { vm::release(piece.cast(), PIECE_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_last_is_taken_first_also_where_pieces_meet() {
        let mut stack = Stack::<[u64; 4]>::new();
        assert_eq!(stack.pop(), None);
        let room = Stack::<[u64; 4]>::ROOM;
        let mut model = std::vec::Vec::new();
        let mut number = 0;
        // Up and down by other numbers, over the ends of pieces in both directions.
        for steps in [3 * room, 2 * room + 1, room - 1, 1, 4 * room, 5 * room] {
            for _ in 0..steps {
                number += 1;
                stack.push([number; 4]).unwrap();
                model.push([number; 4]);
            }
            for _ in 0..steps - steps / 3 {
                assert_eq!(stack.pop(), model.pop());
                assert_eq!(stack.height(), model.len());
            }
        }
        while let Some(item) = model.pop() {
            assert_eq!(stack.pop(), Some(item));
        }
        assert_eq!((stack.pop(), stack.height()), (None, 0));
    }
}
