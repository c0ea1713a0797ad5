//! Which pages of a range are this process's own: `/proc/thread-self/pagemap`, which names no physical page to a process without privileges.

use core::ffi::CStr;

use spandrel_pages::PAGE_BYTES;

use crate::env::{self, Reading};

const PATH: &CStr = c"/proc/thread-self/pagemap";
/// Bits of an entry (`Documentation/admin-guide/mm/pagemap.rst`): the page is present, and this process alone maps it. The kernel's page of zeroes,
/// which a read of fresh memory maps, has the first bit only, as has a page that the child of a fork shares.
const OWN: u64 = 1 << 63 | 1 << 56;
/// Entries that one call reads: a kibibyte of stack.
const ENTRIES: usize = 128;

/// The open file. It takes a descriptor as long as it lives.
pub struct Pagemap(Reading);

impl Pagemap {
    /// Opens it; `None`: the process may not.
    pub fn open() -> Option<Self> {
        let before = env::errno();
        let opened = Reading::open(PATH).ok().map(Self);
        env::set_errno(before);
        opened
    }

    /// How many of the pages of a range are present, and mapped by this process alone. 0 where the kernel does not tell.
    #[inline(never)]
    pub fn own(&self, at: *const u8, pages: usize) -> usize {
        let before = env::errno();
        let (mut entries, mut count) = ([0_u64; ENTRIES], 0);
        for first in (0..pages).step_by(ENTRIES) {
            let most = (pages - first).min(ENTRIES);
            let offset = (at as usize / PAGE_BYTES + first) * 8;
            let read = self.0.read_at(entries.get_mut(..most).unwrap_or(&mut []), offset);
            let read = entries.iter().take(read);
            count += read.filter(|entry| **entry & OWN == OWN).count();
        }
        env::set_errno(before);
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm;

    #[test]
    fn written_pages_are_own_and_those_that_were_only_read_are_not() {
        let Some(map) = Pagemap::open() else { return };
        let at = vm::reserve(512 * PAGE_BYTES).expect("address space").as_ptr();
        // SAFETY: just reserved, and the test's.
        unsafe {
            assert!(vm::open(at, 512 * PAGE_BYTES) && vm::advise_small(at, 512 * PAGE_BYTES));
            for page in 0..300 {
                at.add(page * PAGE_BYTES).read_volatile();
            }
            assert_eq!(
                (map.own(at, 512), vm::resident(at, 512 * PAGE_BYTES)),
                (0, Some(300 << 12))
            );
            for page in 0..200 {
                at.add(page * PAGE_BYTES).write_volatile(1);
            }
            assert_eq!((map.own(at, 512), map.own(at.add(100 * PAGE_BYTES), 200)), (200, 100));
            // What a child shares is not the parent's own until the child has ended.
            let child = libc::fork();
            if child == 0 {
                libc::pause();
                libc::_exit(0);
            }
            assert_eq!(map.own(at, 512), 0);
            at.write_volatile(2);
            assert_eq!(map.own(at, 512), 1);
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, core::ptr::null_mut(), 0);
            assert_eq!(map.own(at, 512), 200);
            vm::release(at, 512 * PAGE_BYTES);
        }
    }
}
