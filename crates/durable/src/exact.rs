//! What a batch of translated code has stored, byte by byte: for undoing it.
//!
//! A block that is put back as a whole would take with it what other threads have stored beside: owners of an `Arc` of the state that were made or dropped outside of batches are
//! counted in the state, by stores that are not noted. So the bytes are put back that the batch has stored, and of an atomic store what was there before the first one of the batch.

use core::slice;

use spandrel_pmem::{Buffer, Failed};

/// Stores at most: of more than these whole blocks are put back.
const MOST: usize = 1 << 22;

/// A store of the batch.
#[derive(Clone, Copy)]
#[repr(C)]
struct Store {
    at: usize,
    bytes: u32,
    is_atomic: bool,
    before: u64,
}

/// See the head of this file.
pub struct Exact {
    room: Buffer,
    count: usize,
    is_full: bool,
    has_atomics: bool,
}

impl Exact {
    /// None.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new() -> Result<Self, Failed> {
        Ok(Self {
            room: Buffer::new(MOST * size_of::<Store>())?,
            count: 0,
            is_full: false,
            has_atomics: false,
        })
    }

    fn push(&mut self, store: Store) {
        if self.count == MOST {
            self.is_full = true;
            return;
        }
        // SAFETY: within the buffer, which has room for `MOST` stores and is borrowed exclusively.
        unsafe { self.room.at().as_ptr().cast::<Store>().add(self.count).write(store) };
        self.count += 1;
    }

    /// Bytes are stored.
    pub fn note(&mut self, at: *const u8, bytes: usize) {
        let (mut at, mut rest) = (at as usize, bytes);
        while rest > 0 {
            let part = rest.min(u32::MAX as usize);
            self.push(Store { at, bytes: part as u32, is_atomic: false, before: 0 });
            (at, rest) = (at + part, rest - part);
        }
    }

    /// One to eight bytes are stored that were `before`.
    pub fn note_atomic(&mut self, at: *const u8, bytes: usize, before: u64) {
        self.has_atomics = true;
        self.push(Store { at: at as usize, bytes: bytes as u32, is_atomic: true, before });
    }

    /// Another batch begins.
    pub fn clear(&mut self) {
        (self.count, self.is_full, self.has_atomics) = (0, false, false);
    }

    fn all(&self) -> &[Store] {
        // SAFETY: the first `count` stores were written.
        unsafe { slice::from_raw_parts(self.room.at().as_ptr().cast(), self.count) }
    }

    /// Calls `see` with all stores; false: there were too many.
    pub fn each(&self, see: &mut dyn FnMut(*const u8, usize)) -> bool {
        if !self.is_full {
            self.all().iter().for_each(|store| see(store.at as *const u8, store.bytes as usize));
        }
        !self.is_full
    }

    /// Calls `see` with the address and the number of bytes of each atomic store.
    pub fn each_atomic(&self, see: &mut dyn FnMut(*const u8, usize)) {
        if self.has_atomics {
            let atomic = self.all().iter().filter(|store| store.is_atomic);
            atomic.for_each(|store| see(store.at as *const u8, store.bytes as usize));
        }
    }

    /// Calls `see` with the address, the number of bytes and the value of each atomic store that was the first one of the batch there.
    pub fn each_before(&self, see: &mut dyn FnMut(*mut u8, usize, u64)) {
        let all = self.all();
        for (number, store) in all.iter().enumerate().filter(|(_, store)| store.is_atomic) {
            let earlier = all.get(..number).unwrap_or(&[]);
            let touches = |other: &Store| {
                other.at < store.at + store.bytes as usize
                    && store.at < other.at + other.bytes as usize
            };
            if !earlier.iter().any(touches) {
                see(store.at as *mut u8, store.bytes as usize, store.before);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::prelude::v1::*;
    use std::vec;

    #[test]
    fn the_first_store_of_a_word_tells_what_was_there() {
        let mut exact = Exact::new().unwrap();
        let at = |address: usize| address as *const u8;
        exact.note_atomic(at(64), 8, 7);
        exact.note_atomic(at(64), 8, 8);
        exact.note(at(104), 100);
        exact.note_atomic(at(120), 4, 9);
        exact.note_atomic(at(204), 4, 10);
        let mut before = vec![];
        exact.each_before(&mut |at, bytes, value| before.push((at as usize, bytes, value)));
        assert_eq!(before, [(64, 8, 7), (204, 4, 10)]);
        let mut stored = 0;
        assert!(exact.each(&mut |_, bytes| stored += bytes));
        assert_eq!(stored, 8 + 8 + 100 + 4 + 4);
        exact.clear();
        exact.each_before(&mut |at, _, _| assert!(at.is_null(), "{at:p}"));
    }
}
