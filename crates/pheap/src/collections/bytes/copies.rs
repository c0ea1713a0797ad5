//! Copies of bytes that are lent while they may change: what a transaction has stored, its rollback takes back, also where a reference to it
//! lives. They lie in memory of the process until the map is changed or its handle is dropped: then no reference lives.

use core::cell::UnsafeCell;
use core::ptr::{self, NonNull};

use spandrel_os::vm;
use spandrel_pages::PAGE_BYTES;
use spandrel_sync::Lock;

/// Bytes of memory that are mapped at least.
const STEP_BYTES: usize = 16 * PAGE_BYTES;

/// A mapping with copies, one behind the other.
#[repr(C)]
struct Chunk {
    before: *mut Chunk,
    bytes: usize,
    used: usize,
}

/// See the head of this file.
pub(super) struct Copies {
    /// The last chunk; null: there is none.
    last: UnsafeCell<*mut Chunk>,
    lock: Lock<()>,
}

// SAFETY: the chunks belong to the value. `last` and what it leads to change under the lock, or where the value is had exclusively; copies that
// were handed out do not change.
unsafe impl Send for Copies {}
// SAFETY: as above.
unsafe impl Sync for Copies {}

impl Copies {
    pub const fn new() -> Self {
        Self { last: UnsafeCell::new(ptr::null_mut()), lock: Lock::new(()) }
    }

    /// A copy of bytes; `None`: there is no memory.
    pub fn keep(&self, bytes: &[u8]) -> Option<&[u8]> {
        if bytes.is_empty() {
            return Some(&[]);
        }
        let _locked = self.lock.lock();
        // SAFETY: under the lock.
        let last = unsafe { &mut *self.last.get() };
        // SAFETY: a chunk lives as long as the list has it.
        let has_room = |chunk: *mut Chunk| unsafe {
            !chunk.is_null() && (*chunk).bytes - (*chunk).used >= bytes.len()
        };
        if !has_room(*last) {
            *last = Self::map(*last, bytes.len())?.as_ptr();
        }
        // SAFETY: the chunk has room for the bytes, which no reference leads to yet.
        unsafe {
            let to = last.cast::<u8>().add((**last).used);
            to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            (**last).used += bytes.len();
            Some(core::slice::from_raw_parts(to, bytes.len()))
        }
    }

    /// A new chunk with room for that many bytes.
    fn map(before: *mut Chunk, room: usize) -> Option<NonNull<Chunk>> {
        let bytes = room.checked_add(size_of::<Chunk>())?.checked_next_multiple_of(STEP_BYTES)?;
        let at = vm::reserve_small(bytes)?;
        // SAFETY: reserved by the call above.
        if !unsafe { vm::open(at.as_ptr(), bytes) } {
            // SAFETY: as above; nothing uses it.
            unsafe { vm::release(at.as_ptr(), bytes) };
            return None;
        }
        let chunk = at.cast::<Chunk>();
        // SAFETY: open, and aligned to a page.
        unsafe { chunk.write(Chunk { before, bytes, used: size_of::<Chunk>() }) };
        Some(chunk)
    }

    /// Forgets all copies: no reference to one lives, as all borrow this. One chunk of the usual length stays for the next copies: an operation of a
    /// transaction would map one, and the next would unmap it.
    pub fn clear(&mut self) {
        self.release(STEP_BYTES);
    }

    /// Unmaps all chunks but one of at most that many bytes, which is empty then.
    fn release(&mut self, kept_bytes: usize) {
        let last = self.last.get_mut();
        let mut chunk = core::mem::replace(last, ptr::null_mut());
        while !chunk.is_null() {
            // SAFETY: a chunk of the list, which was taken.
            unsafe {
                let Chunk { before, bytes, .. } = chunk.read();
                if last.is_null() && bytes <= kept_bytes {
                    chunk.write(Chunk { before: *last, bytes, used: size_of::<Chunk>() });
                    *last = chunk;
                } else {
                    vm::release(chunk.cast(), bytes);
                }
                chunk = before;
            }
        }
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        self.release(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::prelude::v1::*;

    #[test]
    fn copies_stay_until_they_are_cleared() {
        let mut copies = Copies::new();
        for round in 0..3u8 {
            let kept: Vec<_> = (0..500usize)
                .map(|number| {
                    let bytes = vec![number as u8 ^ round; number * 7 % 900];
                    copies.keep(&bytes).unwrap()
                })
                .collect();
            let large = copies.keep(&vec![7; 300_000]).unwrap();
            assert!(large.len() == 300_000 && large.iter().all(|byte| *byte == 7));
            for (number, kept) in kept.iter().enumerate() {
                assert_eq!(kept.len(), number * 7 % 900);
                assert!(kept.iter().all(|byte| *byte == number as u8 ^ round));
            }
            copies.clear();
            // SAFETY: a chunk that the list has.
            let kept = unsafe { copies.last.get_mut().as_ref() }.unwrap();
            assert_eq!((kept.bytes, kept.used), (STEP_BYTES, size_of::<Chunk>()));
            assert!(kept.before.is_null());
        }
    }
}
