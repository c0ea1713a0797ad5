//! Runs of pages for a checkpoint.

use core::ptr::NonNull;
use core::slice;

use spandrel_pages::PAGE_BYTES;

use crate::medium::Failed;
use crate::room::Buffer;

/// Runs of one checkpoint at most. More runs become one, which has the pages between them as well.
const MOST: usize = 1 << 20;

/// The first page and the number of pages of each run.
pub struct Runs {
    memory: Buffer,
    room: usize,
    count: usize,
}

impl Runs {
    /// No runs, with room for those of an image of `pages` pages: at most every other page begins a run.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(pages: usize) -> Result<Self, Failed> {
        let room = (pages / 2 + 1).min(MOST);
        Ok(Self { memory: Buffer::new(room * size_of::<[u32; 2]>())?, room, count: 0 })
    }

    fn at(&self) -> NonNull<[u32; 2]> {
        self.memory.at().cast()
    }

    /// Adds a run of whole pages, by offset and length in bytes. Without room for it all runs become one.
    pub fn add(&mut self, at: usize, len: usize) {
        let run = [(at / PAGE_BYTES) as u32, (len / PAGE_BYTES) as u32];
        if self.count < self.room {
            // SAFETY: `count < room`, and the memory has room for `room` runs.
            unsafe { self.at().add(self.count).write(run) };
            self.count += 1;
            return;
        }
        let all =
            |[from, to]: [u32; 2], run: &[u32; 2]| [from.min(run[0]), to.max(run[0] + run[1])];
        let [from, to] = self.all().iter().fold([run[0], run[0] + run[1]], all);
        // SAFETY: there is room for one.
        unsafe { self.at().write([from, to - from]) };
        self.count = 1;
    }

    /// Sorts the runs, and makes one of those that overlap or touch: no page is in two. Complexity: that of a sort.
    pub fn merge(&mut self) {
        // SAFETY: the first `count` runs were written, and `self` is borrowed exclusively.
        let all = unsafe { slice::from_raw_parts_mut(self.at().as_ptr(), self.count) };
        all.sort_unstable();
        let mut merged = 0;
        for number in 1..all.len() {
            let Some(&[at, pages]) = all.get(number) else { break };
            match all.get_mut(merged) {
                Some(last) if at <= last[0] + last[1] => {
                    last[1] = last[1].max(at + pages - last[0]);
                }
                _ => {
                    merged += 1;
                    all.swap(merged, number);
                }
            }
        }
        self.count = self.count.min(merged + 1);
    }

    fn all(&self) -> &[[u32; 2]] {
        // SAFETY: the first `count` runs were written.
        unsafe { slice::from_raw_parts(self.at().as_ptr(), self.count) }
    }

    /// Offset and length of each, in bytes.
    pub fn iter(&self) -> impl Iterator<Item = (usize, usize)> {
        self.all()
            .iter()
            .map(|[page, count]| (*page as usize * PAGE_BYTES, *count as usize * PAGE_BYTES))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::prelude::v1::*;

    #[test]
    fn no_page_is_in_two_runs_after_a_merge() {
        let mut runs = Runs::new(100).unwrap();
        runs.merge();
        assert!(runs.is_empty());
        for [page, count] in [[9, 2], [20, 1], [2, 3], [4, 1], [1, 1], [10, 5], [30, 2], [2, 9]] {
            runs.add(page * PAGE_BYTES, count * PAGE_BYTES);
        }
        runs.merge();
        let pages = |(at, len)| (at / PAGE_BYTES, len / PAGE_BYTES);
        let all: Vec<_> = runs.iter().map(pages).collect();
        assert_eq!(all, [(1, 14), (20, 1), (30, 2)]);
    }

    #[test]
    fn too_many_runs_become_one() {
        let mut runs = Runs::new(6).unwrap();
        for page in [0, 2, 4] {
            runs.add(page * PAGE_BYTES, PAGE_BYTES);
        }
        assert_eq!(runs.iter().count(), 3);
        let mut runs = Runs::new(2).unwrap();
        let room = runs.room;
        (0..=room).for_each(|run| runs.add(run * 2 * PAGE_BYTES, PAGE_BYTES));
        assert_eq!(runs.iter().collect::<Vec<_>>(), [(0, (room * 2 + 1) * PAGE_BYTES)]);
        runs.clear();
        assert!(runs.is_empty());
    }
}
