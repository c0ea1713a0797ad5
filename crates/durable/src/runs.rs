//! The runs of a batch, between what has noted them and the record that they become part of.

use core::slice;

use spandrel_pmem::{Buffer, Failed};

/// Runs of one batch, at most: more than capture names one by one (a million blocks of its overflow, its table, its ranges).
const MOST: usize = 1 << 22;

/// A list of runs in memory that is taken as far as it is used.
pub struct Runs {
    room: Buffer,
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
        let room = Buffer::new(MOST * size_of::<(usize, usize)>())?;
        Ok(Self { room, count: 0, bytes: 0, is_full: false })
    }

    /// Forgets all runs.
    pub fn clear(&mut self) {
        (self.count, self.bytes, self.is_full) = (0, 0, false);
    }

    /// Adds a run.
    pub fn push(&mut self, at: *const u8, len: usize) {
        if self.count == MOST {
            self.is_full = true;
            return;
        }
        let place = self.room.at().as_ptr().cast::<(usize, usize)>();
        // SAFETY: within the buffer, which has room for `MOST` pairs and is borrowed exclusively.
        unsafe { place.add(self.count).write((at as usize, len)) };
        self.count += 1;
        self.bytes += len as u64;
    }

    /// The number of runs, and of their bytes; `None`: there were more than the list holds.
    pub fn size(&self) -> Option<(u64, u64)> {
        (!self.is_full).then_some((self.count as u64, self.bytes))
    }

    /// Calls `see` with each run.
    pub fn each(&self, see: &mut dyn FnMut(*const u8, usize)) {
        // SAFETY: the first `count` pairs were written.
        let all = unsafe {
            slice::from_raw_parts(self.room.at().as_ptr().cast::<(usize, usize)>(), self.count)
        };
        all.iter().for_each(|(at, len)| see(*at as *const u8, *len));
    }
}
