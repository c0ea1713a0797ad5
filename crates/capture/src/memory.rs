//! Words of anonymous memory that are opened as they are used.

use core::ptr::NonNull;

use spandrel_os::vm;
use spandrel_pages::PAGE_BYTES;

use crate::Refused;

/// Words of a page.
const PAGE_WORDS: usize = PAGE_BYTES / 8;
/// Words that are opened at once beyond the first: 512 KiB. A batch that fills the whole overflow of 2^20 words opens it in 16 steps.
const STEP_WORDS: usize = 1 << 16;

/// A reservation of address space whose beginning is open. It is aligned to a page and zero until written.
pub struct Memory {
    at: NonNull<u64>,
    open: usize,
    reserved: usize,
}

// SAFETY: the value owns the mapping, and hands out its address only.
unsafe impl Send for Memory {}

impl Memory {
    /// Reserves `words` words, of which the first `open` are readable and writable.
    ///
    /// # Errors
    /// [`Refused::Memory`].
    pub fn new(words: usize, open: usize) -> Result<Self, Refused> {
        let reserved = words.max(1).checked_next_multiple_of(PAGE_WORDS).ok_or(Refused::Size)?;
        let bytes = reserved.checked_mul(8).ok_or(Refused::Size)?;
        let at = vm::reserve_small(bytes).ok_or(Refused::Memory)?.cast();
        let mut memory = Self { at, open: 0, reserved };
        if memory.open(open.min(words)) { Ok(memory) } else { Err(Refused::Memory) }
    }

    /// The first word.
    pub fn at(&self) -> NonNull<u64> {
        self.at
    }

    /// Words that are readable and writable.
    pub fn words(&self) -> usize {
        self.open
    }

    /// Opens the first `words` words at least, in whole pages. False: the kernel refuses, or the reservation is shorter.
    fn open(&mut self, words: usize) -> bool {
        let end = words.next_multiple_of(PAGE_WORDS);
        if end > self.reserved {
            return false;
        }
        if end <= self.open {
            return true;
        }
        // SAFETY: the words lie in the reservation, which is this value's.
        let opened =
            unsafe { vm::open(self.at.as_ptr().add(self.open).cast(), (end - self.open) * 8) };
        if opened {
            self.open = end;
        }
        opened
    }

    /// Opens the next step. False: all is open, or the kernel refuses.
    pub fn open_more(&mut self) -> bool {
        let end = self.open.saturating_add(STEP_WORDS).min(self.reserved);
        end > self.open && self.open(end)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and no reference to it outlives the value.
        unsafe { vm::release(self.at.as_ptr().cast(), self.reserved * 8) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_opens_in_steps_up_to_its_end() {
        let mut memory = Memory::new(STEP_WORDS * 2 + 1, 3).unwrap();
        assert_eq!(memory.words(), PAGE_WORDS);
        let mut steps = 0;
        while memory.open_more() {
            // SAFETY: the last open word.
            unsafe { memory.at().add(memory.words() - 1).write(7) };
            steps += 1;
        }
        assert_eq!((steps, memory.words()), (2, STEP_WORDS * 2 + PAGE_WORDS));
        assert_eq!(Memory::new(usize::MAX / 2, 1).err(), Some(Refused::Size));
        assert_eq!(Memory::new(1 << 58, 1).err(), Some(Refused::Memory));
    }
}
