//! Memory that is kept from the machine's host between measurements.
//!
//! The host of a virtual machine may take back what is free in it within seconds (free page
//! reporting, balloons). The next user of such memory waits for the host at each page, ten or
//! forty times as long as for memory that is there: a measurement then tells what was
//! free before it, not what an allocator does. So between two runs the memory that they use is
//! held here, and is let go of just before the next.

use std::ptr::{NonNull, null_mut};

/// As much as the largest measurements take, unless the machine is small.
pub const BYTES: u64 = 2 << 30;
const PAGE_BYTES: usize = 4096;
const HUGE_BYTES: usize = 2 << 20;

/// Memory that is there; free again when dropped.
pub struct Reserve(Option<(NonNull<libc::c_void>, usize)>);

impl Reserve {
    /// Holds as much as a measurement may take, or nothing if there is none to spare.
    pub fn hold() -> Self {
        Self::of(BYTES)
    }

    /// Holds this number of bytes, or fewer if the machine is small.
    pub fn of(bytes: u64) -> Self {
        let spare = available_bytes().map_or(0, |there| bytes.min(there / 4));
        let len = spare as usize & !(HUGE_BYTES - 1);
        if len == 0 {
            return Self(None);
        }
        let (access, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, which no other code knows; the advice changes no contents.
        let at = unsafe {
            let at = libc::mmap(null_mut(), len, access, flags, -1, 0);
            if at == libc::MAP_FAILED {
                return Self(None);
            }
            libc::madvise(at, len, libc::MADV_HUGEPAGE);
            at
        };
        for page in (0..len).step_by(PAGE_BYTES) {
            // SAFETY: within the mapping.
            unsafe { at.cast::<u8>().add(page).write_volatile(1) };
        }
        Self(NonNull::new(at).map(|at| (at, len)))
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        if let Some((at, len)) = self.0 {
            // SAFETY: mapped by `of`, and no reference to it exists.
            unsafe { libc::munmap(at.as_ptr(), len) };
        }
    }
}

/// What the kernel could give to a program without swapping.
pub fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_there() {
        let reserve = Reserve::of(8 << 20);
        let Some((at, len)) = reserve.0 else { panic!("nothing to spare") };
        assert_eq!(len, 8 << 20);
        let mut resident = vec![0_u8; len / PAGE_BYTES];
        // SAFETY: the reserve's own pages, and a byte for each.
        assert_eq!(unsafe { libc::mincore(at.as_ptr(), len, resident.as_mut_ptr()) }, 0);
        assert!(resident.iter().all(|page| page & 1 != 0));
    }

    #[test]
    fn a_machine_with_nothing_to_spare_holds_nothing() {
        assert!(Reserve::of(0).0.is_none());
    }
}
