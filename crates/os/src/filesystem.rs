//! The file system of a file, as far as it decides how the file can be used.

use core::ffi::CStr;

use rustix::fd::AsFd;
use rustix::fs;

use crate::image::{Image, retry};

/// Kinds of file systems (`linux/magic.h`).
const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;
pub(crate) const HUGETLBFS: u64 = 0x9584_58f6;
const BTRFS: u64 = 0x9123_683e;
const BCACHEFS: u64 = 0xca45_1a4e;
const ZFS: u64 = 0x2fc1_2fc1;
const F2FS: u64 = 0xf2f5_2010;
const NILFS: u64 = 0x3434;

/// Whether a file lies in the machine's memory: on tmpfs, ramfs or hugetlbfs.
pub fn is_in_memory(path: &CStr) -> bool {
    retry(|| fs::statfs(path))
        .is_ok_and(|status| [TMPFS, RAMFS, HUGETLBFS].contains(&(status.f_type as u64)))
}

impl Image {
    /// Whether the file lies on hugetlbfs, which has huge pages only.
    pub fn has_huge_pages_only(&self) -> bool {
        retry(|| fs::fstatfs(&*self.file)).is_ok_and(|status| status.f_type as u64 == HUGETLBFS)
    }

    /// Whether a store to the mapped file may need room that the file does not have yet: the file system never overwrites a block (btrfs
    /// and its like), or the file shares some blocks with another file. An overlay does not tell which file system it lies on: false there.
    pub fn is_copied_on_write(&self) -> bool {
        let kind = retry(|| fs::fstatfs(&*self.file)).map_or(0, |status| status.f_type as u64);
        [BTRFS, BCACHEFS, ZFS, F2FS, NILFS].contains(&kind) || self.has_shared_extents()
    }

    /// Whether some extent is shared with another file. False where the file system has no such call: it has no shared extents either.
    fn has_shared_extents(&self) -> bool {
        const SHARED: u32 = 0x2000;
        let mut is_shared = false;
        let _ = self.each_extent(|_, _, flags| is_shared |= flags & SHARED != 0);
        is_shared
    }

    /// Whether there is room on the medium for each of the first `bytes` bytes. A range that was allocated and never written has room.
    /// False where the file system does not list its extents.
    pub fn has_room_for(&self, bytes: u64) -> bool {
        let mut end = 0;
        let listed = self.each_extent(|at, len, _| {
            if at <= end {
                end = end.max(at.saturating_add(len));
            }
        });
        listed.is_ok() && end >= bytes
    }

    /// Calls `see` with each extent, in order (`FS_IOC_FIEMAP`): its offset in the file, its length in bytes, its flags.
    fn each_extent(&self, mut see: impl FnMut(u64, u64, u32)) -> Result<(), i32> {
        use rustix::fd::AsRawFd;
        const FIEMAP: u64 = 0xc020_660b;
        const LAST: u32 = 1;
        const EXTENTS: usize = 32;
        #[repr(C)]
        #[derive(Clone, Copy, Default)]
        struct Extent {
            logical: u64,
            physical: u64,
            length: u64,
            reserved: [u64; 2],
            flags: u32,
            more: [u32; 3],
        }
        #[repr(C)]
        struct Map {
            start: u64,
            length: u64,
            flags: u32,
            mapped: u32,
            room: u32,
            reserved: u32,
            extents: [Extent; EXTENTS],
        }
        let (mut start, errno) = (0, crate::env::errno());
        let listed = loop {
            let mut map = Map {
                start,
                length: u64::MAX - start,
                flags: 0,
                mapped: 0,
                room: EXTENTS as u32,
                reserved: 0,
                extents: [Extent::default(); EXTENTS],
            };
            let file = self.file.as_fd().as_raw_fd();
            // SAFETY: the argument is the one of the request, and has room for `map.room` extents.
            if unsafe { libc::ioctl(file, FIEMAP as _, &raw mut map) } != 0 {
                break Err(crate::env::errno());
            }
            let extents = map.extents.get(..map.mapped as usize).unwrap_or(&[]);
            extents.iter().for_each(|extent| see(extent.logical, extent.length, extent.flags));
            match extents.last() {
                // Without progress the file system is wrong, and the loop would not end.
                Some(last)
                    if last.flags & LAST == 0
                        && last.logical.saturating_add(last.length) > start =>
                {
                    start = last.logical.saturating_add(last.length);
                }
                _ => break Ok(()),
            }
        };
        crate::env::set_errno(errno);
        listed
    }
}
