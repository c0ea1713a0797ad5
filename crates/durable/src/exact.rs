//! What a batch of translated code has stored, byte by byte: for undoing it.
//!
//! A block that is put back as a whole would take with it what other threads have stored beside: owners of an `Arc` of the state that were made or dropped outside of batches are
//! counted in the state, by stores that are not noted. So the bytes are put back that the batch has stored. A word whose first store in the batch was an atomic one is not read from the
//! file: it becomes what it was before that store.

use core::slice;

use spandrel_pmem::{Buffer, Failed};

/// Stores at most, after those of the same bytes were joined: of more than these whole blocks are put back.
const MOST: usize = 1 << 22;
/// A store of more bytes is a long one.
const SHORT_BYTES: usize = 256;
/// Stores whose memory is kept for the next batch.
const KEPT: usize = 1 << 14;

/// A store of the batch.
#[derive(Clone, Copy)]
#[repr(C)]
struct Store {
    at: usize,
    before: u64,
    bytes: u32,
    order: u32,
    /// While the long stores are gone through: the next place that may be an atomic store of which it is not known whether one of them was there before it, or a place on the way there.
    next: u32,
    is_atomic: bool,
    /// A long store was there before it.
    is_covered: bool,
    /// No store of the batch was there before it.
    is_first: bool,
}

impl Store {
    const NONE: Self = Self {
        at: 0,
        before: 0,
        bytes: 0,
        order: 0,
        next: 0,
        is_atomic: false,
        is_covered: false,
        is_first: false,
    };

    fn end(&self) -> usize {
        self.at.saturating_add(self.bytes as usize)
    }

    fn touches(&self, other: &Self) -> bool {
        self.at < other.end() && other.at < self.end()
    }
}

/// The first place from that one on that was not left out; a place behind all stores: there is none. The way there becomes shorter.
fn next(all: &mut [Store], from: u32) -> u32 {
    let mut found = from;
    while let Some(store) = all.get(found as usize).filter(|store| store.next != found) {
        found = store.next;
    }
    let mut at = from;
    while let Some(store) = all.get_mut(at as usize).filter(|store| store.next != at) {
        at = core::mem::replace(&mut store.next, found);
    }
    found
}

/// See the head of this file.
pub struct Exact {
    room: Buffer,
    /// The places of long stores, in their order.
    aside: Buffer,
    count: usize,
    order: u32,
    is_full: bool,
    has_atomics: bool,
    /// The order is that of addresses.
    is_joined: bool,
}

