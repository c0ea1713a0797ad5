//! Tells a copy from a page move: a copy puts the bytes on other physical pages,
//! `mremap` takes the physical pages along. The kernel shows frame numbers only
//! to a privileged reader, so the answer may be "unknown".

use crate::meter::page_size;
use std::os::fd::{AsRawFd, OwnedFd};

/// The kernel's table from this process's pages to physical frames.
pub struct PageMap(Option<OwnedFd>);

/// A physical frame number, if it is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame(Option<u64>);

impl PageMap {
    /// Opens the table; without it every frame is unknown.
    pub fn open() -> Self {
        Self(std::fs::File::open("/proc/self/pagemap").ok().map(Into::into))
    }

    /// The frame under `address`.
    pub fn frame(&self, address: usize) -> Frame {
        const PRESENT: u64 = 1 << 63;
        const NUMBER: u64 = (1 << 55) - 1;
        let Some(file) = &self.0 else {
            return Frame(None);
        };
        let mut entry = [0u8; 8];
        let at = (address / page_size() * entry.len()) as i64;
        // SAFETY: `entry` is writable for eight bytes.
        let got =
            unsafe { libc::pread(file.as_raw_fd(), entry.as_mut_ptr().cast(), entry.len(), at) };
        let entry = u64::from_ne_bytes(entry);
        let known = got == 8 && entry & PRESENT != 0 && entry & NUMBER != 0;
        Frame(known.then_some(entry & NUMBER))
    }
}

impl Frame {
    /// Whether the bytes that lay on `self` were copied to `now`; `None` if a
    /// frame is unknown.
    pub fn copied_to(self, now: Frame) -> Option<bool> {
        Some(self.0? != now.0?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_frames_say_so() {
        assert_eq!(Frame(None).copied_to(Frame(Some(1))), None);
        assert_eq!(Frame(Some(1)).copied_to(Frame(Some(1))), Some(false));
        assert_eq!(Frame(Some(1)).copied_to(Frame(Some(2))), Some(true));
    }
}
