//! The runs of a batch, between what has noted them and the record that they become part of.

use core::slice;

use spandrel_pages::PAGE_BYTES;
use spandrel_pmem::{Buffer, Failed};

/// Runs of one batch, at most: more than capture names one by one (a million blocks of its overflow, its table, its ranges). Where pages are compared there may be more.
const MOST: usize = 1 << 22;

/// Runs whose memory is kept for the next batch.
const KEPT: usize = 1 << 14;

/// A list of runs in memory that is taken as far as it is used. Of more runs than it holds, those of a page become one: bytes that have not changed may be part of a record.
pub struct Runs {
    room: Buffer,
    most: usize,
    count: usize,
    bytes: u64,
    is_full: bool,
}

impl Runs {
    /// An empty list.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new() -> Result<Self, Failed> {
        Self::with_room(MOST)
    }

    fn with_room(most: usize) -> Result<Self, Failed> {
        let room = Buffer::new(most * size_of::<(usize, usize)>())?;
        Ok(Self { room, most, count: 0, bytes: 0, is_full: false })
    }

    /// Forgets all runs.
    pub fn clear(&mut self) {
        if self.count > KEPT {
            self.room.release();
        }
        (self.count, self.bytes, self.is_full) = (0, 0, false);
    }

    /// Adds a run, which lies in whole pages of the state.
    pub fn push(&mut self, at: *const u8, len: usize) {
        if self.count == self.most {
            self.join_pages();
            // Otherwise each run that follows would have them joined again.
            self.is_full |= self.count > self.most / 2;
        }
        if self.is_full {
            return;
        }
        let place = self.room.at().as_ptr().cast::<(usize, usize)>();
        // SAFETY: within the buffer, which has room for `most` pairs and is borrowed exclusively.
        unsafe { place.add(self.count).write((at as usize, len)) };
        self.count += 1;
        self.bytes += len as u64;
    }

    /// Has runs be whole pages, and those that touch be one.
    fn join_pages(&mut self) {
        let all = self.all_mut();
        let mut kept = 0_usize;
        for number in 0..all.len() {
            let Some(&(at, len)) = all.get(number) else { break };
            let start = at / PAGE_BYTES * PAGE_BYTES;
            let end = at.saturating_add(len).next_multiple_of(PAGE_BYTES);
            match kept.checked_sub(1).and_then(|last| all.get_mut(last)) {
                // They come in order of address, but for some that are added later.
                Some(last) if last.0 <= start && start <= last.0 + last.1 => {
                    last.1 = last.1.max(end - last.0);
                }
                _ => {
                    if let Some(place) = all.get_mut(kept) {
                        *place = (start, end - start);
                    }
                    kept += 1;
                }
            }
        }
        self.count = kept;
        self.bytes = self.all().iter().map(|(_, len)| *len as u64).sum();
    }

    /// The number of runs, and of their bytes; `None`: there were more than the list holds.
    pub fn size(&self) -> Option<(u64, u64)> {
        (!self.is_full).then_some((self.count as u64, self.bytes))
    }

    /// All runs: their addresses and lengths.
    pub fn all(&self) -> &[(usize, usize)] {
        // SAFETY: the first `count` pairs were written.
        unsafe { slice::from_raw_parts(self.room.at().as_ptr().cast(), self.count) }
    }

    fn all_mut(&mut self) -> &mut [(usize, usize)] {
        // SAFETY: as above, and the buffer is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.room.at().as_ptr().cast(), self.count) }
    }

    /// Sorts the runs, and has those that touch be one.
    pub fn join(&mut self) {
        let all = self.all_mut();
        all.sort_unstable();
        let mut kept = 0_usize;
        for number in 0..all.len() {
            let Some(&(at, len)) = all.get(number) else { break };
            match kept.checked_sub(1).and_then(|last| all.get_mut(last)) {
                Some(last) if at <= last.0 + last.1 => last.1 = last.1.max(at + len - last.0),
                _ => {
                    if let Some(place) = all.get_mut(kept) {
                        *place = (at, len);
                    }
                    kept += 1;
                }
            }
        }
        self.count = kept;
        self.bytes = self.all().iter().map(|(_, len)| *len as u64).sum();
    }

    /// Calls `see` with the runs that have some of these bytes. The runs are joined.
    pub fn each_within(&self, from: usize, bytes: usize, see: &mut dyn FnMut(*const u8, usize)) {
        let first = self.all().partition_point(|(at, len)| at + len <= from);
        let rest = self.all().get(first..).unwrap_or(&[]).iter();
        rest.take_while(|(at, _)| *at < from + bytes)
            .for_each(|(at, len)| see(*at as *const u8, *len));
    }

    /// Calls `see` with each run.
    pub fn each(&self, see: &mut dyn FnMut(*const u8, usize)) {
        self.all().iter().for_each(|(at, len)| see(*at as *const u8, *len));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::prelude::v1::*;
    use std::vec;

    fn all(runs: &Runs) -> Vec<(usize, usize)> {
        let mut all = Vec::new();
        runs.each(&mut |at, len| all.push((at as usize, len)));
        all
    }

    #[test]
    fn more_runs_than_there_is_room_for_are_those_of_pages() {
        let mut runs = Runs::with_room(100).unwrap();
        let base = 16 * PAGE_BYTES;
        for number in 0..101 {
            runs.push((base + number * 64) as *const u8, 32);
        }
        // A hundred of them lie in two pages; the next one is a run again.
        let joined = (base, 2 * PAGE_BYTES);
        assert_eq!(all(&runs), [joined, (base + 100 * 64, 32)]);
        assert_eq!(runs.size(), Some((2, 2 * PAGE_BYTES as u64 + 32)));
        // Of another order than that of addresses.
        for number in 0..99 {
            runs.push((base - (number + 1) * 64) as *const u8, 32);
        }
        let covers =
            |byte: usize| all(&runs).iter().any(|run| (run.0..run.0 + run.1).contains(&byte));
        assert!((1..100).all(|number| covers(base - number * 64)));
        assert!((0..101).all(|number| covers(base + number * 64 + 31)));
        assert!(runs.size().is_some());
        runs.clear();
        assert_eq!(runs.size(), Some((0, 0)));
    }

    #[test]
    fn joined_runs_are_found_by_their_bytes() {
        let mut runs = Runs::with_room(100).unwrap();
        for (at, len) in [(500, 10), (100, 50), (140, 20), (160, 5), (300, 1)] {
            runs.push(at as *const u8, len);
        }
        runs.join();
        assert_eq!(all(&runs), [(100, 65), (300, 1), (500, 10)]);
        assert_eq!(runs.size(), Some((3, 76)));
        let within = |from: usize, bytes: usize| {
            let mut found = vec![];
            runs.each_within(from, bytes, &mut |at, _| found.push(at as usize));
            found
        };
        assert_eq!(within(0, 100), []);
        assert_eq!(within(164, 137), [100, 300]);
        assert_eq!(within(165, 400), [300, 500]);
    }

    #[test]
    fn pages_that_are_too_many_are_no_list() {
        let mut runs = Runs::with_room(10).unwrap();
        for number in 0..100 {
            runs.push((number * 2 * PAGE_BYTES) as *const u8, 8);
        }
        assert_eq!(runs.size(), None);
    }
}