impl Exact {
    /// None.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new() -> Result<Self, Failed> {
        let room = Buffer::new(MOST * size_of::<Store>())?;
        Ok(Self {
            room,
            aside: Buffer::new(MOST * size_of::<u32>())?,
            count: 0,
            order: 0,
            is_full: false,
            has_atomics: false,
            is_joined: false,
        })
    }

    fn push(&mut self, at: usize, bytes: u32, before: Option<u64>) {
        if self.is_full || (before.is_none() && self.lengthen_last(at, bytes)) {
            return;
        }
        if self.count == MOST {
            self.join();
            // Otherwise the stores would be joined again and again.
            self.is_full = self.count > MOST / 2;
            if self.is_full {
                return;
            }
        }
        let (is_atomic, order) = (before.is_some(), self.order);
        // Without an order of stores whole blocks are put back.
        let Some(next) = order.checked_add(1) else {
            self.is_full = true;
            return;
        };
        self.order = next;
        let before = before.unwrap_or(0);
        let store = Store { at, before, bytes, order, is_atomic, ..Store::NONE };
        // SAFETY: within the buffer, which has room for `MOST` stores and is borrowed exclusively.
        unsafe { self.room.at().as_ptr().cast::<Store>().add(self.count).write(store) };
        self.count += 1;
    }

    /// Has the last store be longer, where this one goes on behind it: text is often stored byte by byte. False: it does not.
    fn lengthen_last(&mut self, at: usize, bytes: u32) -> bool {
        // In the order of addresses the last store is not the latest.
        if self.is_joined {
            return false;
        }
        let Some(last) = self.all_mut().last_mut() else { return false };
        let goes_on = !last.is_atomic && last.end() == at;
        let len = last.bytes.saturating_add(bytes);
        let does = goes_on && len as usize <= SHORT_BYTES;
        if does {
            last.bytes = len;
        }
        does
    }

    /// Bytes are stored.
    pub fn note(&mut self, at: *const u8, bytes: usize) {
        let (mut at, mut rest) = (at as usize, bytes);
        while rest > 0 {
            let part = rest.min(u32::MAX as usize);
            self.push(at, part as u32, None);
            (at, rest) = (at + part, rest - part);
        }
    }

    /// One to eight bytes are stored that were `before`.
    pub fn note_atomic(&mut self, at: *const u8, bytes: usize, before: u64) {
        self.has_atomics = true;
        self.push(at as usize, bytes as u32, Some(before));
    }

    /// Another batch begins.
    pub fn clear(&mut self) {
        if self.count > KEPT {
            self.room.release();
            self.aside.release();
        }
        (self.count, self.order) = (0, 0);
        (self.is_full, self.has_atomics, self.is_joined) = (false, false, false);
    }

    fn all(&self) -> &[Store] {
        // SAFETY: the first `count` stores were written.
        unsafe { slice::from_raw_parts(self.room.at().as_ptr().cast(), self.count) }
    }

    fn all_mut(&mut self) -> &mut [Store] {
        // SAFETY: as above, and the buffer is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.room.at().as_ptr().cast(), self.count) }
    }

    /// Sorts the stores by address, and keeps the first one of those with the same bytes.
    fn join(&mut self) {
        self.is_joined = true;
        let all = self.all_mut();
        all.sort_unstable_by_key(|store| (store.at, store.bytes, store.order));
        let mut kept = 0_usize;
        for number in 0..all.len() {
            let Some(store) = all.get(number).copied() else { break };
            let last = kept.checked_sub(1).and_then(|last| all.get(last));
            if last.is_some_and(|last| (last.at, last.bytes) == (store.at, store.bytes)) {
                continue;
            }
            if let Some(place) = all.get_mut(kept) {
                *place = store;
            }
            kept += 1;
        }
        self.count = kept;
    }

    /// Marks the atomic stores of which a long store had the bytes before. The stores are joined.
    ///
    /// Long stores are gone through in their order. What is known after the first one that has an atomic store's bytes stays: that place is left out from then on, as are those that
    /// are no atomic stores. So each is visited about once, however many long stores have it.
    fn mark_covered(&mut self) {
        // SAFETY: the buffer has room for as many numbers as there are stores, and is borrowed exclusively; the other one has the stores that were written.
        let (aside, all) = unsafe {
            let aside = slice::from_raw_parts_mut(self.aside.at().as_ptr().cast::<u32>(), MOST);
            (aside, slice::from_raw_parts_mut(self.room.at().as_ptr().cast::<Store>(), self.count))
        };
        let mut count = 0;
        for (number, store) in all.iter_mut().enumerate() {
            store.next = number as u32;
            if store.bytes as usize > SHORT_BYTES
                && let Some(place) = aside.get_mut(count)
            {
                *place = number as u32;
                count += 1;
            }
        }
        let long = aside.get_mut(..count).unwrap_or(&mut []);
        let of = |all: &[Store], number: u32| all.get(number as usize).copied();
        long.sort_unstable_by_key(|number| of(all, *number).map_or(0, |store| store.order));
        for number in long.iter() {
            let Some(long) = of(all, *number) else { continue };
            // An atomic store has eight bytes at most.
            let first = all.partition_point(|other| other.at + size_of::<u64>() <= long.at);
            let mut number = next(all, first as u32);
            while let Some(store) = all.get_mut(number as usize).filter(|s| s.at < long.end()) {
                if !store.is_atomic || store.touches(&long) {
                    store.is_covered = store.is_atomic && long.order < store.order;
                    store.next = number + 1;
                }
                number = next(all, number + 1);
            }
        }
    }

    /// Marks the atomic stores that were the first ones of the batch at their bytes. The stores are joined.
    fn mark_first(&mut self) {
        if !self.has_atomics {
            return;
        }
        self.mark_covered();
        for number in 0..self.count {
            let all = self.all();
            let Some(store) = all.get(number).copied().filter(|store| store.is_atomic) else {
                continue;
            };
            let is_earlier = |other: &Store| other.order < store.order && other.touches(&store);
            // Short ones that reach it begin near it.
            let from = all.partition_point(|other| other.at + SHORT_BYTES < store.at);
            let to = all.partition_point(|other| other.at < store.end());
            let near = all.get(from..to).unwrap_or(&[]);
            let is_first = !store.is_covered && !near.iter().any(is_earlier);
            if let Some(store) = self.all_mut().get_mut(number) {
                store.is_first = is_first;
            }
        }
    }

    /// Tells how the batch is undone: calls `read` with the bytes that are read from the file, in order of address, disjoint. False: there were too many stores; nothing was told.
    pub fn undo(&mut self, read: &mut dyn FnMut(*const u8, usize)) -> bool {
        if self.is_full {
            return false;
        }
        self.join();
        self.mark_first();
        // What is told by now ends there.
        let mut told = 0;
        for number in 0..self.count {
            let all = self.all();
            let Some(store) = all.get(number) else { break };
            let (mut from, end) = (store.at.max(told), store.end());
            told = told.max(end);
            if store.is_first {
                continue;
            }
            // Words that are not read from the file.
            let near = if self.has_atomics {
                let first = all.partition_point(|other| other.at + size_of::<u64>() <= from);
                all.get(first..).unwrap_or(&[])
            } else {
                &[]
            };
            let words = near.iter().take_while(|other| other.at < end);
            for word in words.filter(|word| word.is_first) {
                if word.at > from {
                    read(from as *const u8, word.at - from);
                }
                from = from.max(word.end());
            }
            if from < end {
                read(from as *const u8, end - from);
            }
        }
        true
    }

    /// Calls `see` with the address and the number of bytes of each store, and whether it was atomic, in their order.
    pub fn each(&self, see: &mut dyn FnMut(*const u8, usize, bool)) {
        for store in self.all() {
            see(store.at as *const u8, store.bytes as usize, store.is_atomic);
        }
    }

    /// Whether the order of the stores is not known any more.
    pub fn is_joined(&self) -> bool {
        self.is_joined
    }

    /// Whether a store of the batch was atomic.
    pub fn has_atomics(&self) -> bool {
        self.has_atomics
    }

    /// Calls `see` with the address, the number of bytes and the value before of each atomic store that was the first one of the batch there. After [`Exact::undo`].
    pub fn each_before(&self, see: &mut dyn FnMut(*mut u8, usize, u64)) {
        for store in self.all().iter().filter(|store| store.is_first) {
            see(store.at as *mut u8, store.bytes as usize, store.before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::prelude::v1::*;
    use std::vec;

    const BASE: usize = 1 << 20;

    fn read(exact: &mut Exact) -> Vec<(usize, usize)> {
        let mut all = vec![];
        assert!(exact.undo(&mut |at, bytes| all.push((at as usize - BASE, bytes))));
        all
    }

    fn before(exact: &Exact) -> Vec<(usize, usize, u64)> {
        let mut all = vec![];
        exact.each_before(&mut |at, bytes, value| all.push((at as usize - BASE, bytes, value)));
        all
    }

    #[test]
    fn the_first_store_of_a_word_tells_what_was_there() {
        let mut exact = Exact::new().unwrap();
        let at = |offset: usize| (BASE + offset) as *const u8;
        exact.note_atomic(at(64), 8, 7);
        exact.note_atomic(at(64), 8, 8);
        exact.note(at(104), 1000);
        exact.note(at(60), 8);
        exact.note_atomic(at(120), 4, 9);
        exact.note_atomic(at(1104), 4, 10);
        assert_eq!(read(&mut exact), [(60, 4), (104, 1000)]);
        assert_eq!(before(&exact), [(64, 8, 7), (1104, 4, 10)]);
        exact.clear();
        assert_eq!((read(&mut exact), before(&exact)), (vec![], vec![]));
    }

    #[test]
    fn text_that_is_stored_byte_by_byte_takes_little_room() {
        let mut exact = Exact::new().unwrap();
        (0..1 << 20).for_each(|byte| exact.note((BASE + byte) as *const u8, 1));
        assert_eq!(exact.count, (1 << 20) / SHORT_BYTES);
        // An atomic store between two others keeps these apart.
        exact.note_atomic((BASE + (1 << 20)) as *const u8, 8, 7);
        exact.note((BASE + (1 << 20)) as *const u8, 8);
        assert_eq!(read(&mut exact).iter().map(|(_, bytes)| bytes).sum::<usize>(), 1 << 20);
        assert_eq!(before(&exact), [(1 << 20, 8, 7)]);
    }

    /// Seconds, not hours: as many long stores as words, behind each other, and one over all of them.
    #[test]
    fn many_long_stores_take_no_longer_than_few() {
        const WORDS: usize = 100_000;
        let begin = std::time::Instant::now();
        for (covers, firsts) in [(false, WORDS), (true, 0)] {
            let mut exact = Exact::new().unwrap();
            if covers {
                exact.note(BASE as *const u8, WORDS * 512);
            }
            for number in 0..WORDS {
                exact.note_atomic((BASE + number * 512) as *const u8, 8, number as u64);
                exact.note((BASE + number * 512 + 8) as *const u8, 300);
                exact.note((BASE + number * 512 + 16) as *const u8, 400);
            }
            let _ = read(&mut exact);
            assert_eq!(before(&exact).len(), firsts);
        }
        assert!(begin.elapsed().as_secs() < 20, "{:?}", begin.elapsed());
    }

    /// Byte by byte, beside a model.
    #[test]
    fn each_byte_becomes_what_it_was() {
        let mut number = 7u64;
        let mut below = |end: usize| {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (number >> 33) as usize % end
        };
        for _ in 0..300 {
            let mut exact = Exact::new().unwrap();
            // Of each byte whether its first store was atomic, and the number of that store.
            let mut first: BTreeMap<usize, (bool, u64)> = BTreeMap::new();
            let most = [40, 40, 400][below(3)];
            for order in 0..1 + below(most) as u64 {
                let is_atomic = below(3) == 0;
                let most = [8, 40, 700][below(3)];
                let len = if is_atomic { 8 } else { 1 + below(most) };
                // Atomic words are aligned, and other stores have them whole or not at all.
                let at = below(100) * 8;
                let len = if is_atomic { len } else { len.next_multiple_of(8) };
                if is_atomic {
                    exact.note_atomic((BASE + at) as *const u8, len, order);
                } else {
                    exact.note((BASE + at) as *const u8, len);
                }
                (at..at + len).for_each(|byte| {
                    first.entry(byte).or_insert((is_atomic, order));
                });
            }
            let mut undone = BTreeMap::new();
            for (at, len) in read(&mut exact) {
                for byte in at..at + len {
                    assert!(undone.insert(byte, (false, 0)).is_none(), "{byte} twice");
                }
            }
            for (at, len, value) in before(&exact) {
                for byte in at..at + len {
                    assert!(undone.insert(byte, (true, value)).is_none(), "{byte} twice");
                }
            }
            first.values_mut().filter(|(is_atomic, _)| !is_atomic).for_each(|v| v.1 = 0);
            assert_eq!(undone, first);
        }
    }
}
