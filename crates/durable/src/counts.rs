//! Words of the state that translated commands have changed atomically: counts of owners, which threads change outside of commands as well, where nothing is noted.
//!
//! Before a batch those are noted that are not what the last batch has made durable: otherwise an owner that is gone would be counted after the next opening.

use core::ops::Range;

/// Words that are looked at. Of two with the same place the last one is: the other one's owners may be counted for ever, as those of a killed process are.
const PLACES: usize = 256;

/// A word, and what is durable of it.
#[derive(Clone, Copy, Default)]
struct Word {
    at: usize,
    bytes: usize,
    value: u64,
    is_doubtful: bool,
}

impl Word {
    /// What it is now.
    ///
    /// # Safety
    /// The bytes are readable.
    unsafe fn now(&self) -> u64 {
        let mut value = [0; size_of::<u64>()];
        for (number, byte) in value.iter_mut().enumerate().take(self.bytes) {
            // SAFETY: promised by the caller. Volatile: another thread may store there. Of a value that changes meanwhile any part differs from what is durable.
            *byte = unsafe { (self.at as *const u8).add(number).read_volatile() };
        }
        u64::from_le_bytes(value)
    }
}

/// See the head of this file.
pub struct Counts {
    words: [Word; PLACES],
    is_used: bool,
}

impl Default for Counts {
    fn default() -> Self {
        Self { words: [Word::default(); PLACES], is_used: false }
    }
}

impl Counts {
    /// A batch has made one to eight bytes durable that it has changed atomically.
    ///
    /// # Safety
    /// The bytes are readable.
    pub unsafe fn keep(&mut self, at: *const u8, bytes: usize) {
        let mut word = Word { at: at as usize, bytes, value: 0, is_doubtful: false };
        // SAFETY: promised by the caller.
        word.value = unsafe { word.now() };
        if let Some(place) = self.words.get_mut((word.at >> 3) % PLACES) {
            *place = word;
            self.is_used = true;
        }
    }

    /// What is durable of the words is not known: each is told as one that has changed.
    pub fn doubt(&mut self) {
        self.words.iter_mut().for_each(|word| word.is_doubtful = true);
    }

    /// Whether there are words.
    pub fn is_used(&self) -> bool {
        self.is_used
    }

    /// A batch has stored there otherwise: the bytes are no counts any more.
    pub fn forget(&mut self, at: *const u8, bytes: usize) {
        if !self.is_used {
            return;
        }
        let (from, end) = (at as usize, (at as usize).saturating_add(bytes));
        let is_gone = |word: &Word| word.at < end && from < word.at + word.bytes;
        if bytes >> 3 >= PLACES {
            self.words
                .iter_mut()
                .filter(|word| is_gone(word))
                .for_each(|word| *word = Word::default());
            return;
        }
        for place in from >> 3..=end.saturating_sub(1) >> 3 {
            if let Some(word) = self.words.get_mut(place % PLACES).filter(|word| is_gone(word)) {
                *word = Word::default();
            }
        }
    }

    /// Calls `see` with the words within the open bytes of the state that have changed since.
    ///
    /// # Safety
    /// The open bytes are readable.
    pub unsafe fn each_changed(&self, open: Range<usize>, see: &mut dyn FnMut(*const u8, usize)) {
        if !self.is_used {
            return;
        }
        let is_open = |word: &&Word| {
            word.bytes > 0 && word.at >= open.start && word.at + word.bytes <= open.end
        };
        for word in self.words.iter().filter(is_open) {
            // SAFETY: promised by the caller.
            if word.is_doubtful || unsafe { word.now() } != word.value {
                see(word.at as *const u8, word.bytes);
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
    fn words_that_have_changed_are_told() {
        let mut words = [1u64, 2, 3];
        let at = words.as_mut_ptr();
        let base = at as usize;
        let mut counts = Counts::default();
        let changed = |counts: &Counts, end: usize| {
            let mut all = vec![];
            // SAFETY: words of this test.
            unsafe {
                counts.each_changed(base..base + 8 * end, &mut |word, bytes| {
                    all.push(((word as usize - base) / 8, bytes));
                });
            }
            all
        };
        // SAFETY: as above.
        unsafe {
            counts.keep(at.cast(), 8);
            counts.keep(at.add(2).cast(), 4);
            assert_eq!(changed(&counts, 3), []);
            *at += 1;
            *at.add(1) += 1;
            *at.add(2) += 1 << 40;
            assert_eq!(changed(&counts, 3), [(0, 8)]);
            *at.add(2) += 1;
            assert_eq!(changed(&counts, 3), [(0, 8), (2, 4)]);
            assert_eq!(changed(&counts, 2), [(0, 8)]);
            counts.keep(at.cast(), 8);
            assert_eq!(changed(&counts, 2), []);
            *at += 1;
            counts.forget(at.cast::<u8>().add(7), 1);
            assert_eq!(changed(&counts, 3), [(2, 4)]);
            counts.doubt();
            assert_eq!(changed(&counts, 3), [(2, 4)]);
            counts.forget(at.cast(), 1 << 20);
            assert_eq!(changed(&counts, 3), []);
        }
    }
}
